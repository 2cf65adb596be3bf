"""Makes one decision of the autoscaler about all scale groups, from the slices, the demand and the
memory of past events.

1. The waiting gangs are packed into slices that are being created, and the rest into new slices
   (`iris.autoscaling.packing`).
2. Each group creates slices for its share of the gangs, for `min_slices` and for `buffer_slices`
   (`iris.autoscaling.group_scaler`). It stays within its maximum, its rate and its availability
   (`iris.autoscaling.availability`). If a quota, a failure or the maximum blocks a group, the gangs
   go to the next group. If a request is unanswered or the group has just grown, the gangs wait.
3. Slices that have been idle for long enough, or that exceed the maximum, are deleted
   (`iris.autoscaling.idle_slices`).
4. Every action has a reason, and so has every action that is needed but not possible
   (`iris.autoscaling.explain`). The plan says when this may change without an event.

The module uses no clock and no random numbers: the same input gives the same plan, so it can run
inside a workflow.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime

from iris.autoscaling import explain, sizes
from iris.autoscaling.availability import out_of_stock
from iris.autoscaling.failure_memory import FORGOTTEN, record
from iris.autoscaling.group_scaler import GroupScaler
from iris.autoscaling.inventory import SliceInventory
from iris.autoscaling.packing import DemandResult, pack
from iris.model.slice.scale_groups import Pace, ScaleGroup
from iris.model.slice.scaling import MOST_OUTLOOKS, Action, Create, Drain, Memory, ScalePlan, Wanted
from iris.model.slice.status import SliceFacts, SliceState
from iris.scheduling.placement.catalog import Catalog


def plan(
    groups: Sequence[ScaleGroup],
    slices: Sequence[SliceFacts],
    wanted: Wanted,
    memory: Memory,
    now: datetime,
) -> ScalePlan:
    """Returns which slices to create and to drain, the reasons, and when to evaluate again.

    Args:
        slices: all slices, including slices of groups that are no longer in the configuration.
    """
    catalog = Catalog(sizes.planned_groups(groups, memory.groups, now))
    known = [each for each in slices if each.state is not SliceState.DELETED]
    scalers = _scalers(catalog, groups, known, wanted, memory, now)
    gone = _removed_groups(scalers, known, wanted, now)
    results = pack(
        catalog, {name: scaler.supply for name, scaler in scalers.items()}, wanted.demands
    )
    for scaler in scalers.values():
        scaler.decide()

    creates = tuple(create for scaler in scalers.values() for create in scaler.creates)
    drains = (
        *(d for scaler in scalers.values() for d in scaler.drains),
        *(d for inventory in gone for d in inventory.drains),
    )
    tallies = [explain.Tally.of(result) for result in results]
    coming: Counter[str] = sum((tally.coming for tally in tallies), Counter())
    waiting = [
        result for result, tally in zip(results, tallies, strict=True) if result.left or tally.later
    ]
    moments = (time for time in _moments(scalers, gone, waiting, now) if time > now)
    group_of = {each.id: each.group for each in slices}
    return ScalePlan(
        creates=creates,
        drains=drains,
        groups=(
            *(explain.group_status(scaler, coming[name]) for name, scaler in scalers.items()),
            *map(explain.unknown_group, gone),
        ),
        outlooks=tuple(
            explain.outlook(catalog, result, tally, scalers)
            for result, tally in zip(results[:MOST_OUTLOOKS], tallies[:MOST_OUTLOOKS], strict=True)
        ),
        memory=_remember(memory, scalers, group_of, creates, drains, now),
        next_at=min(moments, default=None),
    )


def _scalers(
    catalog: Catalog,
    promised: Iterable[ScaleGroup],
    slices: Iterable[SliceFacts],
    wanted: Wanted,
    memory: Memory,
    now: datetime,
) -> dict[str, GroupScaler]:
    """Returns the groups with their slices, by name, in the order in which they are tried.

    Args:
        promised: the groups as the configuration has them.
    """
    by_name = {group.name: group for group in promised}
    stock = out_of_stock(memory, now)
    by_group = _by_group(slices)
    return {
        group.name: GroupScaler(
            group,
            SliceInventory(group.name, group, by_group.get(group.name, []), wanted, now),
            memory,
            stock,
            now,
            promised=by_name[group.name],
            paused=group.name in wanted.paused,
        )
        for group in catalog.groups
    }


def _removed_groups(
    configured: Container[str], slices: Iterable[SliceFacts], wanted: Wanted, now: datetime
) -> list[SliceInventory]:
    """Returns the slices of groups that are no longer in the configuration."""
    return [
        SliceInventory(name, None, of_group, wanted, now)
        for name, of_group in sorted(_by_group(slices).items())
        if name not in configured
    ]


def _by_group(slices: Iterable[SliceFacts]) -> dict[str, list[SliceFacts]]:
    by_group: dict[str, list[SliceFacts]] = defaultdict(list)
    for each in slices:
        by_group[each.group].append(each)
    return by_group


def _remember(
    memory: Memory,
    scalers: dict[str, GroupScaler],
    group_of: dict[str, str],
    creates: Iterable[Create],
    drains: Iterable[Drain],
    now: datetime,
) -> Memory:
    """Returns the memory with this decision and without expired entries."""
    groups = {
        name: scaler.remember()
        for name, scaler in scalers.items()
        if name in memory.groups or scaler.creates or scaler.drains
    }
    stock = tuple(each for each in memory.stocked_out if now - each.until < FORGOTTEN)
    ups = [
        Action(at=now, group=each.group, what="scale_up", reason=f"{each.reason}, in {each.zone}")
        for each in creates
    ]
    downs = [
        Action(
            at=now,
            group=group_of[each.slice_id],
            what="scale_down",
            slice_id=each.slice_id,
            reason=each.reason,
        )
        for each in drains
    ]
    quotas = tuple(each for each in memory.used_up if each.until > now)
    freed = tuple(each for each in memory.freed if now - each.at < FORGOTTEN)
    remembered = memory.model_copy(
        update={"groups": groups, "stocked_out": stock, "used_up": quotas, "freed": freed}
    )
    return record(remembered, *ups, *downs)


def _moments(
    scalers: dict[str, GroupScaler],
    gone: list[SliceInventory],
    waiting: Iterable[DemandResult],
    now: datetime,
) -> Iterator[datetime]:
    """Yields the times at which the decision may change without an event."""
    for scaler in scalers.values():
        if scaler.lacking:
            yield from scaler.waits_until()
        if scaler.shrinking.until is not None:
            yield scaler.shrinking.until
        if (retried := sizes.retried_at(scaler.promised, scaler.remembered, now)) is not None:
            yield retried
        # No event reports that a slice became idle.
        if scaler.inventory.could_idle(len(scaler.shrinking.drains)):
            yield now + scaler.group.pace.scale_down_delay
    # A slice that is to be deleted may have received a task, and then becomes idle later.
    for each in (*(scaler.inventory for scaler in scalers.values()), *gone):
        if any(drain.idle_since is not None for drain in each.drains):
            yield now + (each.group.pace if each.group else Pace()).scale_down_delay
    for name in {candidate.group.name for result in waiting for candidate in result.options}:
        yield from scalers[name].waits_until()
