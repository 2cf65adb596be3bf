"""Finds the line of a program's output that says best why it failed."""

import re

#: The most characters of the line that a reason shows.
MOST = 200
#: Escape sequences of terminals, and other control characters.
_CONTROL = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TRACEBACK = "Traceback (most recent call last):"
#: The last line of a Python traceback: a dotted name and the message. The traceback's beginning may not be known any more.
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Failure)(?:: .*)?")
_ERROR = re.compile(r"\b[A-Za-z]*Error\b|\b(?:error|ERROR|fatal|FATAL|panic)(?:\[\w+\])?:")


def error_line(output: str) -> str:
    """Returns the last line of the last Python traceback, else the first line with an error; empty if there is neither.

    Args:
        output: the last lines that the program wrote.
    """
    lines = [_CONTROL.sub("", line.rsplit("\r", 1)[-1]).rstrip() for line in output.rstrip().split("\n")]
    found = _raised(lines) or next((line.strip() for line in lines if _ERROR.search(line)), "")
    found = found.replace("\t", " ")  # until here, tabs indent
    return found if len(found) <= MOST else f"{found[: MOST - 1]}…"


def _raised(lines: list[str]) -> str:
    begun = max((place for place, line in enumerate(lines) if line.strip().endswith(_TRACEBACK)), default=None)
    if begun is not None:
        # Frames are indented, and so are the parts of an exception group; the exception is not.
        indent = lines[begun].find(_TRACEBACK)
        after = (line for line in lines[begun + 1 :] if len(line) > indent and not line[indent].isspace())
        if (first := next(after, "")) and indent == 0:
            return first
    return next((line for line in reversed(lines) if _RAISED.fullmatch(line)), "")
