"""Adds entries to dictionaries of bounded size: the oldest entry is dropped first."""

from collections.abc import Hashable
from typing import TypeVar

#: The most entries of each dictionary that `remember` fills. Released keys, for example, are kept
#: to recognise late messages. Messages are late by seconds, and fewer than a hundred keys are
#: released a second, so 2,000 are enough.
REMEMBERED = 2_000

_Entry = TypeVar("_Entry", bound=Hashable)
_Value = TypeVar("_Value")


def remember(entries: dict[_Entry, _Value], entry: _Entry, value: _Value) -> None:
    """Adds the entry as the newest one, and drops the oldest entries beyond the limit."""
    entries.pop(entry, None)
    entries[entry] = value
    while len(entries) > REMEMBERED:
        del entries[next(iter(entries))]
