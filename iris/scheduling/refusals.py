"""Determines why a gang waits: one reason, the first that holds, with the numbers behind it and a remedy.

The checks have this order, so that the reason is the one to remedy first:

1. Is there a host at all, of the right kind, large enough, that meets the constraints, in a group that is large enough?
2. Are such hosts open?
3. Do they have enough free capacity, and is it not reserved for another gang?
"""

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from iris.model.bounds import REASON, cut
from iris.model.constraints import TPU_NAME, written
from iris.model.jobs import Band
from iris.model.requests import Placement, Request, Shape
from iris.model.resources import AMOUNTS, Device, format_amount, format_amounts
from iris.scheduling.capacity import Capacity, shortfall
from iris.scheduling.host_index import HostIndex
from iris.scheduling.queue import Owed, use_by_band
from iris.scheduling.recent_use import UNUSED, Lately


class RefusalCode(StrEnum):
    NO_HOSTS = "NO_HOSTS"  # the cluster has no host at all
    NO_DEVICE = "NO_DEVICE"  # no host of the right kind
    TOO_BIG = "TOO_BIG"  # more than any host of the right kind has, even when empty
    CONSTRAINTS = "CONSTRAINTS"  # no host that is large enough meets the constraints
    NO_GROUP = "NO_GROUP"  # no group has as many such hosts as the gang needs
    SCALING = "SCALING"  # no present host could serve it, but a new slice could
    CLOSED = "CLOSED"  # the hosts that could take it are cordoned, drained, quarantined or paused
    PAUSED = "PAUSED"  # the cluster is paused
    HELD = "HELD"  # its user holds it
    EVICTING = "EVICTING"  # weaker gangs are being evicted for it
    BUSY = "BUSY"  # hosts that could take it have too little free capacity
    KEPT = "KEPT"  # the free capacity is reserved for a gang whose turn came first
    QUEUED = "QUEUED"  # it fits; the next pass decides
    UNKNOWN = "UNKNOWN"  # the scheduler does not know the request, or no longer knows it


#: The codes that mean that no host of the cluster could ever serve the request.
INFEASIBLE = frozenset(
    {RefusalCode.NO_HOSTS, RefusalCode.NO_DEVICE, RefusalCode.TOO_BIG, RefusalCode.CONSTRAINTS, RefusalCode.NO_GROUP}
)


def _as_a_reason(text: str) -> str:
    return cut(text, REASON)


#: The most constraints for which one refusal counts the excluded hosts.
MOST_EXCLUDED = 8


class Refusal(BaseModel):
    """The reason why a gang waits. Amounts are for one task, in the units of `Resources.amounts` (millicores, bytes, devices)."""

    model_config = ConfigDict(frozen=True)

    code: RefusalCode
    #: Cut to `REASON`, because it contains text from hosts and users.
    message: Annotated[str, AfterValidator(_as_a_reason)]
    #: The amounts needed, for each resource that is short.
    needed: dict[str, int] = Field(default_factory=dict)
    #: The amounts that the best host has of the resources in `needed`: free amounts for BUSY, total amounts for TOO_BIG.
    free: dict[str, int] = Field(default_factory=dict)
    #: The number of hosts that passed the checks before: of the right kind for TOO_BIG, large enough for CONSTRAINTS, and so on.
    hosts: int = 0
    #: How many requests are served before this one.
    ahead: int = 0
    #: For CONSTRAINTS: how many hosts each constraint alone excludes, the highest count first.
    excluded: dict[str, int] = Field(default_factory=dict)
    #: For a gang: the hosts that it needs in one group, and the most that any group has (for BUSY: has free).
    group_needs: int = 0
    group_has: int = 0
    #: The event or action that would end the wait.
    remedy: Annotated[str, AfterValidator(_as_a_reason)] = ""
    #: What the autoscaler does about it, and since when.
    scaling: str = ""
    since: datetime | None = None


class Situation(NamedTuple):
    """The state of the cluster that refusals are computed from. It is built once for all requests of a query."""

    fleet: HostIndex
    rooms: Capacity
    #: The capacity after the placements that are being evicted have stopped; None if there are none.
    soon: Capacity | None
    #: The bands of the placements that are being evicted.
    evicting: list[Band]
    #: The capacity with the hosts that the last pass reserved for a shape; None if it reserved none.
    kept: Capacity | None
    #: Why the cluster is paused; None when it is not.
    paused: str | None
    #: Each user's use that counts, by band.
    use: Mapping[Band, Mapping[str, int]]
    #: Each user's recent use that counts, by band.
    recent: Mapping[Band, Mapping[str, int]]
    #: The same as if no user were owed a turn.
    full_recent: Mapping[Band, Mapping[str, int]]
    #: One second of weight 1, in the unit of the recent use.
    unit: int

    @classmethod
    def of(
        cls,
        fleet: HostIndex,
        live: Iterable[Placement],
        kept: Mapping[int, Shape],
        evicting: Collection[str],
        paused: str | None,
        owed: Owed | None = None,
        lately: Lately = UNUSED,
    ) -> "Situation":
        live = list(live)
        rooms, reserved = Capacity(fleet, live), None
        going = [each for each in live if each.key in evicting] if evicting else []
        if kept:
            reserved = rooms.without(())
            reserved.kept.update(kept)
        soon, bands = rooms.without(going) if going else None, [each.band for each in going]
        use, recent, full = use_by_band(live, owed), lately.by_band(owed or {}), lately.by_band({})
        return cls(fleet, rooms, soon, bands, reserved, paused, use, recent, full, lately.unit)


#: The codes of requests that wait for their turn.
IN_LINE = frozenset({RefusalCode.BUSY, RefusalCode.QUEUED, RefusalCode.KEPT})


def in_line(refusal: Refusal, request: Request, ahead: int, *, bound: str = "", why: str = "") -> Refusal:
    """Returns the refusal with the number of requests that are served before this one.

    Args:
        bound: "at least " or "up to " if the number is not exact.
        why: why another user's gangs are among them.
    """
    message = refusal.message
    if refusal.code in IN_LINE:
        message = f"{message}; {bound}{_ahead(ahead, request)}{'; ' if why else ''}{why}"
    return refusal.model_copy(update={"message": message, "ahead": ahead})


def reason(situation: Situation, request: Request) -> Refusal:
    """Returns why such a request has no hosts now."""
    if situation.paused is not None:
        paused = f"the cluster is paused: {cut(situation.paused)}".removesuffix(": ")
        return Refusal(code=RefusalCode.PAUSED, message=paused, remedy="an operator resumes it: iris cluster resume")
    return infeasible(situation.fleet, request) or _occupied(situation, request)


def infeasible(fleet: HostIndex, request: Request) -> Refusal | None:
    """Returns why no host could ever serve the request, empty or busy, open or closed; None when some host could."""
    if not fleet.hosts:
        return Refusal(
            code=RefusalCode.NO_HOSTS,
            message="no host has joined the cluster",
            needed=request.resources.amounts(),
            remedy="a host joins: iris agent --join",
        )
    if fleet.feasible(request):  # a fast check for the usual case
        return None
    of_kind = fleet.of_kind(request)
    if not of_kind:
        return _no_device(fleet, request)
    large = fleet.large_enough(request)
    if not large:
        return _too_big(fleet, request, of_kind)
    could = fleet.matching(request, large)
    if not could:
        return _constraints(fleet, request, large)
    if request.group_by is not None and (refusal := _no_group(fleet, request, could)) is not None:
        return refusal
    return None


def _occupied(situation: Situation, request: Request) -> Refusal:
    """Returns why the hosts that could serve the request do not take it now."""
    fleet, rooms = situation.fleet, situation.rooms
    candidates = fleet.candidates(request)
    if not fleet.feasible(request):
        return _closed(fleet, request)
    if rooms.find(request) is not None:
        if situation.kept is not None and situation.kept.find(request) is None:
            others = sum(situation.kept.kept.get(n, request.shape) != request.shape for n in candidates.hosts)
            return Refusal(
                code=RefusalCode.KEPT,
                message=f"the room on {_hosts(others)} is kept for gangs whose turn came first",
                needed=request.resources.amounts(),
                hosts=len(candidates.hosts),
                remedy="it starts when they have started, or when there is room elsewhere",
            )
        return Refusal(
            code=RefusalCode.QUEUED,
            message="there is room, and the next pass decides",
            needed=request.resources.amounts(),
            hosts=len(candidates.hosts),
        )
    busy = _busy(fleet, rooms, request, candidates.hosts)
    weaker = sum(band.rank > request.band.rank for band in situation.evicting)
    if weaker and situation.soon is not None and situation.soon.find(request) is not None:
        gangs = f"{weaker} weaker gang{'s are' if weaker > 1 else ' is'}"
        return busy.model_copy(
            update={
                "code": RefusalCode.EVICTING,
                "message": f"{gangs} being stopped to make room",
                "remedy": "it starts when they have stopped",
            }
        )
    return busy


def _no_device(fleet: HostIndex, request: Request) -> Refusal:
    kinds = Counter(_kind(host.resources.device) for host in fleet.hosts)
    there_are = ", ".join(f"{kind} on {count}" for kind, count in sorted(kinds.items()))
    wanted = request.resources.device
    if wanted is None:
        message = f"needs a host for tasks without devices; all hosts keep theirs for tasks that use them ({there_are})"
        remedy = "a host without devices joins, or one that says --accept-cpu-jobs"
    else:
        message = f"needs {wanted.kind}:{cut(wanted.variant)}; no host has it ({there_are})"
        variants = {_kind(host.resources.device) for host in fleet.hosts if host.resources.device}
        near = difflib.get_close_matches(f"{wanted.kind}:{wanted.variant}", sorted(variants), n=1, cutoff=0.5)
        remedy = f"such a host joins{f', or ask for the nearest there is: {near[0]}' if near else ''}"
    return Refusal(
        code=RefusalCode.NO_DEVICE, message=message, needed=request.resources.amounts(), hosts=len(fleet.hosts), remedy=remedy
    )


def _too_big(fleet: HostIndex, request: Request, of_kind: list[int]) -> Refusal:
    largest = min(of_kind, key=lambda n: shortfall(fleet.hosts[n].resources.vector, request.shape.amounts))
    refusal = _short(
        RefusalCode.TOO_BIG, request, fleet.hosts[largest].resources.vector, of_kind, "even when empty, the largest of {} has {}"
    )
    remedy = f"ask for at most {format_amounts(refusal.free, request.resources.device)}, or a larger host joins"
    return refusal.model_copy(update={"remedy": remedy})


def _constraints(fleet: HostIndex, request: Request, large: list[int]) -> Refusal:
    required = request.required
    counts = {each: sum(not each.holds(fleet.facts(n)) for n in large) for each in required}
    worst = max(required, key=lambda each: counts[each])
    most = sorted(counts.items(), key=lambda entry: -entry[1])[:MOST_EXCLUDED]
    values = sorted({cut(written(fleet.facts(n)[worst.key])) for n in large if worst.key in fleet.facts(n)})
    have = f"{worst.key} is {', '.join(values[:5])}{' …' if len(values) > 5 else ''} there" if values else f"none has {worst.key}"
    others = "" if len(required) == 1 else f" (in all {len(required)} constraints)"
    return Refusal(
        code=RefusalCode.CONSTRAINTS,
        message=f"{cut(str(worst))} excludes {counts[worst]} of {_hosts(len(large))} large enough; {have}{others}",
        hosts=len(large),
        excluded={cut(str(each)): count for each, count in most},
        remedy=f"drop or widen the constraint {cut(str(worst))}",
    )


def _no_group(fleet: HostIndex, request: Request, could: list[int]) -> Refusal | None:
    each = request.group_size
    sizes = sorted((len(members) for members in fleet.grouped(request, could).values()), reverse=True)
    enough = sum(size >= each for size in sizes)
    if enough >= request.groups:
        return None
    there = _groups(len(sizes), request)
    if request.groups == 1:
        message = f"needs {_hosts(each)} in one {_noun(request)}; the largest of {there} has {sizes[0]}"
    else:
        message = f"needs {_groups(request.groups, request)} of {_hosts(each)}; {enough} of {there} {_has(enough)} so many"
    return Refusal(
        code=RefusalCode.NO_GROUP,
        message=message,
        hosts=len(could),
        group_needs=each,
        group_has=sizes[0],
        remedy=f"ask for fewer tasks, or a larger {_noun(request)} joins",
    )


def _closed(fleet: HostIndex, request: Request) -> Refusal:
    could = fleet.matching(request, fleet.large_enough(request))
    reasons = Counter(reason for n in could if (reason := fleet.closed(fleet.hosts[n])) is not None)
    closed = sum(reasons.values())
    told = ", ".join(f"{count} {cut(reason)}" for reason, count in reasons.most_common(3))
    return Refusal(
        code=RefusalCode.CLOSED,
        message=f"of {_hosts(len(could))} that could take it, {closed} take{'s' if closed == 1 else ''} nothing new: {told}",
        hosts=len(could),
        remedy="an operator opens them: iris host uncordon, iris cluster resume",
    )


def _busy(fleet: HostIndex, rooms: Capacity, request: Request, candidates: list[int]) -> Refusal:
    """Returns a BUSY refusal with the numbers of the host, or the group of hosts, that lacks the least."""
    amounts = request.shape.amounts
    if request.group_by is None:
        freest = min(candidates, key=lambda n: shortfall(rooms.free[n], amounts))
        refusal = _short(RefusalCode.BUSY, request, rooms.free[freest], candidates, "the best of {} has {} free")
        return refusal.model_copy(update={"remedy": "it starts when others end, or when a host joins"})
    each = request.group_size
    groups = fleet.candidates(request).groups
    free = sorted((len(rooms.fitting(members, request.shape)) for members in groups.values()), reverse=True)
    there = _groups(len(groups), request)
    if request.groups == 1:
        wanted = f"{each} free host{'' if each == 1 else 's'}"
        message = f"needs {wanted} in one {_noun(request)}; the best of {there} has {free[0]}"
    else:
        enough = sum(count >= each for count in free)
        message = f"needs {_groups(request.groups, request)} with {each} free hosts each; {enough} of {there} {_has(enough)} them"
    return Refusal(
        code=RefusalCode.BUSY,
        message=message,
        needed=request.resources.amounts(),
        hosts=len(candidates),
        group_needs=each,
        group_has=free[0],
        remedy=f"it starts when others end, or when another {_noun(request)} joins",
    )


def _short(code: RefusalCode, request: Request, there: Sequence[int], hosts: list[int], text: str) -> Refusal:
    """Returns a refusal with the resources that are short on the host that lacks the least."""
    resources = request.resources
    has = dict(zip(AMOUNTS, (max(0, amount) for amount in there), strict=True))
    needed = {name: amount for name, amount in resources.amounts().items() if amount > has[name]}
    free = {name: has[name] for name in needed}
    available = ", ".join(_available(name, needed[name], amount) for name, amount in free.items())
    kind = f"{_hosts(len(hosts))} of its kind"
    message = f"needs {format_amounts(needed, resources.device)}; {text.format(kind, available)}"
    return Refusal(code=code, message=message, needed=needed, free=free, hosts=len(hosts))


def _available(name: str, needed: int, there: int) -> str:
    """Formats the available amount; the missing amount if the available one would read the same as the needed one."""
    shown = format_amount(name, there)
    noun = "devices" if name == "device" and there != 1 else name
    return (
        f"{shown} {noun}" if shown != format_amount(name, needed) else f"{format_amount(name, needed - there)} too little {name}"
    )


def _ahead(ahead: int, request: Request) -> str:
    if ahead == 0:
        return f"it is the first in band {request.band}"
    return f"{ahead} ahead of it in band {request.band} and above"


def _hosts(count: int) -> str:
    return f"{count} host{'' if count == 1 else 's'}"


def _groups(count: int, request: Request) -> str:
    """Formats a number of groups. Groups by `tpu-name` are called slices."""
    return f"{count} {_noun(request)}{'' if count == 1 else 's'}"


def _noun(request: Request) -> str:
    return "slice" if request.group_by == TPU_NAME else str(request.group_by)


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def _kind(device: Device | None) -> str:
    return f"{device.kind}:{device.variant}" if device else "no devices"
