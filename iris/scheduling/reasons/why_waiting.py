"""Decides whether hosts that exist, or new slices of a scale group, can serve a request, and why
not.

The first check that fails gives the reason. The checks have this order:

1. Is there a host of the right kind, large enough, that meets the constraints, in a group that is
   large enough?
2. Could a scale group create one?
3. Are such hosts open?
4. Do these hosts have enough free capacity, and is it not reserved for another gang?

`reason` gives one reason for the whole request, `host_reasons` one for each host, and
`no_scale_group` one for scale groups.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence

from iris.model.host.constraints import SCALE_GROUP, TPU_NAME, Constraint, Operator, written
from iris.model.host.resources import AMOUNTS, format_amount, format_amounts
from iris.model.job.demand_limits import cut
from iris.model.job.requests import Request
from iris.scheduling.placement.capacity import Capacity, shortfall
from iris.scheduling.placement.catalog import NO_SCALE_GROUPS, Catalog, on_worker_id
from iris.scheduling.placement.cluster_state import ClusterState
from iris.scheduling.placement.host_index import HostIndex, covers
from iris.scheduling.placement.phrases import (
    accept_nothing,
    best_of,
    counted,
    enlarge,
    have,
    kind_of,
    pools,
    some_hosts,
)
from iris.scheduling.placement.refusals import INFEASIBLE, LEAVING, REPAIR, Refusal, RefusalCode

#: The maximum number of constraints for which one refusal counts the excluded hosts.
MOST_EXCLUDED = 8
#: The maximum number of groups, kinds of devices or values that a message names.
MOST_NAMED = 5
#: The codes of refusals that more hosts could end. These refusals also contain the autoscaler's
#: message about the request.
_MORE_HOSTS_HELP = INFEASIBLE | {RefusalCode.SCALING, RefusalCode.BUSY, RefusalCode.CLOSED}


def reason(state: ClusterState, request: Request) -> Refusal:
    """Returns why the request has no hosts now, and what the autoscaler does about it."""
    if state.paused is not None:
        paused = f"the cluster is paused: {cut(state.paused)}".removesuffix(": ")
        return Refusal(
            code=RefusalCode.PAUSED,
            message=paused,
            remedy="resume the cluster: iris cluster resume",
        )
    absent, outlook = _no_host(state.host_index, request), state.outlooks.get(request.shape)
    if absent is None:
        refusal = _occupied(state, request)
    else:
        # The autoscaler has no prospects although the configuration promises such hosts: the slices
        # turned out to be smaller.
        hopeless = outlook is not None and not outlook.possible
        never = _unserved(state.host_index, request, state.catalog)
        refusal = never or (absent if hopeless else _to_be_created(absent, state, request))
    if outlook is None or refusal.code not in _MORE_HOSTS_HELP:
        return refusal
    # The reason of an infeasible request has parts of this text already.
    message = _joined(refusal.message, outlook.message)
    return refusal.model_copy(
        update={"message": message, "scaling": outlook.message, "since": outlook.since}
    )


def infeasible(
    index: HostIndex, request: Request, catalog: Catalog = NO_SCALE_GROUPS
) -> Refusal | None:
    """Returns why no host and no new slice could ever serve the request; None when one could.

    Busy and closed hosts count as hosts that could. A gang for which no slice is created may still
    run on slices that are created for other jobs or for `min_slices`.
    """
    return None if catalog.fits_slices_of_others(request) else _unserved(index, request, catalog)


def _unserved(index: HostIndex, request: Request, catalog: Catalog) -> Refusal | None:
    """Returns why no present host could ever serve the request, and no slice is created for it."""
    refusal = _no_host(index, request)
    if refusal is None or not any(group.max_slices for group in catalog.groups):
        return refusal
    uncreatable = no_scale_group(catalog, request)
    if uncreatable is None or catalog.mixed(request, index):
        return None
    code = uncreatable.code if refusal.code is RefusalCode.NO_HOSTS else refusal.code
    # True if new hosts are as large as the present ones.
    alike = (refusal.code, refusal.free) == (uncreatable.code, uncreatable.free)
    message = (
        uncreatable.message
        if alike and refusal.free
        else _joined(refusal.message, uncreatable.message)
    )
    return refusal.model_copy(
        update={"code": code, "message": message, "remedy": uncreatable.remedy}
    )


def _joined(message: str, further: str) -> str:
    """Returns a reason with the parts of another reason that it does not contain yet. A part that
    was cut ends with "…".
    """
    return "; ".join(
        [message, *(part for part in further.split("; ") if part.removesuffix("…") not in message)]
    )


def no_scale_group(catalog: Catalog, request: Request) -> Refusal | None:
    """Returns why no new slice of any scale group could ever serve the request; None when one
    could.
    """
    if catalog.candidates(request) or catalog.mixed(request):
        return None
    if not catalog.groups:
        return Refusal(
            code=RefusalCode.NO_HOSTS,
            message="the configuration has no scale group",
            remedy="add a scale group",
        )
    index = catalog.all_hosts if on_worker_id(request.required) else catalog.host_index
    return _unsuitable(index, request) or _slices_too_few(catalog, request)


def _no_host(index: HostIndex, request: Request) -> Refusal | None:
    """Returns why no present host could ever serve the request; None when some could."""
    if not index.hosts:
        return Refusal(
            code=RefusalCode.NO_HOSTS,
            message="no host has joined the cluster",
            needed=request.resources.amounts(),
            remedy="add a host: iris agent --join",
        )
    if index.feasible(request):  # a fast check for the usual case
        return None
    refusal = _unsuitable(index, request)
    return (
        _groups_too_small(index, request)
        if refusal is None and request.group_by is not None
        else refusal
    )


def _unsuitable(index: HostIndex, request: Request) -> Refusal | None:
    """Returns why no host of the index could run one task of the request, if it were empty; None
    when some could.
    """
    if not (of_kind := index.of_kind(request)):
        return _no_device(index, request)
    if not (large := index.large_enough(request)):
        return _too_big(index, request, of_kind)
    return (
        None
        if index.matching(request, large)
        else _constraints(index, request, large, request.required)
    )


def _no_device(index: HostIndex, request: Request) -> Refusal:
    wanted, noun = request.resources.device, _noun_of(index)
    by_kind: dict[str, list[int]] = {}
    for number, host in enumerate(index.hosts):
        by_kind.setdefault(kind_of(host.resources.device), []).append(number)
    name = kind_of(wanted)
    near = (
        difflib.get_close_matches(name, sorted(by_kind.keys() - {kind_of(None)}), n=1, cutoff=0.5)
        if wanted
        else []
    )
    kinds = sorted(by_kind, key=lambda kind: (kind not in near, kind == kind_of(None), kind))
    on = "on" if noun == "host" else "in"
    there = ", ".join(f"{kind} {on} {_these(index, by_kind[kind])}" for kind in kinds[:MOST_NAMED])
    there += " …" if len(kinds) > MOST_NAMED else ""
    if wanted is None:
        message = f"no {noun} accepts tasks without devices ({there})"
        setting = "--accept-cpu-jobs" if noun == "host" else "accept_cpu_jobs: true"
        remedy = f"add a {noun} without devices, or one with {setting}"
    else:
        message = f"no {noun} has {name} ({there})"
        remedy = (
            f"{f'request the nearest available, {near[0]}, or ' if near else ''}add a {noun} with"
            f" {name}"
        )
    return Refusal(
        code=RefusalCode.NO_DEVICE,
        message=message,
        needed=request.resources.amounts(),
        hosts=len(index.hosts),
        remedy=remedy,
    )


def _too_big(index: HostIndex, request: Request, of_kind: list[int]) -> Refusal:
    largest = min(
        of_kind, key=lambda n: shortfall(index.hosts[n].resources.vector, request.shape.amounts)
    )
    where = f"a host of {_these(index, [largest])}"
    if _noun_of(index) == "host":
        where = f"{best_of(len(of_kind), 'largest', 'host')} of this kind"
    vector = index.hosts[largest].resources.vector
    refusal = _short(RefusalCode.TOO_BIG, request, vector, of_kind, f"{where} has {{}} when empty")
    remedy = (
        "request at most"
        f" {format_amounts(refusal.free, request.resources.device)}{request.sharing}, or add larger"
        " hosts"
    )
    return refusal.model_copy(update={"remedy": remedy})


def _constraints(
    index: HostIndex, request: Request, large: list[int], required: list[Constraint]
) -> Refusal:
    """Returns a refusal that says how many hosts the constraints exclude.

    Args:
        large: the hosts that are large enough.
        required: the constraints that decide.
    """
    failing = {each: [n for n in large if not each.holds(index.facts(n))] for each in required}
    worst = max(required, key=lambda each: len(failing[each]))
    most = sorted(
        ((cut(str(each)), len(numbers)) for each, numbers in failing.items()),
        key=lambda entry: -entry[1],
    )
    values = sorted(
        {cut(written(index.facts(n)[worst.key])) for n in large if worst.key in index.facts(n)}
    )
    is_there = (
        f"{worst.key} is {', '.join(values[:MOST_NAMED])}{' …' if len(values) > MOST_NAMED else ''}"
    )
    is_there = is_there if values else f"none has {worst.key}"
    if _noun_of(index) == "host":
        whole = f"{some_hosts(len(large))} that {'is' if len(large) == 1 else 'are'} large enough"
    else:
        parts = (
            f"{some_hosts(len(large))} of new slices"
            if on_worker_id(request.required)
            else counted(len(large), "zone")
        )
        whole = f"{parts} of {_these(index, large)}"
    others = "" if len(request.required) == 1 else f"; {len(request.required)} constraints in all"
    return Refusal(
        code=RefusalCode.CONSTRAINTS,
        message=f"{cut(str(worst))} excludes {len(failing[worst])} of {whole} ({is_there}){others}",
        hosts=len(large),
        excluded=dict(most[:MOST_EXCLUDED]),
        remedy=_remedy_of(worst, request),
    )


def _remedy_of(worst: Constraint, request: Request) -> str:
    comes_from_gang = worst.op is Operator.EXISTS and worst.key == request.group_by != TPU_NAME
    if comes_from_gang:
        return (
            f"give --gang-by an attribute that hosts have, such as zone; {cut(worst.key)} is none"
        )
    return f"drop or widen the constraint {cut(str(worst))}"


def _groups_too_small(index: HostIndex, request: Request) -> Refusal | None:
    each, could = request.group_size, index.matching(request, index.large_enough(request))
    sizes = sorted(
        (len(members) for members in index.grouped(request, could).values()), reverse=True
    )
    there, enough = _groups(len(sizes), request), sum(size >= each for size in sizes)
    if enough >= request.groups:
        return None
    if request.groups == 1:
        message = (
            f"needs {some_hosts(each)} in one {_group(request)}; the largest of {there} has"
            f" {sizes[0]}"
        )
    else:
        message = (
            f"needs {_groups(request.groups, request)} of {some_hosts(each)}; {enough} of {there}"
            f" {have(enough)} that many"
        )
    return Refusal(
        code=RefusalCode.NO_GROUP,
        message=message,
        hosts=len(could),
        group_needs=each,
        group_has=sizes[0],
        remedy=f"request fewer tasks, or add a larger {_group(request)}",
    )


def _slices_too_few(catalog: Catalog, request: Request) -> Refusal:
    """Returns why the slices of groups with suitable hosts have too few hosts, or why there can be
    too few of them.
    """
    index = catalog.host_index
    large = index.large_enough(request)
    suitable = {
        group.name: group
        for group in map(catalog.group_of, sorted(large))
        if catalog.zones(group, request)
    }
    if not suitable:  # only some hosts of each slice meet the constraints
        every = catalog.all_hosts
        return _constraints(
            every, request, every.large_enough(request), on_worker_id(request.required)
        )
    groups, each = list(suitable.values()), request.group_size
    if request.group_by == TPU_NAME and all(group.hosts != each for group in groups):
        near = min(groups, key=lambda group: (abs(group.hosts - each), group.name))
        message = (
            f"needs {some_hosts(each)} in one slice; the slices of scale group {near.name} have"
            f" {near.hosts}"
        )
        remedy = (
            f"request {near.hosts} tasks for each slice, or add a scale group with slices of"
            f" {some_hosts(each)}"
        )
    elif request.group_by in (None, TPU_NAME):
        exact = [group for group in groups if request.group_by is None or group.hosts == each]
        most = max(exact, key=lambda group: (group.max_slices, group.name))
        needed = counted(request.groups, "slice")
        message = (
            f"needs {needed};"
            f" {pools([most]) or f'scale group {most.name} has max_slices {most.max_slices}'}"
        )
        remedy = enlarge([most]) or f"increase max_slices of scale group {most.name}"
    else:
        shared = f"{request.groups} x {some_hosts(each)} that share {request.group_by}"
        message = (
            f"needs {shared}; {pools(groups) or 'all scale groups together may not have that many'}"
        )
        remedy = enlarge(groups) or "request fewer tasks, or increase max_slices of a scale group"
    return Refusal(code=RefusalCode.NO_GROUP, message=message, hosts=len(large), remedy=remedy)


def _to_be_created(absent: Refusal, state: ClusterState, request: Request) -> Refusal:
    names = state.catalog.creators(request, state.host_index)
    return Refusal(
        code=RefusalCode.SCALING,
        message=f"no present host can serve it; {_named_groups(names)} can create a slice that can",
        needed=absent.needed,
        hosts=absent.hosts,
        remedy="wait for the new slice: iris autoscaler status",
    )


def _occupied(state: ClusterState, request: Request) -> Refusal:
    """Returns why the hosts that could serve the request do not take it now."""
    index, reserved = state.host_index, state.reserved
    candidates = index.candidates(request)
    if not index.feasible(request):
        return _closed(index, request)
    if state.capacity.find(request) is None:
        busy = _busy(index, state.capacity, request, candidates.hosts)
        lower = sum(band.rank > request.band.rank for band in state.evicting)
        if (
            not lower
            or state.after_evictions is None
            or state.after_evictions.find(request) is None
        ):
            return busy
        evicted = (
            f"{lower} lower-priority gang{'s are' if lower > 1 else ' is'} being evicted to free"
            " capacity for it"
        )
        update = {
            "code": RefusalCode.EVICTING,
            "message": evicted,
            "remedy": "wait until they have stopped",
        }
        return busy.model_copy(update=update)
    needed, hosts = request.resources.amounts(), len(candidates.hosts)
    if reserved is None or reserved.find(request) is not None:
        message = "there is enough free capacity; the next scheduling pass decides"
        return Refusal(code=RefusalCode.QUEUED, message=message, needed=needed, hosts=hosts)
    others = sum(reserved.reserved.get(n, request.shape) != request.shape for n in candidates.hosts)
    return Refusal(
        code=RefusalCode.KEPT,
        message=(
            f"the free capacity on {some_hosts(others)} is reserved for gangs ahead of this one in"
            " the queue"
        ),
        needed=needed,
        hosts=hosts,
        remedy="wait until those gangs have started, or until other hosts have free capacity",
    )


def _closed(index: HostIndex, request: Request) -> Refusal:
    could = index.matching(request, index.large_enough(request))
    causes = {n: cause for n in could if (cause := index.closed(index.hosts[n])) is not None}
    counts = ", ".join(
        f"{count} {cut(cause)}" for cause, count in Counter(causes.values()).most_common(3)
    )
    broken = all(index.hosts[n].fault for n in could)
    leave = all(index.is_leaving(index.hosts[n]) for n in causes)
    return Refusal(
        code=RefusalCode.CLOSED,
        message=(
            f"{len(causes)} of {counted(len(could), 'suitable host')}"
            f" {accept_nothing(len(causes))}: {counts}"
        ),
        hosts=len(could),
        remedy=(
            REPAIR
            if broken
            else LEAVING
            if leave
            else "open them: iris host uncordon, iris cluster resume"
        ),
    )


def _busy(index: HostIndex, capacity: Capacity, request: Request, candidates: list[int]) -> Refusal:
    """Returns a BUSY refusal with the amounts of the host, or the group of hosts, that lacks the
    least.
    """
    amounts, each = request.shape.amounts, request.group_size
    if request.group_by is None:
        free = capacity.free[min(candidates, key=lambda n: shortfall(capacity.free[n], amounts))]
        best = best_of(len(candidates), "best", "suitable host")
        refusal = _short(RefusalCode.BUSY, request, free, candidates, f"{best} has {{}} free")
        return refusal.model_copy(update={"remedy": "wait until running tasks end, or add a host"})
    groups = index.candidates(request).groups
    fitting = sorted(
        (len(capacity.fitting(members, request.shape)) for members in groups.values()), reverse=True
    )
    there = _groups(len(groups), request)
    if request.groups == 1:
        message = (
            f"needs {counted(each, 'free host')} in one {_group(request)}; the best of {there} has"
            f" {fitting[0]}"
        )
    else:
        enough = sum(count >= each for count in fitting)
        needs = f"{_groups(request.groups, request)} with {counted(each, 'free host')} each"
        message = f"needs {needs}; {enough} of {there} {have(enough)} that many"
    return Refusal(
        code=RefusalCode.BUSY,
        message=message,
        needed=request.resources.amounts(),
        hosts=len(candidates),
        group_needs=each,
        group_has=fitting[0],
        remedy=f"wait until running tasks end, or add a {_group(request)}",
    )


def _short(
    code: RefusalCode, request: Request, there: Sequence[int], hosts: list[int], text: str
) -> Refusal:
    """Returns a refusal with the resources that are short on a host.

    Args:
        there: the amounts of the host that lacks the least.
        hosts: the hosts that passed the earlier checks.
        text: the part of the message about that host, with `{}` in place of its amounts.
    """
    resources = request.resources
    has = dict(zip(AMOUNTS, (max(0, amount) for amount in there), strict=True))
    needed = {name: amount for name, amount in resources.amounts().items() if amount > has[name]}
    free = {name: has[name] for name in needed}
    available = ", ".join(_available(name, needed[name], amount) for name, amount in free.items())
    message = (
        f"needs {format_amounts(needed, resources.device)}{request.sharing};"
        f" {text.format(available)}"
    )
    return Refusal(code=code, message=message, needed=needed, free=free, hosts=len(hosts))


def host_reasons(index: HostIndex, capacity: Capacity, request: Request) -> list[str]:
    """Returns for each host of the index why a task of the request does not fit there now; an empty
    text for a host where it fits.
    """
    of_kind, large = set(index.of_kind(request)), set(index.large_enough(request))
    matching, candidates = set(index.matching(request, large)), index.candidates(request)
    each, shape = request.group_size, request.shape
    free_in = {
        name: len(capacity.fitting(members, shape)) for name, members in candidates.groups.items()
    }

    def why(number: int) -> str:
        host = index.hosts[number]
        if number not in of_kind:
            device = host.resources.device
            if device is None or request.resources.device is not None:
                return f"has {kind_of(device)}"
            return f"accepts only tasks that request its {device}"
        if number not in large:
            return f"too small: has {_of_needed(host.resources.vector, request)}"
        if number not in matching:
            failed = next(
                constraint
                for constraint in request.required
                if not constraint.holds(index.facts(number))
            )
            value = index.facts(number).get(failed.key)
            if value is None:
                return f"has no {cut(failed.key)}"
            return f"excluded by {cut(str(failed))}: its {cut(failed.key)} is {cut(written(value))}"
        if (closed := index.closed(host)) is not None:
            return closed
        if not capacity.takes(number, shape):
            if covers(capacity.free[number], shape.amounts):
                return "reserved for a gang ahead in the queue"
            return f"busy: {_of_needed(capacity.free[number], request)} free"
        if request.group_by is None:
            return ""
        free = free_in.get(index.group_of(number, request))
        if free is None:
            return f"its {_group(request)} has fewer than {each} suitable hosts"
        return (
            ""
            if free >= each
            else f"only {free} of the {each} hosts needed in its {_group(request)} are free"
        )

    return [why(number) for number in range(len(index.hosts))]


def _of_needed(there: Iterable[int], request: Request) -> str:
    return ", ".join(
        f"{format_amount(name, max(0, has))} of {format_amount(name, needed)}"
        f" {'devices' if name == 'device' else name}"
        for name, has, needed in zip(AMOUNTS, there, request.shape.amounts, strict=True)
        if needed > max(0, has)
    )


def _available(name: str, needed: int, there: int) -> str:
    """Formats the available amount, or the missing amount if the available one would look equal to
    the needed one.
    """
    shown = format_amount(name, there)
    if shown == format_amount(name, needed):
        return f"{format_amount(name, needed - there)} too little {name}"
    return f"{shown} {'devices' if name == 'device' and there != 1 else name}"


def _noun_of(index: HostIndex) -> str:
    """Returns the noun for the entries of the index: hosts that exist, or scale groups for hosts of
    slices that do not exist yet.
    """
    return "host" if index.hosts[0].id else "scale group"


def _these(index: HostIndex, numbers: Iterable[int]) -> str:
    """Returns the number of hosts, or, for hosts that do not exist yet, the names of their scale
    groups.
    """
    numbers = list(numbers)
    if _noun_of(index) == "host":
        return some_hosts(len(numbers))
    return _named_groups(
        list(dict.fromkeys(str(index.hosts[n].attributes[SCALE_GROUP]) for n in numbers))
    )


def _named_groups(names: Sequence[str]) -> str:
    return (
        f"scale group{'s' if len(names) > 1 else ''}"
        f" {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
    )


def _groups(count: int, request: Request) -> str:
    return counted(count, _group(request))


def _group(request: Request) -> str:
    """Returns the noun for a group of hosts. Groups by `tpu-name` are called slices."""
    return "slice" if request.group_by == TPU_NAME else str(request.group_by)
