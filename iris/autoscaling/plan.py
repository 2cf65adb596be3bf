"""Makes one decision of the autoscaler about all scale groups, from the slices, the demand and the memory of past events.

1. The waiting gangs are packed into slices on their way, and the rest into new slices (`iris.autoscaling.packing`).
2. Each group creates slices for its share of the gangs, for `min_slices` and for its buffer (`iris.autoscaling.group_scaler`). It
   stays within its maximum, its rate and its availability (`iris.autoscaling.availability`). If a quota, a failure or the maximum
   blocks a group, the gangs go to the next group. If a request is unanswered or the group has just grown, they wait.
3. Slices that have been idle for long enough, or that exceed the maximum, are deleted (`iris.autoscaling.inventory`).
4. Every action, and every refusal to act, has a reason (`iris.autoscaling.explain`) and the time at which it may change.

The module uses no clock and no random numbers: the same input gives the same plan, so it can run inside a workflow.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from iris.autoscaling import availability, explain
from iris.autoscaling.group_scaler import GroupScaler
from iris.autoscaling.inventory import SliceInventory
from iris.autoscaling.packing import DemandResult, pack
from iris.model.scale_groups import Pace, ScaleGroup
from iris.model.scaling import Action, Create, Drain, Memory, ScalePlan, Wanted
from iris.model.slices import SliceFacts, SliceState
from iris.scheduling.catalog import Catalog


def plan(groups: Sequence[ScaleGroup], slices: Sequence[SliceFacts], wanted: Wanted, memory: Memory, now: datetime) -> ScalePlan:
    """Returns what to do now, why the rest is not done, and when to evaluate again.

    Args:
        slices: all slices, including those of groups that are no longer in the configuration.
    """
    catalog = Catalog(groups)
    stock = availability.out_of_stock(memory, now)
    by_group: dict[str, list[SliceFacts]] = defaultdict(list)
    for each in slices:
        if each.state is not SliceState.DELETED:
            by_group[each.group].append(each)
    scales = {
        group.name: GroupScaler(
            group,
            SliceInventory(group.name, group, by_group.pop(group.name, []), wanted, now),
            memory,
            stock,
            now,
            paused=group.name in wanted.paused,
        )
        for group in catalog.groups
    }
    gone = [SliceInventory(name, None, by_group[name], wanted, now) for name in sorted(by_group)]

    fates = pack(catalog, {name: scale.supply for name, scale in scales.items()}, wanted.demands)
    for scale in scales.values():
        scale.decide()

    creates = tuple(create for scale in scales.values() for create in scale.creates)
    drains = (*(d for scale in scales.values() for d in scale.drains), *(d for holding in gone for d in holding.drains))
    tallies = [explain.Tally.of(fate) for fate in fates]
    coming: Counter[str] = sum((tally.coming for tally in tallies), Counter())
    waiting = [fate for fate, tally in zip(fates, tallies, strict=True) if fate.left or tally.later]
    return ScalePlan(
        creates=creates,
        drains=drains,
        verdicts=(
            *(explain.group_verdict(scale, coming[name]) for name, scale in scales.items()),
            *map(explain.unknown_group, gone),
        ),
        outlooks=tuple(explain.outlook(catalog, fate, tally, scales) for fate, tally in zip(fates, tallies, strict=True)),
        memory=_remember(memory, scales, {each.id: each.group for each in slices}, creates, drains, now),
        next_at=min((time for time in _moments(scales, gone, waiting, now) if time > now), default=None),
    )


def _remember(
    memory: Memory,
    scales: dict[str, GroupScaler],
    group_of: dict[str, str],
    creates: Iterable[Create],
    drains: Iterable[Drain],
    now: datetime,
) -> Memory:
    """Returns the memory with this decision, without what has expired."""
    groups = {name: scale.remember() for name, scale in scales.items() if name in memory.groups or scale.creates or scale.drains}
    stock = tuple(each for each in memory.stocked_out if now - each.until < availability.FORGOTTEN)
    ups = [Action(at=now, group=each.group, what="scale_up", reason=f"{each.reason}, in {each.zone}") for each in creates]
    downs = [
        Action(at=now, group=group_of[each.slice_id], what="scale_down", slice_id=each.slice_id, reason=each.reason)
        for each in drains
    ]
    quotas = tuple(each for each in memory.used_up if each.until > now)
    freed = tuple(each for each in memory.freed if now - each.at < availability.FORGOTTEN)
    remembered = memory.model_copy(update={"groups": groups, "stocked_out": stock, "used_up": quotas, "freed": freed})
    return availability.record(remembered, *ups, *downs)


def _moments(
    scales: dict[str, GroupScaler], gone: list[SliceInventory], waiting: Iterable[DemandResult], now: datetime
) -> Iterator[datetime]:
    """Yields the times at which the decision may change without an event."""
    for scale in scales.values():
        if scale.lacking:
            yield from scale.waits_until()
        if scale.shrinking.until is not None:
            yield scale.shrinking.until
        # No event reports that a slice became idle, and a slice that is to be deleted may have received a task.
        if scale.holding.could_idle(len(scale.shrinking.drains)):
            yield now + scale.group.pace.scale_down_delay
    for each in (*(scale.holding for scale in scales.values()), *gone):
        if any(drain.idle_since is not None for drain in each.drains):
            yield now + (each.group.pace if each.group else Pace()).scale_down_delay
    for name in {able.group.name for fate in waiting for able in fate.able}:
        yield from scales[name].waits_until()
