"""Explains the autoscaler's decision: the reason for each group, and the outlook of each waiting shape."""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from iris.autoscaling.availability import churn, stocked_out_in_words, used_up_in_words
from iris.autoscaling.catalog import Catalog
from iris.autoscaling.group_scaler import GroupScaler
from iris.autoscaling.inventory import SliceInventory
from iris.autoscaling.packing import DemandResult, PlannedSlice
from iris.model.constraints import TPU_NAME, written
from iris.model.requests import Request
from iris.model.resources import AMOUNTS, ANY_VARIANT, format_amounts
from iris.model.scale_groups import ScaleGroup
from iris.model.scaling import Availability, GroupVerdict, Outlook
from iris.model.slices import SliceState
from iris.scheduling.capacity import shortfall

#: Longer texts are cut, because they are table cells.
LONGEST = 200

_LEAVING = (SliceState.DRAINING, SliceState.DELETING, SliceState.FAILED)


class Tally(NamedTuple):
    """Counts the gangs of one shape by what they wait for."""

    coming: Counter[str]
    #: Gangs that wait for new slices, requested now or later, by group; and those slices, by group and whether they are requested
    #: now.
    asked: Counter[str]
    later: Counter[str]
    new: dict[tuple[str, bool], set[int]]

    @classmethod
    def of(cls, fate: DemandResult) -> "Tally":
        tally = cls(Counter(), Counter(), Counter(), {})
        for berths, gangs in fate.served:
            group, all_asked, some_new = berths[0].group.name, True, False
            for berth in berths:
                if berth.facts is None:
                    some_new, all_asked = True, all_asked and berth.asked
                    tally.new.setdefault((group, berth.asked), set()).add(id(berth))
            (tally.coming if not some_new else tally.asked if all_asked else tally.later)[group] += gangs
        return tally


def verdict(scale: GroupScaler, gangs: int) -> GroupVerdict:
    """Returns the state of one group after the decision.

    Args:
        gangs: number of gangs that wait for the group's slices on their way.
    """
    standing = scale.standing
    return GroupVerdict(
        group=scale.group.name,
        availability=standing.availability,
        why="; ".join(_phrases(scale, gangs)) or "nothing is wanted of it",
        until=standing.until or scale.token_at or scale.shrinking.until,
        counts=dict(scale.inventory.counts),
        demand=scale.demand,
        target=scale.target,
    )


def unknown_group(holding: SliceInventory) -> GroupVerdict:
    """Returns the state of a group that is not in the configuration."""
    why = f"no longer in the configuration: its {_slices(holding.total)} {'is' if holding.total == 1 else 'are'} given back"
    return GroupVerdict(group=holding.name, availability=Availability.AT_MAX, why=why, counts=dict(holding.counts))


def outlook(catalog: Catalog, fate: DemandResult, tally: Tally, scales: Mapping[str, GroupScaler]) -> Outlook:
    """Returns the outlook of the waiting gangs of one shape."""
    request, count = fate.demand.example, fate.demand.count
    if not fate.able:
        return Outlook(example=request, message=_short(impossible(catalog, request)), possible=False)
    parts = []
    if tally.coming:
        parts.append((sum(tally.coming.values()), _on_the_way(fate)))
    for group, gangs in tally.asked.items():
        parts.append((gangs, f"scale group {group} asks for {_new(tally, group, True)} now"))
    for group, gangs in tally.later.items():
        parts.append((gangs, f"scale group {group} will ask for {_new(tally, group, False)}: {scales[group].why_later()}"))
    if fate.left:
        every = f"every scale group that has {_what(request)} is " if not parts else ""
        parts.append((fate.left, f"{every}blocked: {_blocks(fate, scales)}"))
    message = parts[0][1] if len(parts) == 1 else "; ".join(f"{gangs} of {count}: {text}" for gangs, text in parts)
    return Outlook(example=request, message=_short(message), since=fate.since())


def impossible(catalog: Catalog, request: Request) -> str:
    """Returns why no group could ever serve the request."""
    if not catalog.groups:
        return "there is no scale group"
    of_kind = catalog.of_kind(request)
    if not of_kind:
        return _no_device(catalog, request)
    large = catalog.large_enough(request)
    if not large:
        return _too_big(of_kind, request)
    there = [group for group in large if catalog.zones(group, request)]
    if not there:
        return _constraints(catalog, request, large)
    if request.group_by == TPU_NAME:
        size = request.group_size
        exact = [group for group in there if group.hosts == size]
        if not exact:
            near = min(there, key=lambda group: (abs(group.hosts - size), group.name))
            return f"needs {_hosts(size)} in one slice; scale group {near.name}'s slices have {near.hosts}"
        there = exact
    most = max(there, key=lambda group: (group.max_slices, group.name))
    if request.group_by in (None, TPU_NAME) or most.max_slices == 0:
        return f"needs {_slices(request.groups)}; scale group {most.name} has max_slices {most.max_slices}"
    shared = f"that share {request.group_by}"
    return f"needs {request.groups} x {_hosts(request.group_size)} {shared}; no scale group may have so many"


def _phrases(scale: GroupScaler, gangs: int) -> Iterable[str]:
    holding, now = scale.inventory, scale.now
    if scale.standing.why:
        yield scale.standing.why
    if not scale.standing.turns_away:
        yield from map(stocked_out_in_words, scale.stocked_out.values())
        yield from dict.fromkeys(map(used_up_in_words, scale.used_up.values()))
    lives = churn(scale.remembered.lives, now)
    if 0 < lives.factor < 1:
        yield f"grows at {lives.factor:.0%} of its rate: {lives.short} of {lives.of} slices died young lately"
    if scale.creates:
        purposes = ", ".join(f"{count} for {purpose}" for purpose, count in scale.asked_for.items())
        yield f"asks for {_slices(len(scale.creates))}: {purposes}"
    if scale.lacking:
        why = "" if scale.standing.why else f": {scale.why_later()}"
        more = "1 more slice is" if scale.lacking == 1 else f"{scale.lacking} more slices are"
        yield f"{more} wanted{why}"
    if used := [berth for berth in scale.coming if berth.gangs]:
        yield f"{_slices(len(used))} on {_their(len(used))} way for {_gangs(gangs)}"
    if spare := len(scale.coming) - len(used):
        yield f"{_slices(spare)} on {_their(spare)} way in reserve"
    for reason, count in Counter(drain.reason for drain in holding.drains).items():
        yield f"gives back {_slices(count)}: {reason}"
    if drains := scale.shrinking.drains:
        named = drains[0].slice_id if len(drains) == 1 else _slices(len(drains))
        yield f"gives back {named}: {drains[0].reason}"
    if claimed := [berth for berth in scale.idle if berth.gangs]:
        yield f"{_idle(claimed)} kept: a gang waits for others beside {'it' if len(claimed) == 1 else 'them'}"
    gone = {drain.slice_id for drain in drains}
    kept = [berth for berth in scale.idle if not berth.gangs and berth.facts and berth.facts.id not in gone]
    if kept and scale.shrinking.kept:
        yield f"{_idle(kept)} kept: {scale.shrinking.kept}"
    if holding.busy:
        yield f"{_slices(len(holding.busy))} in use"
    if leaving := sum(holding.counts[state] for state in _LEAVING):
        yield f"{_slices(leaving)} being given back"


def _on_the_way(fate: DemandResult) -> str:
    berths = {id(berth): berth for some, _ in fate.served if all(berth.facts for berth in some) for berth in some}
    facts = [berth.facts for berth in berths.values() if berth.facts is not None and not berth.idle]
    first, others = facts[0], len(facts) - 1
    of = f"of scale group {first.group}"
    if not others:
        return f"slice {first.id} {of} is on its way ({first.state} in {first.zone})"
    return f"slice {first.id} {of} and {others} more are on their way ({first.state} in {first.zone})"


def _blocks(fate: DemandResult, scales: Mapping[str, GroupScaler]) -> str:
    """Returns why each group has no capacity, for as many groups as fit on a line."""
    whys: list[str] = []
    for able in fate.able:
        if sum(map(len, whys)) < LONGEST:
            whys.append(f"{able.group.name} {scales[able.group.name].why_not(able)}")
    return "; ".join(whys)


def _new(tally: Tally, group: str, asked: bool) -> str:
    count = len(tally.new.get((group, asked), ()))
    return "a slice" if count == 1 else _slices(count)


def _no_device(catalog: Catalog, request: Request) -> str:
    device = request.resources.device
    if device is None:
        return "no scale group takes tasks without devices; accept_cpu_jobs would let one with devices take them"
    there = {
        each.resources.device.variant: each
        for each in catalog.groups
        if each.resources.device and each.resources.device.kind is device.kind
    }
    near = difflib.get_close_matches(device.variant, list(there), n=1, cutoff=0.5) or sorted(there)[:1]
    nearest = f"; nearest: {near[0]} (scale group {there[near[0]].name})" if near else ""
    return f"no scale group has {_what(request)}{nearest}"


def _too_big(of_kind: list[ScaleGroup], request: Request) -> str:
    amounts = request.shape.amounts
    near = min(of_kind, key=lambda group: (shortfall(group.resources.vector, amounts), group.name))
    has = near.resources.amounts()
    needed = {name: amount for name, amount in request.resources.amounts().items() if amount > has[name]}
    there = format_amounts({name: has[name] for name in AMOUNTS if name in needed}, near.resources.device)
    return f"too big: needs {format_amounts(needed, request.resources.device)}; a host of scale group {near.name} has {there}"


def _constraints(catalog: Catalog, request: Request, large: list[ScaleGroup]) -> str:
    facts = [catalog.host(group, zone).facts for group in large for zone in group.zones]
    excluded = {each: sum(not each.holds(fact) for fact in facts) for each in request.required}
    worst = max(excluded, key=lambda each: excluded[each])
    if excluded[worst] < len(facts):
        return f"no scale group that is large enough meets all of: {', '.join(map(str, excluded))}"
    values = sorted({written(fact[worst.key]) for fact in facts if worst.key in fact})
    have = f"{worst.key} is {', '.join(values[:5])}{' …' if len(values) > 5 else ''} there" if values else f"none has {worst.key}"
    return f"no scale group that is large enough meets {worst}; {have}"


def _what(request: Request) -> str:
    device = request.resources.device
    if device is None:
        return "hosts for it"
    return f"{device.kind} devices" if device.variant == ANY_VARIANT else device.variant


def _short(text: str) -> str:
    return text if len(text) < LONGEST else f"{text[: LONGEST - 2]}…"


def _idle(berths: list[PlannedSlice]) -> str:
    facts = berths[0].facts
    return f"idle slice {facts.id}" if facts and len(berths) == 1 else f"{len(berths)} idle slices"


def _slices(count: int) -> str:
    return f"{count} slice{'' if count == 1 else 's'}"


def _gangs(count: int) -> str:
    return f"{count} gang{'' if count == 1 else 's'}"


def _hosts(count: int) -> str:
    return f"{count} host{'' if count == 1 else 's'}"


def _their(count: int) -> str:
    return "its" if count == 1 else "their"
