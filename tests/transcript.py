"""Runs transcripts: text files of commands with the output that each must print. A person can
review a whole scenario.

A transcript is a list of blocks. A block is one or more lines of comment or command, the line
`----`, and the output up to the next blank line:

    # The host is lost while the program runs.
    lost host-1
    ----
    RUNNING -> LOST
    effects: kill, report WORKER_FAILED

`IRIS_WRITE_TRANSCRIPTS=1 pytest tests/…` writes the present outputs into the files, for review with
`git diff`.
"""

import os
from collections.abc import Callable
from pathlib import Path

DIRECTORY = Path(__file__).parent / "transcripts"


def transcripts(subject: str) -> list[Path]:
    """Returns the transcripts of a subject, `tests/transcripts/SUBJECT/*.txt`, in order of name."""
    return sorted((DIRECTORY / subject).glob("*.txt"))


def check(path: Path, execute: Callable[[str], str]) -> None:
    """Executes every command of a transcript in order and compares all outputs with the file's.

    Args:
        execute: runs one command line and returns its output, without a blank line.
    """
    expected = path.read_text()
    actual = (
        "\n\n".join(_executed(block, execute) for block in expected.strip().split("\n\n")) + "\n"
    )
    if os.environ.get("IRIS_WRITE_TRANSCRIPTS"):
        path.write_text(actual)
        return
    assert actual == expected


def _executed(block: str, execute: Callable[[str], str]) -> str:
    commands = block.split("----", 1)[0].rstrip("\n").split("\n")
    outputs = [execute(line) for line in commands if line and not line.startswith("#")]
    shown = "\n".join(output for output in outputs if output)
    return "\n".join([*commands, "----", *([shown] if shown else [])])
