"""Adds entries to dictionaries of bounded size: the oldest entry is dropped first."""

from collections.abc import Hashable
from itertools import islice
from typing import TypeVar

#: The maximum number of entries of each dictionary that `remember` fills. Released keys, for
#: example, are kept to recognise late messages. Messages are late by seconds, and fewer than a
#: hundred keys are released a second, so 2,000 are enough.
REMEMBERED = 2_000

_Entry = TypeVar("_Entry", bound=Hashable)
_Value = TypeVar("_Value")


def remember(entries: dict[_Entry, _Value], entry: _Entry, value: _Value) -> list[_Value]:
    """Adds the entry as the newest one, and drops the oldest entries beyond the limit. Returns the
    values of the dropped entries.
    """
    entries.pop(entry, None)
    entries[entry] = value
    surplus = max(0, len(entries) - REMEMBERED)
    return [entries.pop(oldest) for oldest in [*islice(entries, surplus)]]
