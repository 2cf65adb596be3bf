"""Decides which attempts end because of the disk that they use on their host. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from iris.model.units import GIB, format_bytes

#: The part of a disk that jobs should leave free, and the most bytes of it.
RESERVE_SHARE, MOST_RESERVE = 0.02, 2 * GIB
#: A measurement reads each attempt's directories, which takes long if they are huge. The next one
#: begins after this many times its duration, and not before that many seconds: if an attempt may be
#: to blame, and if nothing suggests it. Other programs that delete files hide that an attempt
#: grows, and some file systems count written data late.
URGENT_PAUSE, PAUSE = (10.0, 1.0), (100.0, 10.0)


class Disk(NamedTuple):
    """A file system of the host, in bytes."""

    size: int
    free: int

    @property
    def reserve(self) -> int:
        """The space that jobs should leave free."""
        return min(int(self.size * RESERVE_SHARE), MOST_RESERVE)

    @property
    def low(self) -> bool:
        return self.free < self.reserve


class Holding(NamedTuple):
    """What an attempt holds on its host's disks."""

    #: Bytes by file system.
    used: Mapping[int, int]
    #: The disk that its job requested, in bytes.
    requested: int
    #: True if it ends already, so its files are removed soon.
    ending: bool
    #: False if it changed its directories while they were read, and they could not be read while it
    #: was stopped.
    complete: bool = True

    @property
    def total(self) -> int:
        return sum(self.used.values())


@dataclass(frozen=True)
class Measured:
    """When attempts were last measured, in seconds of a steady clock, and what was in use then."""

    at: float
    #: How long it took, in seconds.
    took: float
    #: The bytes in use on all disks.
    in_use: int
    #: The bytes that the largest attempt used.
    largest: int


def is_due(disks: Mapping[int, Disk], last: Measured | None, now: float, limit: int) -> bool:
    """Returns whether the attempts have to be measured now.

    Args:
        disks: by file system.
        limit: the most bytes that an attempt may use.
    """
    low = any(disk.low for disk in disks.values())
    if not low and sum(disk.size for disk in disks.values()) <= limit:
        return False
    if last is None:
        return True
    grown = in_use(disks) - last.in_use > limit - last.largest
    factor, least = URGENT_PAUSE if low or grown else PAUSE
    return now - last.at >= max(factor * last.took, least)


def in_use(disks: Mapping[int, Disk]) -> int:
    """Returns the bytes in use on all disks."""
    return sum(disk.size - disk.free for disk in disks.values())


def to_end(
    holdings: Mapping[str, Holding], disks: Mapping[int, Disk], limit: int
) -> dict[str, str]:
    """Returns the attempts that end, each with the reason.

    These are the attempts that use more than the limit, and for each disk with less than its
    reserve the attempt that uses most of it beyond its request. That attempt has to use more than
    the reserve: of many small ones, none is to blame. An attempt that could not be measured ends
    before any other: what the others use does not show that they have filled the disk.

    Args:
        holdings: by attempt.
        disks: by file system.
        limit: the most bytes that an attempt may use.
    """
    found = {
        key: _too_much(held, limit)
        for key, held in holdings.items()
        if held.total > limit and not held.ending
    }
    for number, disk in disks.items():
        freed = sum(
            held.used.get(number, 0)
            for key, held in holdings.items()
            if held.ending or key in found
        )
        if disk.free + freed >= disk.reserve:
            continue
        beyond = {
            key: held.used.get(number, 0) - held.requested
            for key, held in holdings.items()
            if not held.ending
        }
        if unknown := [key for key in beyond if not holdings[key].complete]:
            found.setdefault(max(unknown, key=lambda key: beyond[key]), _hides(disk))
            continue
        most = max(beyond, key=lambda key: beyond[key], default=None)
        if most is not None and most not in found and beyond[most] > disk.reserve:
            found[most] = _fills(disk, holdings[most], number)
    return found


def _too_much(held: Holding, limit: int) -> str:
    return (
        f"used {format_bytes(held.total)} of its host's disk; an attempt may use"
        f" {format_bytes(limit)} (bootstrap.max_disk)"
    )


def _fills(disk: Disk, held: Holding, number: int) -> str:
    requested = f"requested {format_bytes(held.requested)}" if held.requested else "requested none"
    return (
        f"filled its host's disk: {format_bytes(disk.free)} of {format_bytes(disk.size)} were left,"
        f" and it used {format_bytes(held.used[number])} and {requested}; request what it needs"
        " with --disk"
    )


def _hides(disk: Disk) -> str:
    return (
        "changed its directories while they were read, so it is unknown how much of its host's"
        f" disk it used, when {format_bytes(disk.free)} of {format_bytes(disk.size)} were left"
    )


def largest(holdings: Sequence[Holding]) -> int:
    """Returns the bytes that the largest attempt uses."""
    return max((held.total for held in holdings), default=0)
