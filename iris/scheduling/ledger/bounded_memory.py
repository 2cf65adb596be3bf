"""Adds entries to dictionaries of bounded size: the oldest entry is dropped first."""

from collections.abc import Hashable
from typing import TypeVar

#: The most entries in each of these dictionaries: released keys, changed requests, ended
#: incarnations, and closed hosts that are gone. A message is late by seconds, and a scheduler
#: releases fewer than a hundred keys a second.
REMEMBERED = 2_000

_Entry = TypeVar("_Entry", bound=Hashable)
_Value = TypeVar("_Value")


def remember(entries: dict[_Entry, _Value], entry: _Entry, value: _Value) -> None:
    """Adds the entry as the newest one, and drops the oldest entries beyond the limit."""
    entries.pop(entry, None)
    entries[entry] = value
    while len(entries) > REMEMBERED:
        del entries[next(iter(entries))]
