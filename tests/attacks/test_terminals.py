"""A job, or another user, sends control characters to the terminals of those who look at it."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.terminal_text import TerminalText, fit
from tests.screen import Screen
from tests.strategies import CHEAP

#: Sets the clipboard, the title and the screen, and asks for an answer on standard input; once more
#: with characters of one byte.
HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b]0;evil\x1b\\\x1b[?1049h\x1b[6n\x9b6n\x1bc"
#: Each with what a terminal must not get of it.
ATTACKS = {
    "the cursor goes up": "\x1b[5A",
    "the cursor goes up by default": "\x1b[A",
    "the cursor goes down": "\x1b[2B",
    "the cursor goes right": "\x1b[9C",
    "the cursor goes left": "\x1b[9D",
    "the cursor goes to a line before": "\x1b[2F",
    "the cursor goes to a column": "\x1b[1G",
    "the cursor goes to a place": "\x1b[1;1H",
    "the cursor goes to a place, otherwise": "\x1b[1;1f",
    "the cursor is saved": "\x1b[s",
    "the cursor is saved, otherwise": "\x1b7",
    "the cursor is restored": "\x1b8",
    "the line is erased": "\x1b[2K",
    "the rest is erased": "\x1b[J",
    "the screen is erased": "\x1b[2J",
    "what was scrolled away is erased": "\x1b[3J",
    "lines are deleted": "\x1b[2M",
    "characters are erased": "\x1b[4X",
    "the last character is repeated": "\x1b[9b",
    "the screen scrolls": "\x1b[2S",
    "a part of the screen scrolls": "\x1b[1;2r",
    "the line feed is reversed": "\x1bM",
    "the other screen": "\x1b[?1049h",
    "the cursor is hidden": "\x1b[?25l",
    "keys are sent otherwise": "\x1b[>4;1m",
    "a question": "\x1b[c",
    "the title": "\x1b]0;title\x07",
    "a link": "\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\",
    "the clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "a device control string": "\x1bP$q\x22p\x1b\\",
    "an application's string": "\x1b_x\x1b\\",
    "a character set": "\x1b(0",
    "a reset": "\x1bc",
    "a control sequence of one byte": "\x9b2J",
    "an operating system command of one byte": "\x9d0;title\x9c",
    "a device control string of one byte": "\x90q\x9c",
    "a colour that a control character interrupts": "\x1b[3\x081m",
    "a move with a space before its letter": "\x1b[2 A",
    "a colour without an end": "\x1b[31\n",
    "a colour of many digits": "\x1b[" + "1" * 1000 + "m",
    "a backspace": "\x08\x08",
    "a form feed": "\x0c",
    "another character set": "\x0e",
    "a bell": "\x07",
    "a deletion": "\x7f",
}
COLOURS = "\x1b[31mred\x1b[0m \x1b[1;38;5;208mbold\x1b[m \x1b[38:2::255:0:0mtrue\x1b[0m"
LETTERS = ["\x1b[31m", "\x1b", "[", "1", "m", "A", "a", "\n", "\r", "\t"]
PIECES = st.one_of(st.sampled_from([*ATTACKS.values(), *LETTERS]), st.text(max_size=3))


def shown(*command: str) -> str:
    """What a terminal gets from a command."""
    ours, theirs = os.openpty()
    env = os.environ | {"TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen = b""
    with suppress(OSError):  # the other side is closed
        while more := os.read(ours, 100_000):
            seen += more
    os.close(ours)
    process.wait()
    return seen.decode()


def in_terminal(code: str) -> str:
    """What a terminal gets from Python code that runs as a command of Iris does."""
    begin = "import sys; from iris.cli.show.terminal import *; guard_terminal()"
    return shown(sys.executable, "-c", f"{begin}; {code}")


def test_a_message_with_escape_sequences_does_not_control_the_terminal(tmp_path: Path) -> None:
    """A reason has the text of a set-up command of another user, an error may have the name of a
    file or of an endpoint.
    """
    said = shown(
        str(Path(sys.executable).with_name("iris")),
        "submit",
        "-f",
        str(tmp_path / f"{HOSTILE}.yaml"),
    )

    assert "evil" in said
    assert not set(said) & set("\x07\x1b\x9b")


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_terminal_gets_no_sequence_but_those_of_colours(attack: str) -> None:
    """A job that moves the cursor or erases could change what Iris, or the shell, has said."""
    shows = fit(f"before{attack}after")
    Screen().feed(shows)  # it refuses other control characters

    assert shows.startswith("before�")
    assert shows.endswith("after")
    assert not set(shows) & {"\x1b", *map(chr, range(0x7F, 0xA0)), *"\x07\x08\x0c\x0e"}


def test_colours_tabs_and_carriage_returns_reach_the_terminal() -> None:
    """Colours are Iris's own, too; a progress bar has carriage returns."""
    assert fit(f"{COLOURS}\t10%\r20%\n") == f"{COLOURS}\t10%\r20%\n"


@CHEAP
@given(st.lists(PIECES, max_size=8), st.data())
def test_the_place_at_which_a_text_is_cut_changes_nothing(
    pieces: list[str], data: st.DataObject
) -> None:
    """A log arrives in chunks: the half of a sequence must neither pass nor break a colour."""
    whole = "".join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=4)))
    filtered = TerminalText()

    shows = "".join(
        filtered.fit(whole[begin:end])
        for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)
    )
    shows += filtered.end()

    assert shows.removesuffix("\x1b[0m") == fit(whole).removesuffix("\x1b[0m")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("binary", [False, True])
def test_everything_that_a_command_prints_is_guarded(stream: str, binary: bool) -> None:
    """As text and as bytes: a library that writes bytes would go past a guard of texts."""
    text = f"{COLOURS}\t\r\x1b[2K\x1b[1A\x1b[?25l\x07"
    write = f"buffer.write({text.encode()!r})" if binary else f"write({text!r})"

    assert in_terminal(f"sys.{stream}.{write}") == f"{COLOURS}\t\r����"


def test_colours_do_not_outlast_the_output_of_a_job() -> None:
    """A job that writes in invisible letters at last would hide all that follows, also in the
    shell.
    """
    left = in_terminal(r"sys.stdout.buffer.write(b'\x1b[8mhidden'); end_output(sys.stdout)")
    ended = in_terminal(
        r"sys.stdout.buffer.write(b'\x1b[32mok\x1b[0m\x1b['); end_output(sys.stdout)"
    )

    assert left == "\x1b[8mhidden\x1b[0m"
    assert ended == "\x1b[32mok\x1b[0m�["


def test_a_terminal_of_another_encoding_gets_no_control_characters_either() -> None:
    """In UTF-8, the letter has a byte that begins a control sequence in Latin-1."""
    latin = "import sys; sys.stdout.reconfigure(encoding='latin-1', errors='backslashreplace')"
    write = (
        "from iris.cli.show.terminal import *; guard_terminal();"
        " sys.stdout.buffer.write('ś2J'.encode())"
    )

    assert shown(sys.executable, "-c", f"{latin}; {write}") == r"\u015b2J"


def test_the_output_that_a_python_program_waits_for_is_guarded_too() -> None:
    """`job.wait(stream_logs=True)` prints it in a program of which Iris does not own the output."""
    code = (
        "from datetime import UTC, datetime; from iris import LogEntry; "
        "from iris.client.logs.whole_lines import print_line; "
        f"print_line(LogEntry(0, 1, datetime.now(UTC), 'stdout', {COLOURS + HOSTILE!r}))"
    )
    to_file = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert shown(sys.executable, "-c", code) == f"{fit(COLOURS + HOSTILE)}\r\n"
    assert to_file.stdout.decode() == f"{COLOURS + HOSTILE}\n"
