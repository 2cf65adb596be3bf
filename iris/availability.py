"""Whether slices can be asked of a scale group now, and what the fate of its slices teaches about that.

Four things keep the autoscaler away from a group, and they never mix: a quota that is used up, a zone without stock, slices that
fail on the way, and slices that die young. What ends one of them says nothing of the others.

A quota that counts in a zone or region leaves the group's other zones to ask in (`iris.quotas`).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from iris import quotas
from iris.machines import ANYWHERE, SliceFault
from iris.scale_groups import ScaleGroup
from iris.scale_plan import Action, Availability, GroupMemory, Memory, StockedOut, UsedUp
from iris.slices import SliceFacts, SliceState
from iris.units import format_duration

#: Actions that are kept, and ends of slices in each group.
MOST_ACTIONS = 100
MOST_LIVES = 100
#: The time over which rates are counted.
MINUTE = timedelta(minutes=1)
#: A zone that was out of stock longer ago than this starts anew.
FORGOTTEN = timedelta(hours=1)

#: The ends of slices that count, how many it takes to judge, and what is a life too short and long enough.
CHURN_WINDOW = timedelta(minutes=30)
CHURN_SAMPLES = 3
SHORT_LIFE = timedelta(minutes=5)
LONG_LIFE = timedelta(minutes=10)
#: From this share of short lives on a group grows at this share of its rate, the worst first.
CHURN_LEVELS = ((0.8, 0.0), (0.5, 0.1), (0.2, 0.5))
#: From this share on nothing idle is given back: it would have to be fought for again.
CHURN_KEEPS = 0.5

#: So many slices in a row whose agents never came: what they start with is wrong. From then on one is tried in so long a time.
BREAKS_AFTER = 5
BROKEN_PAUSE = timedelta(hours=1)

#: How slices are lost that were there.
LOST = frozenset({SliceFault.PREEMPTED, SliceFault.HOST_LOST, SliceFault.VANISHED})
#: Slices that die within so short a time of one another died of one thing: a storm of preemptions, a power cut.
ONE_MOMENT = timedelta(minutes=1)
_LEAVING = frozenset({SliceState.DRAINING, SliceState.DELETING})
#: What is remembered of failures of a group that is well, and of one that is to be tried once more.
_WELL = {"failures": 0, "failed_at": None, "backoff_until": None, "backoff_reason": "", "stopped": False}
_TRY = {"backoff_until": None, "stopped": False}

Stock = Mapping[tuple[str, str], StockedOut]


class Churn(NamedTuple):
    """How many of a group's slices have died young lately."""

    short: int
    of: int

    @property
    def share(self) -> float:
        return self.short / self.of if self.of >= CHURN_SAMPLES else 0.0

    @property
    def factor(self) -> float:
        """By how much the group's growth is slowed down."""
        return next((factor for share, factor in CHURN_LEVELS if self.share >= share), 1.0)


class Standing(NamedTuple):
    """Whether slices can be asked of a group; if not, why, and until when."""

    availability: Availability
    why: str = ""
    until: datetime | None = None
    #: It is because slices have died young: `min_slices` is restored all the same, but slowly.
    churned: bool = False

    @property
    def turns_away(self) -> bool:
        """Whether demand goes to the next group because of it."""
        return self.availability in (Availability.QUOTA_EXCEEDED, Availability.BACKOFF)

    @property
    def holds_up(self) -> bool:
        """Whether demand waits because of it."""
        return self.availability in (Availability.REQUESTING, Availability.COOLDOWN)


def kind_of(group: ScaleGroup) -> str:
    """What the group's slices are to the platform: a zone that has none for one group has none for another of that kind."""
    tier = "preemptible" if group.preemptible else "on-demand"
    return f"{group.type}:{group.accelerator_variant or group.machine_type}:{tier}"


def out_of_stock(memory: Memory, now: datetime) -> Stock:
    """What no zone has now, by zone and kind."""
    return {(each.zone, each.kind): each for each in memory.stocked_out if each.until > now}


def churn(lives: Iterable[tuple[datetime, bool]], now: datetime) -> Churn:
    """What the ends of a group's slices say."""
    recent = [long for ended, long in lives if now - ended < CHURN_WINDOW]
    return Churn(recent.count(False), len(recent))


def churn_eases(lives: Sequence[tuple[datetime, bool]], now: datetime) -> datetime | None:
    """When the share of short lives is low enough for the next better level, by age alone; None: it is not high."""
    level = churn(lives, now).factor
    ends = sorted(ended + CHURN_WINDOW for ended, _ in lives)
    return next((end for end in ends if end > now and churn(lives, end).factor > level), None)


def most_per_minute(group: ScaleGroup, remembered: GroupMemory, now: datetime) -> int:
    """How many slices may be asked of the group in a minute."""
    rate, factor = group.pace.scale_ups_per_minute, churn(remembered.lives, now).factor
    return max(min(rate, 1), int(rate * factor)) if factor else 0


def within_minute(times: Iterable[datetime], now: datetime) -> tuple[datetime, ...]:
    """Those that count for a rate."""
    return tuple(time for time in times if now - time < MINUTE)


def next_token(times: Iterable[datetime], most: int, now: datetime) -> datetime | None:
    """When one more is allowed than has been done within the last minute; None: never, or now."""
    recent = sorted(within_minute(times, now))
    return recent[len(recent) - most] + MINUTE if 0 < most <= len(recent) else None


def standing(
    group: ScaleGroup,
    remembered: GroupMemory,
    stock: Stock,
    requested: Iterable[SliceFacts],
    total: int,
    now: datetime,
    *,
    paused: bool = False,
    used_up: Mapping[str, UsedUp] = MappingProxyType({}),
) -> Standing:
    """The first thing that holds, in the order of `Availability`.

    Args:
        used_up: its zones in which a quota has no room.
        requested: its slices of which the platform has not said anything yet.
        total: its slices, whatever their state.
        paused: an operator lets its hosts take nothing new.
    """
    pace = group.pace
    if paused:
        return Standing(Availability.BACKOFF, "paused: its hosts take nothing new")
    if (until := remembered.quota_until) is not None and until > now:
        return Standing(Availability.QUOTA_EXCEEDED, _because(f"quota used up, asked again {clock(until)}", remembered), until)
    if len(used_up) == len(group.zones):
        return Standing(Availability.QUOTA_EXCEEDED, *_nowhere((), used_up))
    if (until := remembered.backoff_until) is not None and until > now:
        if remembered.stopped:
            many = f"stopped after {remembered.failures} slices in a row whose agents did not come"
            why = f"{many}, tried again {clock(until)} or when the configuration is reloaded: {remembered.backoff_reason}"
            return Standing(Availability.BACKOFF, why, until)
        times = f"failed {remembered.failures} times in a row" if remembered.failures > 1 else "failed"
        return Standing(Availability.BACKOFF, f"{times}, tried again {clock(until)}: {remembered.backoff_reason}", until)
    lives = churn(remembered.lives, now)
    if not lives.factor:
        until = churn_eases(remembered.lives, now)
        short = f"{lives.short} of {lives.of} slices died within {format_duration(SHORT_LIFE)} of being ready"
        told = f"{short}, tried again {clock(until) if until else 'later'}"
        return Standing(Availability.BACKOFF, told, until, churned=True)
    kind = kind_of(group)
    empty = [out for zone in group.zones if zone not in used_up and (out := stock.get((zone, kind))) is not None]
    if len(empty) + len(used_up) == len(group.zones):
        return Standing(Availability.BACKOFF, *_nowhere(empty, used_up))
    waiting = [each for each in requested if each.requested_at + pace.requesting_timeout > now]
    if waiting:
        last = max(waiting, key=lambda each: (each.requested_at, each.id))
        asked = f"asked for slice {last.id} {format_duration(now - last.requested_at)} ago"
        return Standing(
            Availability.REQUESTING, f"{asked}, no answer yet from the platform", last.requested_at + pace.requesting_timeout
        )
    if (until := remembered.cooldown_until) is not None and until > now:
        why = f"grew less than scale_up_delay {format_duration(pace.scale_up_delay)} ago, may again {clock(until)}"
        return Standing(Availability.COOLDOWN, why, until)
    if total >= group.max_slices:
        return Standing(Availability.AT_MAX, f"at max_slices {group.max_slices}")
    return Standing(Availability.AVAILABLE)


def learn(
    memory: Memory,
    group: ScaleGroup | None,
    facts: SliceFacts,
    before: SliceFacts | None,
    now: datetime,
    *,
    breaks: bool = True,
) -> Memory:
    """What a slice's change of state teaches.

    Args:
        group: None when it is no longer in the configuration.
        before: the slice before the change; None when it was not known.
        breaks: whether a group is stopped whose slices' agents never come; histories of version 0.1 do not have that.
    """
    if before is not None and before.state is facts.state:
        return memory
    if facts.state is SliceState.READY and group is not None:
        return _succeeded(memory, group, facts)
    if facts.state is SliceState.FAILED:
        return _failed(memory, group, facts, before, now, breaks=breaks)
    if facts.state is SliceState.DELETED and group is not None:
        return quotas.freed(memory, kind_of(group), facts, now)
    return memory


def record(memory: Memory, *actions: Action) -> Memory:
    """The memory with these actions, the oldest forgotten."""
    return memory.model_copy(update={"actions": (*memory.actions, *actions)[-MOST_ACTIONS:]}) if actions else memory


def reconfigured(memory: Memory, before: Iterable[ScaleGroup], after: Iterable[ScaleGroup]) -> Memory:
    """The memory after a change of the configuration: what failed in a group that is another one now may work. So may what was
    stopped: an image has no name of its own in a group. It is tried once, and stopped again if that comes to nothing."""
    same = {group.name: group for group in before}
    changed = {group.name for group in after if same.get(group.name) != group}
    groups = {
        name: each.model_copy(update=_WELL) if name in changed else each.model_copy(update=_TRY) if each.stopped else each
        for name, each in memory.groups.items()
    }
    return memory.model_copy(update={"groups": groups})


def named(memory: Memory, slice_ids: Sequence[str]) -> Memory:
    """The memory with the ids that the slices just asked for were given, in the order in which they were."""
    actions, ids = list(memory.actions), list(slice_ids)
    for number in range(len(actions) - 1, -1, -1):
        if ids and actions[number].what == "scale_up" and not actions[number].slice_id:
            actions[number] = actions[number].model_copy(update={"slice_id": ids.pop()})
    return memory.model_copy(update={"actions": tuple(actions)})


def _succeeded(memory: Memory, group: ScaleGroup, facts: SliceFacts) -> Memory:
    remembered = memory.groups.get(group.name, GroupMemory())
    well = remembered.model_copy(update=_WELL)
    there = (facts.zone, kind_of(group))
    stock = tuple(each for each in memory.stocked_out if (each.zone, each.kind) != there)
    return memory.model_copy(update={"groups": memory.groups | {group.name: well}, "stocked_out": stock})


def _failed(
    memory: Memory, group: ScaleGroup | None, facts: SliceFacts, before: SliceFacts | None, now: datetime, *, breaks: bool
) -> Memory:
    fault = facts.fault or SliceFault.PLATFORM
    what = {SliceFault.QUOTA: "quota_exceeded", SliceFault.STOCK_OUT: "stock_out"}.get(
        fault, "lost" if fault in LOST else "failed"
    )
    reason = f"{fault}: {facts.reason}".removesuffix(": ")
    memory = record(memory, Action(at=now, group=facts.group, what=what, slice_id=facts.id, reason=reason))
    if group is None or (before is not None and before.state in _LEAVING):
        return memory
    remembered = memory.groups.get(group.name, GroupMemory())
    if facts.ready_at is not None:
        # Whoever stops an agent has not found the machines bad.
        remembered = remembered if fault is SliceFault.HOST_LEFT else _lived(remembered, now - facts.ready_at, now)
    elif fault is SliceFault.QUOTA and facts.quota_scope:
        memory = quotas.used_up(memory, kind_of(group), facts, now + group.pace.quota_timeout)
        # As with a zone without stock: it has not grown after all.
        remembered = remembered.model_copy(update={"cooldown_until": None})
    elif fault is SliceFault.QUOTA:
        until = now + group.pace.quota_timeout
        remembered = remembered.model_copy(update={"quota_until": until, "quota_reason": facts.reason})
    elif fault is SliceFault.STOCK_OUT:
        memory = _stock_out(memory, group, facts, now)
        # It has not grown after all: the next zone may be asked at once.
        remembered = remembered.model_copy(update={"cooldown_until": None})
    else:
        remembered = _backed_off(remembered, group, facts, fault, now, breaks=breaks)
    return memory.model_copy(update={"groups": memory.groups | {group.name: remembered}})


def _lived(remembered: GroupMemory, life: timedelta, now: datetime) -> GroupMemory:
    short = life < SHORT_LIFE
    if not short and life < LONG_LIFE:
        return remembered
    if short and any(not long and now - when < ONE_MOMENT for when, long in remembered.lives):
        return remembered  # they died of the same thing
    lives = tuple(each for each in remembered.lives if now - each[0] < CHURN_WINDOW)
    return remembered.model_copy(update={"lives": (*lives, (now, life >= LONG_LIFE))[-MOST_LIVES:]})


def _stock_out(memory: Memory, group: ScaleGroup, facts: SliceFacts, now: datetime) -> Memory:
    kind, times = kind_of(group), 1
    others = []
    for each in memory.stocked_out:
        if (each.zone, each.kind) != (facts.zone, kind):
            others.append(each)
        elif facts.requested_at < each.at:
            return memory  # asked for before that was known: the same news
        elif now - each.until < FORGOTTEN:
            times = each.times + 1
    delay = _doubled(group.pace.stockout_delay, times, group.pace.max_stockout_delay)
    out = StockedOut(zone=facts.zone, kind=kind, until=now + delay, times=times, at=now)
    return memory.model_copy(update={"stocked_out": (*others, out)})


def _backed_off(
    remembered: GroupMemory, group: ScaleGroup, facts: SliceFacts, fault: SliceFault, now: datetime, *, breaks: bool
) -> GroupMemory:
    known = remembered.failed_at is not None and facts.requested_at < remembered.failed_at
    if known and fault is not SliceFault.BAD_CONFIG:
        return remembered  # asked for before the last failure was known: the same one
    failures = remembered.failures + (not known)
    delay, reason = _doubled(group.pace.backoff, failures, group.pace.max_backoff), facts.reason or fault.value
    if fault is SliceFault.BAD_CONFIG:
        delay, reason = group.pace.max_backoff, f"{reason}; correct scale group {group.name} in the configuration and reload it"
    stopped = breaks and fault is SliceFault.INIT_TIMEOUT and failures >= BREAKS_AFTER
    until = now + (max(delay, BROKEN_PAUSE) if stopped else delay)
    update = {"failures": failures, "failed_at": now, "backoff_until": until, "backoff_reason": reason, "stopped": stopped}
    return remembered.model_copy(update=update)


def _doubled(first: timedelta, times: int, most: timedelta) -> timedelta:
    return min(first * (1 << min(times - 1, 20)), most)


def _nowhere(empty: Sequence[StockedOut], used_up: Mapping[str, UsedUp]) -> tuple[str, datetime]:
    """Why no zone is left, and when the first is."""
    told = dict.fromkeys((*map(stocked_out_in_words, empty), *map(used_up_in_words, used_up.values())))
    return "; ".join(told), min((*(out.until for out in empty), *(quota.until for quota in used_up.values())))


def _because(text: str, remembered: GroupMemory) -> str:
    return f"{text}: {remembered.quota_reason}" if remembered.quota_reason else text


def clock(when: datetime) -> str:
    """A moment, as it stands in a reason."""
    return f"at {when:%H:%M:%S} UTC"


def times_in_words(times: int) -> str:
    """`once`, `3 times`."""
    return "once" if times == 1 else f"{times} times"


def used_up_in_words(quota: UsedUp) -> str:
    """Where, until when it is believed, and which quota it is."""
    where = "" if quota.scope == ANYWHERE else f" in {quota.scope}"
    return f"quota used up{where}, asked again {clock(quota.until)}: {quota.reason}"


def stocked_out_in_words(out: StockedOut) -> str:
    """Where, until when it is believed, and how often it was tried."""
    return f"stocked out in {out.zone} until {out.until:%H:%M:%S} UTC, tried {times_in_words(out.times)}"
