"""The terminal of a command: its abilities, and a guard against harmful control sequences.

`guard_terminal` puts the guard before everything that a command prints, as text or as bytes. Two
kinds of output use `unguarded` to bypass it: progress that Iris draws itself, from safe texts, and
the programs of `iris exec`, which use the user's own terminal.
"""

import codecs
import os
import sys
from typing import Protocol, TextIO

from iris.model.terminal_text import TerminalText, fit


class Bytes(Protocol):
    """A stream that accepts bytes."""

    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...


class TerminalBytes:
    """A stream that shows bytes on a terminal, as UTF-8 and without harmful control sequences.

    A call of `write` may pass a piece that ends inside a UTF-8 character or a control sequence.

    Args:
        stream: writes to the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = TerminalText()

    def write(self, data: bytes) -> int:
        self._stream.write(self._text.fit(self._decoder.decode(data)))
        return len(data)

    def flush(self) -> None:
        self._stream.flush()

    def end(self) -> None:
        """Shows the rest of the last piece, and ends its colours."""
        self._stream.write(self._text.fit(self._decoder.decode(b"", True)) + self._text.end())
        self._stream.flush()


class Terminal:
    """A stream that writes to a terminal and removes harmful control sequences.

    Args:
        stream: writes to the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream
        self.buffer = TerminalBytes(stream)

    def write(self, text: str) -> int:
        self.unguarded.write(fit(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.unguarded, name)


def guard_terminal() -> None:
    """Puts the guard before the standard streams of this process that are terminals."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty():
            setattr(sys, name, Terminal(stream))


def unguarded(stream: TextIO) -> TextIO:
    """Returns the stream without the guard."""
    return stream.unguarded if isinstance(stream, Terminal) else stream


def bytes_of(stream: TextIO) -> Bytes:
    """Returns the stream to which a program's output is written.

    A file or a pipe gets every byte. A terminal gets no harmful control sequences.
    """
    if stream.isatty() and not isinstance(stream, Terminal):
        return TerminalBytes(stream)
    return stream.buffer


def end_output(*streams: TextIO | Bytes | None) -> None:
    """Shows the rest of programs' output on terminals, and ends its colours."""
    for stream in streams:
        shown = stream.buffer if isinstance(stream, Terminal) else stream
        if isinstance(shown, TerminalBytes):
            shown.end()


def can_redraw(stream: TextIO) -> bool:
    """Returns whether a stream is a terminal that can move its cursor."""
    return stream.isatty() and _moves()


def is_live(stream: TextIO | None = None) -> bool:
    """Returns whether progress is drawn on a stream: on a terminal, and not in the log of a CI.

    Args:
        stream: by default standard error.
    """
    return can_redraw(stream or sys.stderr) and not os.environ.get("CI")


def shows_colours(stream: TextIO) -> bool:
    """Returns whether a stream is a terminal that shows colours, and the user wants them.

    Users turn colours off with `NO_COLOR` (https://no-color.org).
    """
    return stream.isatty() and _moves() and not os.environ.get("NO_COLOR")


def _moves() -> bool:
    """Returns whether the terminal can move its cursor and show colours."""
    return os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
