"""The terminal of a command: what it can show, and a guard that lets only fit text through.

`guard_terminal` puts the guard before everything that a command prints, as text or as bytes. Two
kinds of output pass beside it, each by `unguarded`: what Iris draws itself, from texts that are
fit, and the programs of `iris exec`, for which it is the user's own terminal.
"""

import codecs
import os
import sys
from typing import Protocol, TextIO

from iris.model.terminal_text import TerminalText, fit


class Bytes(Protocol):
    """Where bytes are written."""

    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...


class TerminalBytes:
    """Shows bytes on a terminal: as UTF-8, and only what is fit for it.

    A piece may cut a character or a sequence in two.

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
        """Shows the rest of a text that was cut, and ends its colours."""
        self._stream.write(self._text.fit(self._decoder.decode(b"", True)) + self._text.end())
        self._stream.flush()


class Terminal:
    """A terminal that gets only what is fit for it.

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
    """Lets this process write to its terminal only what is fit for one."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty():
            setattr(sys, name, Terminal(stream))


def unguarded(stream: TextIO) -> TextIO:
    """Returns the stream without the guard of its terminal."""
    return stream.unguarded if isinstance(stream, Terminal) else stream


def bytes_of(stream: TextIO) -> Bytes:
    """Returns where to write a program's output.

    A file or a pipe gets every byte, a terminal only what is fit for it.
    """
    if stream.isatty() and not isinstance(stream, Terminal):
        return TerminalBytes(stream)
    return stream.buffer


def end_output(*streams: TextIO | Bytes | None) -> None:
    """Ends programs' output on terminals: what was cut is shown, and colours do not stay."""
    for stream in streams:
        shown = stream.buffer if isinstance(stream, Terminal) else stream
        if isinstance(shown, TerminalBytes):
            shown.end()


def can_redraw(stream: TextIO) -> bool:
    """Returns whether a stream is a terminal that can move its cursor."""
    return stream.isatty() and _moves()


def is_live(stream: TextIO | None = None) -> bool:
    """Returns whether progress is drawn (by default on standard error): on a terminal, and not in
    the log of a CI.
    """
    return can_redraw(stream or sys.stderr) and not os.environ.get("CI")


def shows_colours(stream: TextIO) -> bool:
    """Returns whether a stream is a terminal that shows colours, and the user wants them
    (https://no-color.org).
    """
    return stream.isatty() and _moves() and not os.environ.get("NO_COLOR")


def _moves() -> bool:
    return os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
