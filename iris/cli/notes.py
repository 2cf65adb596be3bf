"""Standard error whose reader may go away before the command ends."""

import os
import sys
from collections.abc import Callable
from typing import Any, TextIO


class Notes:
    """Passes text on to a stream. When the reader of the stream is gone, the text is lost, and the
    command goes on: `iris fetch train 2>&1 | head -1` fetches all files.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._patiently(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._patiently(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _patiently(self, write: Callable[[], object]) -> None:
        try:
            write()
        except BrokenPipeError:  # later writes, also those of other processes, go nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def survive_readers() -> None:
    """Lets this process go on when nobody reads its standard error any more."""
    if sys.stderr is not None and not sys.stderr.isatty():
        sys.stderr = Notes(sys.stderr)
