"""Decides whether slices can be requested from a scale group now, and what the outcome of a slice
changes about that.

Four independent conditions stop requests: a used-up quota, a zone without stock, slices that fail
while they are provisioned, and short-lived slices. The end of one condition does not end another.

A quota that counts in a zone or region does not stop requests in the group's other zones
(`iris.autoscaling.quotas`).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from iris.autoscaling import quotas, sizes
from iris.model.slice.provisioning import ANYWHERE, SliceFault
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.model.slice.scaling import Action, Availability, GroupMemory, Memory, StockedOut, UsedUp
from iris.model.slice.status import SliceFacts, SliceState
from iris.model.units import format_duration

#: Number of actions that are kept, and of slice ends that are kept for each group.
MOST_ACTIONS = 100
MOST_LIFETIMES = 100
#: The period over which rates are counted.
MINUTE = timedelta(minutes=1)
#: A zone whose last block ended longer ago than this starts again with the first delay.
FORGOTTEN = timedelta(hours=1)

#: The period in which slice ends count, how many are needed to judge, and the limits of a short and
#: of a long lifetime.
CHURN_WINDOW = timedelta(minutes=30)
CHURN_SAMPLES = 3
SHORT_LIFETIME = timedelta(minutes=5)
LONG_LIFETIME = timedelta(minutes=10)
#: (share of short lifetimes, factor on the group's rate of growth), the highest share first.
CHURN_LEVELS = ((0.8, 0.0), (0.5, 0.1), (0.2, 0.5))
#: From this share of short lifetimes on, idle slices are kept: the group might not get them back.
CHURN_KEEPS = 0.5

#: After this many slices in a row whose agents never reported, the group is stopped: what the
#: slices start with is wrong. Then it tries one slice per `BROKEN_PAUSE`.
BREAKS_AFTER = 5
BROKEN_PAUSE = timedelta(hours=1)

#: Faults through which an existing slice is lost.
LOST = frozenset({SliceFault.PREEMPTED, SliceFault.HOST_LOST, SliceFault.VANISHED})
#: Slices that die within this time of each other count as one death. They have one cause, such as a
#: wave of preemptions or a power cut.
ONE_MOMENT = timedelta(minutes=1)
_LEAVING = frozenset({SliceState.DRAINING, SliceState.DELETING})
#: Updates of a group's failure memory: after a success, and when a stopped group is to be tried
#: once more.
_WELL = {
    "failures": 0,
    "failed_at": None,
    "backoff_until": None,
    "backoff_reason": "",
    "stopped": False,
}
_TRY = {"backoff_until": None, "stopped": False}

Stock = Mapping[tuple[str, str], StockedOut]


class Churn(NamedTuple):
    """The number of short-lived slices among a group's recent ones."""

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
    """The availability of a group for new slices; if it is limited, the reason and the time until
    which it is.
    """

    state: Availability
    why: str = ""
    until: datetime | None = None
    #: The reason is that slices were short-lived. `min_slices` is restored nevertheless, but
    #: slowly.
    churned: bool = False

    @property
    def turns_away(self) -> bool:
        """Returns whether demand goes to the next group because of it."""
        return self.state in (Availability.QUOTA_EXCEEDED, Availability.BACKOFF)

    @property
    def holds_up(self) -> bool:
        """Returns whether demand waits because of it."""
        return self.state in (Availability.REQUESTING, Availability.COOLDOWN)


def kind_of(group: ScaleGroup) -> str:
    """Returns the platform's kind of the group's slices. Groups of one kind share what is known
    about stock-outs.

    Each group of existing machines has a pool of its own, which no other group uses up.
    """
    tier = "preemptible" if group.preemptible else "on-demand"
    machine = (
        group.name
        if group.type is SliceType.MANUAL_VM
        else group.accelerator_variant or group.machine_type
    )
    return f"{group.type}:{machine}:{tier}"


def out_of_stock(memory: Memory, now: datetime) -> Stock:
    """Returns the zones that are out of stock now, by zone and kind."""
    return {(each.zone, each.kind): each for each in memory.stocked_out if each.until > now}


def churn(lives: Iterable[tuple[datetime, bool]], now: datetime) -> Churn:
    """Counts the short lifetimes among the recent slice ends of a group."""
    recent = [long for ended, long in lives if now - ended < CHURN_WINDOW]
    return Churn(recent.count(False), len(recent))


def churn_eases(lives: Sequence[tuple[datetime, bool]], now: datetime) -> datetime | None:
    """Returns when ageing alone lowers the share of short lifetimes to the next better level; None:
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
    """Returns the times that count for a rate."""
    return tuple(time for time in times if now - time < MINUTE)


def next_token(times: Iterable[datetime], most: int, now: datetime) -> datetime | None:
    """Returns when the limit per minute allows one more action; None: now, or never."""
    recent = sorted(within_minute(times, now))
    return recent[len(recent) - most] + MINUTE if 0 < most <= len(recent) else None


def group_availability(
    group: ScaleGroup,
    remembered: GroupMemory,
    stock: Stock,
    requested: Iterable[SliceFacts],
    total: int,
    now: datetime,
    *,
    paused: bool = False,
    used_up: Mapping[str, UsedUp] = MappingProxyType({}),
) -> GroupAvailability:
    """Returns the group's availability: the first that holds, in the order of `Availability`.

    Args:
        used_up: the group's zones in which a quota is used up.
        requested: the group's slices that the platform has not answered yet.
        total: the number of the group's slices in any state.
        paused: an operator has paused placement on the group's hosts.
    """
    pace = group.pace
    if paused:
        return GroupAvailability(Availability.BACKOFF, "paused: its hosts accept no new tasks")
    if (until := remembered.quota_until) is not None and until > now:
        return GroupAvailability(
            Availability.QUOTA_EXCEEDED,
            _because(f"quota used up, retried {clock(until)}", remembered),
            until,
        )
    if len(used_up) == len(group.zones):
        return GroupAvailability(Availability.QUOTA_EXCEEDED, *_nowhere((), used_up))
    if (until := remembered.backoff_until) is not None and until > now:
        if remembered.stopped:
            many = (
                f"stopped after {remembered.failures} slices in a row whose agents never reported"
            )
            why = (
                f"{many}, retried {clock(until)} or when the configuration is reloaded:"
                f" {remembered.backoff_reason}"
            )
            return GroupAvailability(Availability.BACKOFF, why, until)
        times = (
            f"failed {remembered.failures} times in a row" if remembered.failures > 1 else "failed"
        )
        return GroupAvailability(
            Availability.BACKOFF,
            f"{times}, retried {clock(until)}: {remembered.backoff_reason}",
            until,
        )
    lives = churn(remembered.lives, now)
    if not lives.factor:
        until = churn_eases(remembered.lives, now)
        short = (
            f"{lives.short} of {lives.of} slices were lost within {format_duration(SHORT_LIFETIME)}"
            " of being ready"
        )
        why = f"{short}, retried {clock(until) if until else 'later'}"
        return GroupAvailability(Availability.BACKOFF, why, until, churned=True)
    kind = kind_of(group)
    empty = [
        out
        for zone in group.zones
        if zone not in used_up and (out := stock.get((zone, kind))) is not None
    ]
    if len(empty) + len(used_up) == len(group.zones):
        return GroupAvailability(Availability.BACKOFF, *_nowhere(empty, used_up))
    waiting = [each for each in requested if each.requested_at + pace.requesting_timeout > now]
    if waiting:
        last = max(waiting, key=lambda each: (each.requested_at, each.id))
        why = (
            f"requested slice {last.id} {format_duration(now - last.requested_at)} ago, the"
            " platform has not answered yet"
        )
        return GroupAvailability(
            Availability.REQUESTING, why, last.requested_at + pace.requesting_timeout
        )
    if (until := remembered.cooldown_until) is not None and until > now:
        why = (
            f"grew less than scale_up_delay {format_duration(pace.scale_up_delay)} ago, can grow"
            f" again {clock(until)}"
        )
        return GroupAvailability(Availability.COOLDOWN, why, until)
    if total >= group.max_slices:
        return GroupAvailability(Availability.AT_MAX, group.limit_reached)
    return GroupAvailability(Availability.AVAILABLE)


def learn(
    memory: Memory,
    group: ScaleGroup | None,
    facts: SliceFacts,
    before: SliceFacts | None,
    now: datetime,
) -> Memory:
    """Returns the memory after a slice's change of state.

    Args:
        group: None: the group is no longer in the configuration.
        before: the slice before the change; None: it was unknown.
    """
    if before is not None and before.state is facts.state:
        return memory
    if facts.state is SliceState.READY and group is not None:
        return _succeeded(memory, group, facts)
    if facts.state is SliceState.FAILED:
        return _failed(memory, group, facts, before, now)
    if facts.state is SliceState.DELETED and group is not None:
        return _returned(quotas.freed(memory, kind_of(group), facts, now), group, facts)
    return memory


def record(memory: Memory, *actions: Action) -> Memory:
    """Returns the memory with these actions; the oldest actions are dropped."""
    return (
        memory.model_copy(update={"actions": (*memory.actions, *actions)[-MOST_ACTIONS:]})
        if actions
        else memory
    )


def reconfigured(
    memory: Memory, before: Iterable[ScaleGroup], after: Iterable[ScaleGroup]
) -> Memory:
    """Returns the memory after a change of the configuration.

    Failures and sizes of a changed group are forgotten, because it may work now. A stopped group,
    or one whose slices lacked devices, is tried once even if it did not change, because its
    machines' images are not part of the group.
    """
    same, new = {group.name: group for group in before}, {group.name: group for group in after}

    def renewed(name: str, each: GroupMemory) -> GroupMemory:
        if name in new and same.get(name) != new[name]:
            return each.model_copy(update=_WELL | {"sizes": ()})
        each = each.model_copy(update=_TRY) if each.stopped else each
        return sizes.without_missing_devices(each, new[name]) if name in new else each

    return memory.model_copy(
        update={"groups": {name: renewed(name, each) for name, each in memory.groups.items()}}
    )


def named(memory: Memory, slice_ids: Sequence[str]) -> Memory:
    """Returns the memory with the ids of the slices that were just created, in the order of their
    actions.
    """
    actions, ids = list(memory.actions), list(slice_ids)
    for number in range(len(actions) - 1, -1, -1):
        if ids and actions[number].what == "scale_up" and not actions[number].slice_id:
            actions[number] = actions[number].model_copy(update={"slice_id": ids.pop()})
    return memory.model_copy(update={"actions": tuple(actions)})


def _succeeded(memory: Memory, group: ScaleGroup, facts: SliceFacts) -> Memory:
    remembered = memory.groups.get(group.name, GroupMemory())
    well = sizes.record(remembered, facts).model_copy(update=_WELL)
    there = (facts.zone, kind_of(group))
    stock = tuple(each for each in memory.stocked_out if (each.zone, each.kind) != there)
    return memory.model_copy(
        update={"groups": memory.groups | {group.name: well}, "stocked_out": stock}
    )


def _failed(
    memory: Memory,
    group: ScaleGroup | None,
    facts: SliceFacts,
    before: SliceFacts | None,
    now: datetime,
) -> Memory:
    fault = facts.fault or SliceFault.PLATFORM
    what = {SliceFault.QUOTA: "quota_exceeded", SliceFault.STOCK_OUT: "stock_out"}.get(
        fault, "lost" if fault in LOST else "failed"
    )
    reason = f"{fault}: {facts.reason}".removesuffix(": ")
    memory = record(
        memory, Action(at=now, group=facts.group, what=what, slice_id=facts.id, reason=reason)
    )
    if group is None or (before is not None and before.state in _LEAVING):
        return memory
    remembered = memory.groups.get(group.name, GroupMemory())
    if facts.ready_at is not None:
        # An agent that was stopped on purpose says nothing about its machine.
        remembered = (
            remembered
            if fault is SliceFault.HOST_LEFT
            else _record_lifetime(remembered, now - facts.ready_at, now)
        )
    elif fault is SliceFault.QUOTA and facts.quota_scope:
        memory = quotas.used_up(memory, kind_of(group), facts, now + group.pace.quota_timeout)
        # As with a zone without stock: the group has not grown.
        remembered = remembered.model_copy(update={"cooldown_until": None})
    elif fault is SliceFault.QUOTA:
        until = now + group.pace.quota_timeout
        remembered = remembered.model_copy(
            update={"quota_until": until, "quota_reason": facts.reason}
        )
    elif fault is SliceFault.STOCK_OUT:
        memory = _stock_out(memory, group, facts, now)
        # The group has not grown: the next zone may be tried at once.
        remembered = remembered.model_copy(update={"cooldown_until": None})
    else:
        remembered = _backed_off(remembered, group, facts, fault, now)
    return memory.model_copy(update={"groups": memory.groups | {group.name: remembered}})


def _record_lifetime(remembered: GroupMemory, lifetime: timedelta, now: datetime) -> GroupMemory:
    short = lifetime < SHORT_LIFETIME
    if not short and lifetime < LONG_LIFETIME:
        return remembered
    if short and any(not long and now - when < ONE_MOMENT for when, long in remembered.lives):
        return remembered  # both died of the same cause
    lives = tuple(each for each in remembered.lives if now - each[0] < CHURN_WINDOW)
    return remembered.model_copy(
        update={"lives": (*lives, (now, lifetime >= LONG_LIFETIME))[-MOST_LIFETIMES:]}
    )


def _stock_out(memory: Memory, group: ScaleGroup, facts: SliceFacts, now: datetime) -> Memory:
    kind, times = kind_of(group), 1
    others = []
    for each in memory.stocked_out:
        if (each.zone, each.kind) != (facts.zone, kind):
            others.append(each)
        elif facts.requested_at < each.at:
            return memory  # requested before the stock-out was known: the same event
        elif now - each.until < FORGOTTEN:
            times = each.times + 1
    delay = _doubled(group.pace.stockout_delay, times, group.pace.max_stockout_delay)
    reason = facts.reason if group.type is SliceType.MANUAL_VM else ""
    out = StockedOut(
        zone=facts.zone, kind=kind, until=now + delay, times=times, at=now, reason=reason
    )
    return memory.model_copy(update={"stocked_out": (*others, out)})


def _returned(memory: Memory, group: ScaleGroup, facts: SliceFacts) -> Memory:
    """Returns the memory after a slice of the group was deleted: its pool, if it has one, has a
    free machine again.
    """
    if group.type is not SliceType.MANUAL_VM or facts.ready_at is None:
        return memory
    kind = kind_of(group)
    return memory.model_copy(
        update={"stocked_out": tuple(each for each in memory.stocked_out if each.kind != kind)}
    )


def _backed_off(
    remembered: GroupMemory,
    group: ScaleGroup,
    facts: SliceFacts,
    fault: SliceFault,
    now: datetime,
) -> GroupMemory:
    known = remembered.failed_at is not None and facts.requested_at < remembered.failed_at
    if known and fault is not SliceFault.BAD_CONFIG:
        return remembered  # requested before the last failure was known: the same failure
    failures = remembered.failures + (not known)
    delay, reason = (
        _doubled(group.pace.backoff, failures, group.pace.max_backoff),
        facts.reason or fault.value,
    )
    if fault is SliceFault.BAD_CONFIG:
        delay, reason = (
            group.pace.max_backoff,
            f"{reason}; correct scale group {group.name} in the configuration and reload it",
        )
    stopped = fault is SliceFault.INIT_TIMEOUT and failures >= BREAKS_AFTER
    until = now + (max(delay, BROKEN_PAUSE) if stopped else delay)
    update = {
        "failures": failures,
        "failed_at": now,
        "backoff_until": until,
        "backoff_reason": reason,
        "stopped": stopped,
    }
    return remembered.model_copy(update=update)


def _doubled(first: timedelta, times: int, most: timedelta) -> timedelta:
    return min(first * (1 << min(times - 1, 20)), most)


def _nowhere(empty: Sequence[StockedOut], used_up: Mapping[str, UsedUp]) -> tuple[str, datetime]:
    """Returns why no zone is left, and when the first zone can be tried again."""
    causes = dict.fromkeys(
        (*map(describe_stock_out, empty), *map(describe_used_up, used_up.values()))
    )
    return "; ".join(causes), min(
        (*(out.until for out in empty), *(quota.until for quota in used_up.values()))
    )


def _because(text: str, remembered: GroupMemory) -> str:
    return f"{text}: {remembered.quota_reason}" if remembered.quota_reason else text


def clock(when: datetime) -> str:
    """Formats a time for a reason."""
    return f"at {when:%H:%M:%S} UTC"


def format_times(times: int) -> str:
    """Returns `once` or `3 times`."""
    return "once" if times == 1 else f"{times} times"


def describe_used_up(quota: UsedUp) -> str:
    """Describes a used-up quota: where it counts, until when it is assumed, and its name."""
    where = "" if quota.scope == ANYWHERE else f" in {quota.scope}"
    return f"quota used up{where}, retried {clock(quota.until)}: {quota.reason}"


def describe_stock_out(out: StockedOut) -> str:
    """Describes a stock-out: where or why, until when it is assumed, and how often the zone was
    tried.
    """
    if out.reason:
        return f"{out.reason}, tried {format_times(out.times)}, again {clock(out.until)}"
    return (
        f"out of stock in {out.zone} until {out.until:%H:%M:%S} UTC, tried"
        f" {format_times(out.times)}"
    )
