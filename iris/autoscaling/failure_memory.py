"""The autoscaler's memory of what happened to slices: stock-outs, used-up quotas, failures and
lifetimes.

`learn` changes the memory when a slice changes its state. `iris.autoscaling.availability` decides
from the memory whether a group may request slices.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from iris.autoscaling import availability, quotas, sizes
from iris.autoscaling.availability import kind_of
from iris.model.slice.provisioning import SliceFault
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.model.slice.scaling import Action, GroupMemory, Memory, StockedOut
from iris.model.slice.status import SliceFacts, SliceState

#: The maximum number of actions of the autoscaler that are remembered.
MOST_ACTIONS = 100
#: The maximum number of lost slices whose lifetimes are remembered for each group.
MOST_LIFETIMES = 100
#: If a zone's last stock-out ended longer ago than this, the next stock-out delays requests in the
#: zone only by the first delay (`stockout_delay`) again.
FORGOTTEN = timedelta(hours=1)

#: A group is stopped after this many slices in a row whose agents never reported: the image or the
#: start-up script of the slices is wrong.
BREAKS_AFTER = 5
#: A stopped group requests no slices for at least this long. Then it tests whether its slices work
#: again. If their agents never report either, it is stopped again.
BROKEN_PAUSE = timedelta(hours=1)

#: The faults that mean that an existing slice was lost.
LOST = frozenset({SliceFault.PREEMPTED, SliceFault.HOST_LOST, SliceFault.VANISHED})
#: Losses of short-lived slices within this time of each other count as one loss. They have one
#: cause, such as a wave of preemptions or a power cut.
ONE_MOMENT = timedelta(minutes=1)
#: The states of slices that are deleted on purpose. The loss of a slice in these states does not
#: count as a failure.
_LEAVING = frozenset({SliceState.DRAINING, SliceState.DELETING})
#: The fields of a group's memory that are reset when a slice becomes ready, or when the group's
#: configuration changes, with their new values.
_WELL = {
    "failures": 0,
    "failed_at": None,
    "backoff_until": None,
    "backoff_reason": "",
    "stopped": False,
}
#: The fields of a stopped group's memory that are reset when the configuration is loaded again, so
#: that the group may request slices at once.
_TRY = {"backoff_until": None, "stopped": False}


def learn(
    memory: Memory,
    group: ScaleGroup | None,
    facts: SliceFacts,
    before: SliceFacts | None,
    now: datetime,
) -> Memory:
    """Returns the memory after a slice's change of state.

    Args:
        group: the slice's group; None if it is no longer in the configuration.
        before: the slice before the change; None if it was unknown.
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
    """Returns the memory with these actions. The oldest actions beyond the limit are dropped."""
    return (
        memory.model_copy(update={"actions": (*memory.actions, *actions)[-MOST_ACTIONS:]})
        if actions
        else memory
    )


def reconfigured(
    memory: Memory, before: Iterable[ScaleGroup], after: Iterable[ScaleGroup]
) -> Memory:
    """Returns the memory after a change of the configuration.

    Failures and sizes of a changed group are forgotten, because the group may work now. A stopped
    group, or a group whose slices lacked devices, is tried again even if it did not change: the
    image of its machines is not part of the configuration and may be new.
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
        # No cooldown: nothing was created, and the quota of another zone may have capacity.
        remembered = remembered.model_copy(update={"cooldown_until": None})
    elif fault is SliceFault.QUOTA:
        until = now + group.pace.quota_timeout
        remembered = remembered.model_copy(
            update={"quota_until": until, "quota_reason": facts.reason}
        )
    elif fault is SliceFault.STOCK_OUT:
        memory = _stock_out(memory, group, facts, now)
        # No cooldown: nothing was created, and the next zone may be tried at once.
        remembered = remembered.model_copy(update={"cooldown_until": None})
    else:
        remembered = _backed_off(remembered, group, facts, fault, now)
    return memory.model_copy(update={"groups": memory.groups | {group.name: remembered}})


def _record_lifetime(remembered: GroupMemory, lifetime: timedelta, now: datetime) -> GroupMemory:
    short = lifetime < availability.SHORT_LIFETIME
    if not short and lifetime < availability.LONG_LIFETIME:
        return remembered
    if short and any(not long and now - when < ONE_MOMENT for when, long in remembered.lives):
        return remembered  # the slice was lost with another one, by the same cause
    lives = tuple(each for each in remembered.lives if now - each[0] < availability.CHURN_WINDOW)
    return remembered.model_copy(
        update={"lives": (*lives, (now, lifetime >= availability.LONG_LIFETIME))[-MOST_LIFETIMES:]}
    )


def _stock_out(memory: Memory, group: ScaleGroup, facts: SliceFacts, now: datetime) -> Memory:
    kind, times = kind_of(group), 1
    others = []
    for each in memory.stocked_out:
        if (each.zone, each.kind) != (facts.zone, kind):
            others.append(each)
        elif facts.requested_at < each.at:
            return memory  # requested before the stock-out was known, so it is the same stock-out
        elif now - each.until < FORGOTTEN:
            times = each.times + 1
    delay = _doubled(group.pace.stockout_delay, times, group.pace.max_stockout_delay)
    reason = facts.reason if group.type is SliceType.MANUAL_VM else ""
    out = StockedOut(
        zone=facts.zone, kind=kind, until=now + delay, times=times, at=now, reason=reason
    )
    return memory.model_copy(update={"stocked_out": (*others, out)})


def _returned(memory: Memory, group: ScaleGroup, facts: SliceFacts) -> Memory:
    """Returns the memory after a slice of the group was deleted. If the group has a pool of
    machines, the pool has a free machine again.
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
        return remembered  # requested before the last failure was known, so it is the same failure
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
