"""What the terminal of a command can show, and what it must not get: control characters and escape sequences of jobs.

Reasons, names and paths come from programs and from other users. Some sequences would set the clipboard or the title, answer on
standard input, or switch the screen.
"""

import os
import re
import sys
from typing import TextIO

#: All but layout, and escape sequences other than those for colours, for moving around in the last lines and for erasing them.
_SEQUENCES = "\\[[0-9;]*[A-DGJKm]"
_UNFIT = "[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]|\x1b(?!{})"
_UNFIT_FOR_LOGS = re.compile(_UNFIT.format(_SEQUENCES))
#: Iris's own progress bars hide the cursor.
_UNFIT_FOR_MESSAGES = re.compile(_UNFIT.format(f"{_SEQUENCES}|\\[\\?25[hl]"))


def fit(text: str) -> str:
    """Returns the text of a log with a replacement character for all that a terminal must not get."""
    return _UNFIT_FOR_LOGS.sub("�", text)


class Terminal:
    """A terminal that gets only what is fit for it. Bytes that are written to its `buffer` stay as they are.

    Args:
        stream: writes to the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(_UNFIT_FOR_MESSAGES.sub("�", text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def guard_terminal() -> None:
    """Lets this process write to its terminal only what is fit for one."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty():
            setattr(sys, name, Terminal(stream))


def can_redraw(stream: TextIO) -> bool:
    """Returns whether a stream is a terminal that can move its cursor."""
    return stream.isatty() and _moves()


def is_live(stream: TextIO | None = None) -> bool:
    """Returns whether progress is drawn (by default on standard error): on a terminal, and not in the log of a CI."""
    return can_redraw(stream or sys.stderr) and not os.environ.get("CI")


def shows_colours(stream: TextIO) -> bool:
    """Returns whether a stream is a terminal that shows colours, and the user wants them (https://no-color.org)."""
    return stream.isatty() and _moves() and not os.environ.get("NO_COLOR")


def _moves() -> bool:
    return os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
