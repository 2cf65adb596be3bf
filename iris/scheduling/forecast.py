"""Forecasts what would happen to a request, host by host, for `--dry-run` and for the warning about jobs that can never run."""

from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ConfigDict

from iris.model.bounds import cut
from iris.model.constraints import SCALE_GROUP, written
from iris.model.requests import Placement, Request, Shape
from iris.model.resources import AMOUNTS, format_amount
from iris.scheduling.capacity import Capacity
from iris.scheduling.host_index import HostIndex, covers
from iris.scheduling.refusals import Refusal
from iris.scheduling.scalable import Scalable

#: The most hosts that one verdict names; the others are only counted.
NAMED = 4


class Fit(BaseModel):
    """The verdict on a set of hosts of one scale group: why one task of the request fits there, or why it does not."""

    model_config = ConfigDict(frozen=True)

    #: The hosts' scale group; empty for hosts that joined by themselves.
    group: str = ""
    fits: bool
    why: str
    hosts: int
    #: The ids of the first hosts, in order of id.
    named: tuple[str, ...]


class Forecast(BaseModel):
    """The scheduler's answer to a request if it arrived now."""

    model_config = ConfigDict(frozen=True)

    #: The hosts that it would get at once, in the order of its tasks; empty when it would wait.
    hosts: tuple[str, ...] = ()
    #: Why it would wait.
    refusal: Refusal | None = None
    #: Why no host of the cluster could ever serve it; None when some host could.
    never: Refusal | None = None
    verdicts: tuple[Fit, ...] = ()


def forecast(
    fleet: HostIndex,
    live: Iterable[Placement],
    request: Request,
    *,
    hosts: tuple[str, ...],
    refusal: Refusal | None,
    kept: Mapping[int, Shape],
    potential: Scalable | None = None,
) -> Forecast:
    """Returns the forecast for a request from the decision of a trial pass.

    Args:
        hosts: the hosts that the trial pass gave to the request; empty when it waits.
        refusal: why it waits; None when it has hosts.
        kept: the hosts that the last pass reserved, each with its shape.
        potential: the slices that the autoscaler can make.
    """
    rooms = Capacity(fleet, live)
    rooms.kept.update(kept)
    counted: dict[tuple[str, bool, str], list[str]] = {}
    for number, host in enumerate(fleet.hosts):
        why = _why_not(fleet, rooms, number, request)
        group = str(host.attributes.get(SCALE_GROUP, ""))
        counted.setdefault((group, not why, why or "fits now"), []).append(host.id)
    verdicts = [
        Fit(group=group, fits=fits, why=why, hosts=len(ids), named=tuple(sorted(ids)[:NAMED]))
        for (group, fits, why), ids in sorted(counted.items(), key=lambda entry: (not entry[0][1], entry[0]))
    ]
    potential = potential or Scalable()
    there = {verdict.group for verdict in verdicts}
    could = potential.could_make(request)
    to_be_made = {**dict.fromkeys(could, "has no slice yet; one can be made"), **potential.cannot_make(request)}
    verdicts += [
        Fit(group=group, fits=False, why=why, hosts=0, named=()) for group, why in to_be_made.items() if group not in there
    ]
    return Forecast(hosts=hosts, refusal=refusal, never=potential.infeasible(fleet, request), verdicts=tuple(verdicts))


def _why_not(fleet: HostIndex, rooms: Capacity, number: int, request: Request) -> str:
    """Returns why one task of the request could not go to this host now; empty when it could."""
    host = fleet.hosts[number]
    if not host.may_run(request.resources):
        device = host.resources.device
        if device is None:
            return "has no devices"
        return (
            f"has {device.kind}:{device.variant}" if request.resources.device else f"keeps its {device} for tasks that use them"
        )
    if not covers(host.resources.vector, request.shape.amounts):
        return f"is too small: {_amounts(host.resources.vector, request)}"
    for constraint in request.constraints:
        if not constraint.preferred and not constraint.holds(fleet.facts(number)):
            has = fleet.facts(number).get(constraint.key)
            return f"fails {cut(str(constraint))}" + ("" if has is None else f": it is {cut(written(has))}")
    if request.group_by is not None and request.group_by not in fleet.facts(number):
        return f"has no {request.group_by}"
    if (closed := fleet.closed(host)) is not None:
        return closed
    if not rooms.takes(number, request.shape):
        if not covers(rooms.free[number], request.shape.amounts):
            return f"is busy: {_amounts(rooms.free[number], request)}"
        return "is kept for a gang whose turn came first"
    return _group_too_small(fleet, rooms, number, request) if request.group_by is not None else ""


def _group_too_small(fleet: HostIndex, rooms: Capacity, number: int, request: Request) -> str:
    each = request.group_size
    members = fleet.candidates(request).groups.get(fleet.group_of(number, request), ())
    if len(members) < each:
        return f"its group has too few hosts: {each} are needed"
    free = len(rooms.fitting(members, request.shape))
    return "" if free >= each else f"of its group only {free} of the {each} needed are free"


def _amounts(there: Iterable[int], request: Request) -> str:
    short = [
        f"{format_amount(name, max(0, has))} of {format_amount(name, wanted)} {'devices' if name == 'device' else name}"
        for name, has, wanted in zip(AMOUNTS, there, request.shape.amounts, strict=True)
        if wanted > max(0, has)
    ]
    return ", ".join(short)
