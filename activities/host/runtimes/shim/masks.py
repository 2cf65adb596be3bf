"""Masks the values of secrets in a program's output. Only the shims of programs with secrets load
this module.

This module uses only the standard library, as the shim does, and is imported by its bare name.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

#: The text that replaces a secret value, or several secret values that overlap.
MASK = b"***"
#: The length of the shortest secret values that are masked, in characters. Shorter texts are not
#: masked, because they also occur by chance. It is the same as
#: `iris.model.job.secrets.LEAST_MASKED`.
LEAST = 6


class Masker:
    """Replaces secret values in one stream, which is read in pieces of any size.

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
        #: The last bytes of the stream that are not written yet, because a secret value may begin
        #: in them.
        self._kept = b""
        #: The number of bytes at the beginning of `_kept` that belong to a value whose mask is
        #: written already.
        self._covered = 0

    def feed(self, data: bytes) -> bytes:
        """Returns the bytes that can be written after this piece."""
        text = self._kept + data
        return self._upto(
            text, min((self._beginning(text, value) for value in self._values), default=len(text))
        )

    def end(self) -> bytes:
        """Returns the rest of the stream after its last piece."""
        return self._upto(self._kept, len(self._kept))

    def _upto(self, text: bytes, end: int) -> bytes:
        """Returns the masked text up to `end`, and keeps the rest. All values that begin before
        `end` must be complete in the text.
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
        """Yields the positions of values, in order. Values that overlap have one position."""
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
        """Returns the position of the last part of the text that may be the beginning of the value;
        the text's length if there is no such part.
        """
        at = text.find(value[:1], max(0, len(text) - len(value) + 1))
        while at >= 0:
            if value.startswith(text[at:]):
                return at
            at = text.find(value[:1], at + 1)
        return len(text)


def _all(text: bytes, value: bytes) -> Iterator[tuple[int, int]]:
    """Yields the positions of the value in the text, which may overlap."""
    at = text.find(value)
    while at >= 0:
        yield at, at + len(value)
        at = text.find(value, at + 1)
