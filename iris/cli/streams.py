"""Prepares the standard streams of the process: closed ones, other encodings, lost readers."""

import os
import select
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Any, TextIO

import click

from iris.cli.show.terminal import end_output, guard_terminal


class LosableStream:
    """A stream that passes text to another stream, and discards the text if nothing reads that
    stream any more.

    So the command continues: `iris fetch train 2>&1 | head -1` fetches all files.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except BrokenPipeError:  # later output, also that of child processes, is discarded
            discard_output(self._stream)


def prepare_streams() -> None:
    """Makes standard input, output and error usable. Ends the process if no output is possible."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed: the next file or socket would get this number
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        click.echo("error: standard output is closed; to discard it, use >/dev/null", err=True)
        os._exit(1)
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        # as Python does for standard error: other locales than UTF-8 lack letters
        sys.stdout.reconfigure(errors="backslashreplace")
    guard_terminal()
    if sys.stderr is not None and not sys.stderr.isatty():
        sys.stderr = LosableStream(sys.stderr)


def flush_streams() -> None:
    """Writes the rest of the output before the process ends.

    Raises:
        OSError: standard output cannot be written.
    """
    try:
        end_output(sys.stdout, sys.stderr)  # the command may have been interrupted
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    finally:
        if sys.stderr is not None:
            sys.stderr.flush()


def reader_is_gone() -> bool:
    """Returns whether standard output is a pipe that its reader has closed.

    Other connections break with the same errors.
    """
    watched = select.poll()
    watched.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in watched.poll(0))


def discard_output(stream: TextIO) -> None:
    """Discards everything that this process, or a child process, writes to the stream from now."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
