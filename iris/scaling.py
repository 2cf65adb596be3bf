"""What the autoscaler does now: one decision about all scale groups, from what there is, what is wanted and what has happened.

1. What waits is packed into the slices that are on their way, and what is left into new ones (`iris.packing`).
2. Each group is asked for what is wanted of it, what it lacks to its least, and its reserve (`iris.growing`): within its limit,
   its rate, and what keeps the autoscaler away from it (`iris.availability`). A quota, a failure, or a group that is full sends
   those who wait to the next group; a request without an answer, or a scale-up a moment ago, lets them wait.
3. What has been idle for long enough is given back, and so is what the limit does not allow any more (`iris.holdings`).
4. Of everything that is done or left there is the reason (`iris.prospects`), and the moment at which it may be otherwise.

No clock, no dice: the same facts give the same plan, which is what lets this run inside a workflow.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from iris import availability, prospects
from iris.catalog import Catalog
from iris.growing import Scale
from iris.holdings import Holding
from iris.packing import Fate, pack
from iris.scale_groups import Pace, ScaleGroup
from iris.scale_plan import Action, Create, Drain, Memory, ScalePlan, Wanted
from iris.slices import SliceFacts, SliceState


def plan(groups: Sequence[ScaleGroup], slices: Sequence[SliceFacts], wanted: Wanted, memory: Memory, now: datetime) -> ScalePlan:
    """What to do now, why the rest is left, and when to look again.

    Args:
        slices: all that there are, those of groups that are no longer in the configuration too.
    """
    catalog = Catalog(groups)
    stock = availability.out_of_stock(memory, now)
    by_group: dict[str, list[SliceFacts]] = defaultdict(list)
    for each in slices:
        if each.state is not SliceState.DELETED:
            by_group[each.group].append(each)
    scales = {
        group.name: Scale(
            group,
            Holding(group.name, group, by_group.pop(group.name, []), wanted, now),
            memory,
            stock,
            now,
            paused=group.name in wanted.paused,
        )
        for group in catalog.groups
    }
    gone = [Holding(name, None, by_group[name], wanted, now) for name in sorted(by_group)]

    fates = pack(catalog, {name: scale.supply for name, scale in scales.items()}, wanted.demands)
    for scale in scales.values():
        scale.decide()

    creates = tuple(create for scale in scales.values() for create in scale.creates)
    drains = (*(d for scale in scales.values() for d in scale.drains), *(d for holding in gone for d in holding.drains))
    tallies = [prospects.Tally.of(fate) for fate in fates]
    coming: Counter[str] = sum((tally.coming for tally in tallies), Counter())
    waiting = [fate for fate, tally in zip(fates, tallies, strict=True) if fate.left or tally.later]
    return ScalePlan(
        creates=creates,
        drains=drains,
        verdicts=(
            *(prospects.verdict(scale, coming[name]) for name, scale in scales.items()),
            *map(prospects.unknown_group, gone),
        ),
        outlooks=tuple(prospects.outlook(catalog, fate, tally, scales) for fate, tally in zip(fates, tallies, strict=True)),
        memory=_remember(memory, scales, {each.id: each.group for each in slices}, creates, drains, now),
        next_at=min((time for time in _moments(scales, gone, waiting, now) if time > now), default=None),
    )


def _remember(
    memory: Memory,
    scales: dict[str, Scale],
    group_of: dict[str, str],
    creates: Iterable[Create],
    drains: Iterable[Drain],
    now: datetime,
) -> Memory:
    """What is still worth knowing, and what is done now."""
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


def _moments(scales: dict[str, Scale], gone: list[Holding], waiting: Iterable[Fate], now: datetime) -> Iterator[datetime]:
    """When something could be otherwise by itself."""
    for scale in scales.values():
        if scale.lacking:
            yield from scale.waits_until()
        if scale.shrinking.until is not None:
            yield scale.shrinking.until
        # Nobody says when a slice has nothing to do any more; and one that is to be given back may have found something to do.
        if scale.holding.could_idle(len(scale.shrinking.drains)):
            yield now + scale.group.pace.scale_down_delay
    for each in (*(scale.holding for scale in scales.values()), *gone):
        if any(drain.idle_since is not None for drain in each.drains):
            yield now + (each.group.pace if each.group else Pace()).scale_down_delay
    for name in {able.group.name for fate in waiting for able in fate.able}:
        yield from scales[name].waits_until()
