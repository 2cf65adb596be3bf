"""Explains the autoscaler's decision: the reason for each group, and the outlook of each waiting
shape.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from iris.autoscaling.availability import churn, describe_stock_out, describe_used_up
from iris.autoscaling.group_scaler import GroupScaler
from iris.autoscaling.inventory import SliceInventory
from iris.autoscaling.packing import DemandResult, PlannedSlice
from iris.model.host.resources import ANY_VARIANT
from iris.model.job.requests import Request
from iris.model.slice.scaling import Availability, GroupStatus, Outlook
from iris.model.slice.status import SliceState
from iris.scheduling.placement.catalog import Catalog
from iris.scheduling.reasons.why_waiting import no_scale_group

#: The maximum number of characters of the text that explains why gangs wait for slices. Longer
#: texts are cut, because they are cells of a table.
LONGEST = 300

_LEAVING = (SliceState.DRAINING, SliceState.DELETING, SliceState.FAILED)


class Tally(NamedTuple):
    """The waiting gangs of one shape, counted by the slices for which they wait."""

    #: By group, the number of gangs that wait for slices that exist or were requested earlier.
    coming: Counter[str]
    #: By group, the number of gangs that wait for slices that the current evaluation of the
    #: autoscaler requests.
    requested: Counter[str]
    #: By group, the number of gangs that wait for slices that a later evaluation of the autoscaler
    #: may request.
    later: Counter[str]
    #: The planned new slices for the gangs, as `id()` of each `PlannedSlice`, by (group, whether
    #: the current evaluation requests the slice).
    new: dict[tuple[str, bool], set[int]]

    @classmethod
    def of(cls, result: DemandResult) -> "Tally":
        tally = cls(Counter(), Counter(), Counter(), {})
        for slices, gangs in result.served:
            new = [each for each in slices if each.facts is None]
            for each in new:
                tally.new.setdefault((each.group.name, each.requested), set()).add(id(each))
            group = next(
                (each for each in new if not each.requested), (new or slices)[0]
            ).group.name
            requested = tally.requested if all(each.requested for each in new) else tally.later
            (requested if new else tally.coming)[group] += gangs
        return tally


def group_status(scale: GroupScaler, gangs: int) -> GroupStatus:
    """Returns the state of one group after the decision.

    Args:
        gangs: the number of gangs that wait for coming slices of the group.
    """
    return GroupStatus(
        group=scale.group.name,
        availability=scale.availability.state,
        why="; ".join(_phrases(scale, gangs)) or "no demand",
        until=scale.availability.until or scale.token_at or scale.shrinking.until,
        counts=dict(scale.inventory.counts),
        demand=scale.demand,
        target=scale.target,
    )


def unknown_group(holding: SliceInventory) -> GroupStatus:
    """Returns the state of a group that is not in the configuration."""
    why = (
        f"no longer in the configuration: its {_slices(holding.total)}"
        f" {'is' if holding.total == 1 else 'are'} being deleted"
    )
    return GroupStatus(
        group=holding.name, availability=Availability.AT_MAX, why=why, counts=dict(holding.counts)
    )


def outlook(
    catalog: Catalog, result: DemandResult, tally: Tally, scales: Mapping[str, GroupScaler]
) -> Outlook:
    """Returns the outlook of the waiting gangs of one shape."""
    request, count = result.demand.example, result.demand.count
    if (never := no_scale_group(catalog, request)) is not None:
        promising = (
            each
            for each in scales.values()
            if each.shortfall and Catalog([each.promised]).candidates(request)
        )
        causes = (never.message, *(each.shortfall for each in promising))
        return Outlook(example=request, message=_short("; ".join(causes)), possible=False)
    parts = []
    if tally.coming:
        parts.append((sum(tally.coming.values()), _on_the_way(result)))
    for group, gangs in tally.requested.items():
        parts.append((gangs, f"scale group {group} requests {_new(tally, group, True)} now"))
    for group, gangs in tally.later.items():
        parts.append(
            (
                gangs,
                (
                    f"scale group {group} will request {_new(tally, group, False)}:"
                    f" {scales[group].why_later()}"
                ),
            )
        )
    if result.left:
        every = f"every scale group that has {_what(request)} is " if not parts else ""
        parts.append((result.left, f"{every}blocked: {_blocks(result, scales)}"))
    message = (
        parts[0][1]
        if len(parts) == 1
        else "; ".join(f"{gangs} of {count}: {text}" for gangs, text in parts)
    )
    return Outlook(example=request, message=_short(message), since=result.since())


def _phrases(scale: GroupScaler, gangs: int) -> Iterable[str]:
    holding, now = scale.inventory, scale.now
    if scale.availability.why:
        yield scale.availability.why
    if not scale.availability.turns_away:
        yield from map(describe_stock_out, scale.stocked_out.values())
        yield from dict.fromkeys(map(describe_used_up, scale.used_up.values()))
    if shortfall := scale.shortfall:
        yield f"plans with less than its configuration promises: {shortfall}"
    lives = churn(scale.remembered.lives, now)
    if 0 < lives.factor < 1:
        yield (
            f"grows at {lives.factor:.0%} of its rate: {lives.short} of {lives.of} recent slices"
            " were short-lived"
        )
    if scale.creates:
        purposes = ", ".join(
            f"{count} for {purpose}" for purpose, count in scale.requested_for.items()
        )
        yield f"requests {_slices(len(scale.creates))}: {purposes}"
    if scale.lacking:
        why = "" if scale.availability.why else f": {scale.why_later()}"
        more = "1 more slice is" if scale.lacking == 1 else f"{scale.lacking} more slices are"
        yield f"{more} needed{why}"
    if used := [each for each in scale.coming if each.gangs]:
        yield f"{_slices(len(used))} on {_their(len(used))} way for {_gangs(gangs)}"
    if spare := len(scale.coming) - len(used):
        yield f"{_slices(spare)} on {_their(spare)} way in reserve"
    for reason, count in Counter(drain.reason for drain in holding.drains).items():
        yield f"deletes {_slices(count)}: {reason}"
    if drains := scale.shrinking.drains:
        named = drains[0].slice_id if len(drains) == 1 else _slices(len(drains))
        yield f"deletes {named}: {drains[0].reason}"
    if claimed := [each for each in scale.idle if each.gangs]:
        yield (
            f"{_idle(claimed)} kept: a gang needs {'it' if len(claimed) == 1 else 'them'} and"
            " slices on their way"
        )
    gone = {drain.slice_id for drain in drains}
    kept = [
        each for each in scale.idle if not each.gangs and each.facts and each.facts.id not in gone
    ]
    if kept and scale.shrinking.kept:
        yield f"{_idle(kept)} kept: {scale.shrinking.kept}"
    if holding.busy:
        yield f"{_slices(len(holding.busy))} in use"
    if leaving := sum(holding.counts[state] for state in _LEAVING):
        yield f"{_slices(leaving)} being deleted"


def _on_the_way(result: DemandResult) -> str:
    slices = {
        id(each): each
        for some, _ in result.served
        if all(each.facts for each in some)
        for each in some
    }
    facts = [each.facts for each in slices.values() if each.facts is not None and not each.idle]
    first, others = facts[0], len(facts) - 1
    of = f"of scale group {first.group}"
    if not others:
        return f"slice {first.id} {of} is on its way ({first.state} in {first.zone})"
    return (
        f"slice {first.id} {of} and {others} more are on their way ({first.state} in {first.zone})"
    )


def _blocks(result: DemandResult, scales: Mapping[str, GroupScaler]) -> str:
    """Returns for each group why it has no capacity. Groups beyond `LONGEST` are left out."""
    whys: list[str] = []
    for candidate in result.options:
        if sum(map(len, whys)) < LONGEST:
            whys.append(f"{candidate.group.name} {scales[candidate.group.name].why_not(candidate)}")
    return "; ".join(whys)


def _new(tally: Tally, group: str, requested: bool) -> str:
    count = len(tally.new.get((group, requested), ()))
    return "a slice" if count == 1 else _slices(count)


def _what(request: Request) -> str:
    device = request.resources.device
    if device is None:
        return "hosts for it"
    return f"{device.kind} devices" if device.variant == ANY_VARIANT else device.variant


def _short(text: str) -> str:
    return text if len(text) < LONGEST else f"{text[: LONGEST - 2]}…"


def _idle(slices: list[PlannedSlice]) -> str:
    facts = slices[0].facts
    return f"idle slice {facts.id}" if facts and len(slices) == 1 else f"{len(slices)} idle slices"


def _slices(count: int) -> str:
    return f"{count} slice{'' if count == 1 else 's'}"


def _gangs(count: int) -> str:
    return f"{count} gang{'' if count == 1 else 's'}"


def _their(count: int) -> str:
    return "its" if count == 1 else "their"
