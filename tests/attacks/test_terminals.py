"""A job, or another user, sends control characters to the terminals of those who look at it."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

#: Sets the clipboard, the title and the screen, and asks for an answer on standard input; once more with characters of one byte.
HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b]0;evil\x1b\\\x1b[?1049h\x1b[6n\x9b6n\x1bc"


def shown(*command: str) -> str:
    """What a terminal gets from a command."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm-256color"})
    os.close(theirs)
    seen = b""
    with suppress(OSError):  # the other side is closed
        while more := os.read(ours, 100_000):
            seen += more
    os.close(ours)
    process.wait()
    return seen.decode()


def test_a_message_with_escape_sequences_does_not_control_the_terminal(tmp_path: Path) -> None:
    """A reason has the text of a set-up command of another user, an error may have the name of a file or of an endpoint."""
    said = shown(str(Path(sys.executable).with_name("iris")), "submit", "-f", str(tmp_path / f"{HOSTILE}.yaml"))

    assert "evil" in said
    assert not set(said) & set("\x07\x1b\x9b")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_colours_and_progress_bars_reach_the_terminal(stream: str) -> None:
    """They are Iris's own, and a program's log may have them, too."""
    wanted = "\x1b[31mred\x1b[0m\x1b[2K\x1b[1A\x1b[?25l"
    code = f"from iris.cli.terminal import guard_terminal; guard_terminal(); import sys; sys.{stream}.write({wanted!r} + '\\x07')"

    assert shown(sys.executable, "-c", code) == f"{wanted}�"
