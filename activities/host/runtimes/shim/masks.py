"""Masks the values of secrets in a program's output. Only the shims of programs with secrets load
it.

This module uses only the standard library, as the shim does, and is imported by its bare name.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

#: Stands for a value, and for values that overlap.
MASK = b"***"
#: Shorter values, in characters, are not masked: they occur by chance. As
#: `iris.model.job.secrets.LEAST_MASKED`.
LEAST = 6


class Masker:
    """Replaces values in one stream, whatever the pieces in which it is read.

    The end of a piece that may be the beginning of a value is kept until the next piece. A value of
    several lines is masked as a whole and line by line, because programs print such values indented
    or one line at a time. A value that the program has changed, for example encoded in base64, is
    not recognised.
    """

    def __init__(self, values: Collection[str]) -> None:
        parts = {
            each
            for value in values
            for part in (value, *value.splitlines())
            for each in (part, part.strip())
        }
        self._values = [os.fsencode(part) for part in sorted(parts) if len(part) >= LEAST]
        #: The end of the stream that may be the beginning of a value, and how much of it a written
        #: mask stands for already.
        self._kept, self._covered = b"", 0

    def feed(self, data: bytes) -> bytes:
        """Returns what can be written after this piece."""
        text = self._kept + data
        return self._upto(
            text, min((self._beginning(text, value) for value in self._values), default=len(text))
        )

    def end(self) -> bytes:
        """Returns the rest of the stream, which has no further piece."""
        return self._upto(self._kept, len(self._kept))

    def _upto(self, text: bytes, end: int) -> bytes:
        """Returns the text up to `end` with its masks, and keeps the rest. No value that begins
        before `end` is incomplete.
        """
        written, at = bytearray(), 0
        for start, stop in self._spans(text):
            if start >= end:
                break
            written += text[at:start]
            if start or not self._covered:
                written += MASK
            at = stop
        written += text[at:end]
        self._kept, self._covered = text[end:], max(0, at - end, self._covered - end)
        return bytes(written)

    def _spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Yields where values are, in order; values that overlap as one."""
        found = sorted(
            [(0, self._covered)] * bool(self._covered)
            + [span for value in self._values for span in _all(text, value)]
        )
        span: tuple[int, int] | None = None
        for start, stop in found:
            if span is not None and start < span[1]:
                span = span[0], max(span[1], stop)
                continue
            if span is not None:
                yield span
            span = start, stop
        if span is not None:
            yield span

    @staticmethod
    def _beginning(text: bytes, value: bytes) -> int:
        """Returns where the end of the text begins that is the beginning of the value; the text's
        length, if there is none.
        """
        at = text.find(value[:1], max(0, len(text) - len(value) + 1))
        while at >= 0:
            if value.startswith(text[at:]):
                return at
            at = text.find(value[:1], at + 1)
        return len(text)


def _all(text: bytes, value: bytes) -> Iterator[tuple[int, int]]:
    """Yields where the value is in the text, also where it overlaps itself."""
    at = text.find(value)
    while at >= 0:
        yield at, at + len(value)
        at = text.find(value, at + 1)
