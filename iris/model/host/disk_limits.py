"""Decides which attempts end because of the disk space that they use on their host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from iris.model.units import GIB, format_bytes

#: The space of a disk that jobs should leave free: a share of the disk, with an upper limit in
#: bytes.
RESERVE_SHARE, MOST_RESERVE = 0.02, 2 * GIB
#: The pauses between two measurements: `URGENT_PAUSE` if an attempt may be filling the disk,
#: otherwise `PAUSE`. A pause is the duration of the last measurement times the first number, and at
#: least the second number, in seconds: a measurement reads each attempt's directories, which takes
#: long if they are huge. Regular measurements are needed because other programs that delete files
#: can hide the growth of an attempt, and because some file systems count written data late.
URGENT_PAUSE, PAUSE = (10.0, 1.0), (100.0, 10.0)


class Disk(NamedTuple):
    """The size and the free space of one of the host's file systems, in bytes."""

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
    """The disk space that an attempt uses on its host."""

    #: The number of bytes that the attempt uses on each file system, by the device number of the
    #: file system.
    used: Mapping[int, int]
    #: The disk space that the job requested, in bytes.
    requested: int
    #: True if the attempt is already ending, so that its files will soon be removed.
    ending: bool
    #: False if the attempt changed its directories while they were measured, and Iris could not
    #: measure them while the attempt was stopped either.
    complete: bool = True

    @property
    def total(self) -> int:
        return sum(self.used.values())


@dataclass(frozen=True)
class Measured:
    """The last measurement of the disk space that the attempts of a host use: `at` is its time, in
    seconds of a monotonic clock.
    """

    at: float
    #: How long the measurement took, in seconds.
    took: float
    #: The number of bytes in use on all disks of the host, by any program.
    in_use: int
    #: The number of bytes that the largest attempt used.
    largest: int


def is_due(disks: Mapping[int, Disk], last: Measured | None, now: float, limit: int) -> bool:
    """Returns whether the attempts must be measured now.

    Args:
        disks: the disks by file system.
        limit: the limit on bytes of one attempt.
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
    """Returns the attempts that must end, each with the reason.

    An attempt must end if it uses more than the limit. If a disk has less free space than its
    reserve, the attempt that uses most of it beyond its request must end, too, but only if that is
    more than the reserve: of many small attempts, none is the cause. An attempt that could not be
    measured ends first, because it may have filled the disk.

    Args:
        holdings: the used space by attempt.
        disks: the disks by file system.
        limit: the limit on bytes of one attempt.
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
