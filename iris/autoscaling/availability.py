"""Decides whether slices can be requested from a scale group now.

Four independent conditions stop requests: a used-up quota, a zone without stock, slices that fail
while they are provisioned, and short-lived slices. The end of one condition does not end another.
This module only reads the memory of these conditions. `iris.autoscaling.failure_memory` records a
stock-out, a quota or a failure, and decides how long it stops requests.

A quota that counts in a zone or region does not stop requests in the group's other zones
(`iris.autoscaling.quotas`).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from iris.model.slice.provisioning import ANYWHERE
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.model.slice.scaling import Availability, GroupMemory, Memory, StockedOut, UsedUp
from iris.model.slice.status import SliceFacts
from iris.model.units import format_duration

#: The period over which the limits on new and deleted slices per minute count.
MINUTE = timedelta(minutes=1)
#: Only slices that were lost within this period count for `Churn`, the share of short-lived slices.
#: Slices that are deleted on purpose never count.
CHURN_WINDOW = timedelta(minutes=30)
#: If `Churn` counts fewer lost slices than this (`Churn.of`), the share of short-lived ones is 0.
CHURN_SAMPLES = 3
#: A slice that is lost sooner than this after it became ready is short-lived.
SHORT_LIFETIME = timedelta(minutes=5)
#: A slice that is lost later than this after it became ready is long-lived. A slice whose lifetime
#: is between `SHORT_LIFETIME` and this does not count for `Churn`.
LONG_LIFETIME = timedelta(minutes=10)
#: Pairs of a share and a factor. If at least this share of the recently lost slices was
#: short-lived, the limit on new slices per minute is multiplied by the factor. The highest share
#: comes first.
CHURN_LEVELS = ((0.8, 0.0), (0.5, 0.1), (0.2, 0.5))
#: If at least this share of the recently lost slices was short-lived, idle slices are not deleted,
#: because the group might not get them back.
CHURN_KEEPS = 0.5

#: The stock-outs, by zone and kind of slice, such as `tpu_vm:v5litepod-16:preemptible`.
StockOuts = Mapping[tuple[str, str], StockedOut]


class Churn(NamedTuple):
    """The number of a group's recently lost slices that were short-lived or long-lived (`of`), and
    the number of the short-lived ones (`short`).
    """

    short: int
    of: int

    @property
    def share(self) -> float:
        return self.short / self.of if self.of >= CHURN_SAMPLES else 0.0

    @property
    def factor(self) -> float:
        """Returns the factor by which the group's growth is slowed down."""
        return next((factor for share, factor in CHURN_LEVELS if self.share >= share), 1.0)


class GroupAvailability(NamedTuple):
    """Whether a scale group can get new slices now, and if not, why and until when."""

    state: Availability
    #: Why the group can get no new slices now; empty if it can.
    why: str = ""
    #: When the condition in `why` ends; None if that time is unknown, or if there is no condition.
    until: datetime | None = None
    #: True if the group gets no new slices for waiting gangs because too many of its slices were
    #: short-lived. If the group has fewer than `min_slices` slices, it still requests the missing
    #: ones, but slowly (`CHURNED_PER_MINUTE`).
    churned: bool = False

    @property
    def turns_away(self) -> bool:
        """Whether the limit sends waiting gangs to the next group."""
        return self.state in (Availability.QUOTA_EXCEEDED, Availability.BACKOFF)

    @property
    def holds_up(self) -> bool:
        """Whether the limit makes waiting gangs wait for this group."""
        return self.state in (Availability.REQUESTING, Availability.COOLDOWN)


def kind_of(group: ScaleGroup) -> str:
    """Returns the platform's kind of the group's slices. A stock-out of one group holds for all
    groups of the same kind.

    Each group of existing machines is a kind of its own, because it has its own pool of machines.
    """
    tier = "preemptible" if group.preemptible else "on-demand"
    machine = (
        group.name
        if group.type is SliceType.MANUAL_VM
        else group.accelerator_variant or group.machine_type
    )
    return f"{group.type}:{machine}:{tier}"


def out_of_stock(memory: Memory, now: datetime) -> StockOuts:
    """Returns the zones that are out of stock now, by zone and kind."""
    return {(each.zone, each.kind): each for each in memory.stocked_out if each.until > now}


def churn(lives: Iterable[tuple[datetime, bool]], now: datetime) -> Churn:
    """Counts the short lifetimes among the recent slice ends of a group."""
    recent = [long for ended, long in lives if now - ended < CHURN_WINDOW]
    return Churn(recent.count(False), len(recent))


def churn_eases(lives: Sequence[tuple[datetime, bool]], now: datetime) -> datetime | None:
    """Returns when the factor on growth rises because old slice ends leave `CHURN_WINDOW`; None if
    growth is not slowed down.
    """
    level = churn(lives, now).factor
    ends = sorted(ended + CHURN_WINDOW for ended, _ in lives)
    return next((end for end in ends if end > now and churn(lives, end).factor > level), None)


def most_per_minute(group: ScaleGroup, remembered: GroupMemory, now: datetime) -> int:
    """Returns how many slices may be requested from the group in a minute."""
    rate, factor = group.pace.scale_ups_per_minute, churn(remembered.lives, now).factor
    return max(min(rate, 1), int(rate * factor)) if factor else 0


def within_minute(times: Iterable[datetime], now: datetime) -> tuple[datetime, ...]:
    """Returns the times of the last minute, which count for a rate."""
    return tuple(time for time in times if now - time < MINUTE)


def next_token(times: Iterable[datetime], most: int, now: datetime) -> datetime | None:
    """Returns when the limit `most` per minute allows one more action; None if it allows one now,
    or never.
    """
    recent = sorted(within_minute(times, now))
    return recent[len(recent) - most] + MINUTE if 0 < most <= len(recent) else None


def group_availability(
    group: ScaleGroup,
    remembered: GroupMemory,
    stock: StockOuts,
    requested: Iterable[SliceFacts],
    total: int,
    now: datetime,
    *,
    paused: bool = False,
    used_up: Mapping[str, UsedUp] = MappingProxyType({}),
) -> GroupAvailability:
    """Returns the group's availability. If several limits hold, the first in the order of
    `Availability` counts.

    Args:
        requested: the group's slices whose requests the platform has not answered yet.
        total: the number of the group's slices in any state.
        paused: whether an operator has paused placement on the group's hosts.
        used_up: the group's zones in which a quota is used up, each with the quota.
    """
    return (
        _paused(paused)
        or _quota_used_up(group, remembered, used_up, now)
        or _backing_off(remembered, now)
        or _churning(remembered, now)
        or _without_stock(group, stock, used_up)
        or _unanswered(group, requested, now)
        or _cooling_down(group, remembered, now)
        or _at_max(group, total)
        or GroupAvailability(Availability.AVAILABLE)
    )


def _paused(paused: bool) -> GroupAvailability | None:
    if not paused:
        return None
    return GroupAvailability(Availability.BACKOFF, "paused: its hosts accept no new tasks")


def _quota_used_up(
    group: ScaleGroup, remembered: GroupMemory, used_up: Mapping[str, UsedUp], now: datetime
) -> GroupAvailability | None:
    if (until := remembered.quota_until) is not None and until > now:
        reason = f": {remembered.quota_reason}" if remembered.quota_reason else ""
        why = f"quota used up, retried {clock(until)}{reason}"
        return GroupAvailability(Availability.QUOTA_EXCEEDED, why, until)
    if len(used_up) == len(group.zones):
        return GroupAvailability(Availability.QUOTA_EXCEEDED, *_nowhere((), used_up))
    return None


def _backing_off(remembered: GroupMemory, now: datetime) -> GroupAvailability | None:
    until, failures = remembered.backoff_until, remembered.failures
    if until is None or until <= now:
        return None
    if remembered.stopped:
        failed = f"stopped after {failures} slices in a row whose agents never reported"
        retried = f"retried {clock(until)} or when the configuration is reloaded"
    else:
        failed = f"failed {failures} times in a row" if failures > 1 else "failed"
        retried = f"retried {clock(until)}"
    why = f"{failed}, {retried}: {remembered.backoff_reason}"
    return GroupAvailability(Availability.BACKOFF, why, until)


def _churning(remembered: GroupMemory, now: datetime) -> GroupAvailability | None:
    lives = churn(remembered.lives, now)
    if lives.factor:
        return None
    until = churn_eases(remembered.lives, now)
    why = (
        f"{lives.short} of {lives.of} slices were lost within {format_duration(SHORT_LIFETIME)}"
        f" of being ready, retried {clock(until) if until else 'later'}"
    )
    return GroupAvailability(Availability.BACKOFF, why, until, churned=True)


def _without_stock(
    group: ScaleGroup, stock: StockOuts, used_up: Mapping[str, UsedUp]
) -> GroupAvailability | None:
    kind = kind_of(group)
    empty = [
        out
        for zone in group.zones
        if zone not in used_up and (out := stock.get((zone, kind))) is not None
    ]
    if len(empty) + len(used_up) < len(group.zones):
        return None
    return GroupAvailability(Availability.BACKOFF, *_nowhere(empty, used_up))


def _unanswered(
    group: ScaleGroup, requested: Iterable[SliceFacts], now: datetime
) -> GroupAvailability | None:
    timeout = group.pace.requesting_timeout
    waiting = [each for each in requested if each.requested_at + timeout > now]
    if not waiting:
        return None
    last = max(waiting, key=lambda each: (each.requested_at, each.id))
    why = (
        f"requested slice {last.id} {format_duration(now - last.requested_at)} ago, the platform"
        " has not answered yet"
    )
    return GroupAvailability(Availability.REQUESTING, why, last.requested_at + timeout)


def _cooling_down(
    group: ScaleGroup, remembered: GroupMemory, now: datetime
) -> GroupAvailability | None:
    until = remembered.cooldown_until
    if until is None or until <= now:
        return None
    delay = format_duration(group.pace.scale_up_delay)
    why = f"grew less than scale_up_delay {delay} ago, can grow again {clock(until)}"
    return GroupAvailability(Availability.COOLDOWN, why, until)


def _at_max(group: ScaleGroup, total: int) -> GroupAvailability | None:
    if total < group.max_slices:
        return None
    return GroupAvailability(Availability.AT_MAX, group.limit_reached)


def _nowhere(empty: Sequence[StockedOut], used_up: Mapping[str, UsedUp]) -> tuple[str, datetime]:
    """Returns why no zone is left, and when the first zone can be tried again."""
    causes = dict.fromkeys(
        (*map(describe_stock_out, empty), *map(describe_used_up, used_up.values()))
    )
    return "; ".join(causes), min(
        (*(out.until for out in empty), *(quota.until for quota in used_up.values()))
    )


def clock(when: datetime) -> str:
    """Formats a time for a reason."""
    return f"at {when:%H:%M:%S} UTC"


def format_times(times: int) -> str:
    """Returns `once` or `3 times`."""
    return "once" if times == 1 else f"{times} times"


def describe_used_up(quota: UsedUp) -> str:
    """Describes a used-up quota: where it counts, when it is tried again, and the reason."""
    where = "" if quota.scope == ANYWHERE else f" in {quota.scope}"
    return f"quota used up{where}, retried {clock(quota.until)}: {quota.reason}"


def describe_stock_out(out: StockedOut) -> str:
    """Describes a stock-out: the zone or the reason, when the zone is tried again, and how often it
    was tried.
    """
    if out.reason:
        return f"{out.reason}, tried {format_times(out.times)}, again {clock(out.until)}"
    return (
        f"out of stock in {out.zone} until {out.until:%H:%M:%S} UTC, tried"
        f" {format_times(out.times)}"
    )
