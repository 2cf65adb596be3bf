"""Forecasts for `--dry-run` what would happen to a request, and on which hosts it fits."""

from collections.abc import Iterable, Mapping

from iris.model.frozen import Frozen
from iris.model.host.constraints import SCALE_GROUP
from iris.model.job.demand_limits import fitting, size_of
from iris.model.job.requests import Placement, Request, Shape
from iris.scheduling.placement.capacity import Capacity
from iris.scheduling.placement.catalog import NO_SCALE_GROUPS, Catalog
from iris.scheduling.placement.host_index import HostIndex
from iris.scheduling.placement.refusals import Refusal
from iris.scheduling.reasons.why_waiting import host_reasons, infeasible, no_scale_group

#: The maximum number of hosts that one `Fit` names; further hosts are only counted.
NAMED = 4
#: The maximum number of `Fit` entries of one forecast. On a large cluster, almost every busy host
#: has its own reason why a task does not fit.
MOST_FITS = 1_000


class Fit(Frozen):
    """Hosts of one scale group on which a task fits, or does not fit for the same reason. The names
    of the fields are keys of the JSON output.
    """

    #: The hosts' scale group; empty for hosts that joined by themselves.
    group: str = ""
    fits: bool
    why: str
    hosts: int
    #: The ids of these hosts, or of the first `NAMED` of them in order of id.
    named: tuple[str, ...]


class Forecast(Frozen):
    """The scheduler's decision about a request if it arrived now."""

    #: The hosts that the request would get at once, in the order of its tasks; empty if it would
    #: wait.
    hosts: tuple[str, ...] = ()
    #: Why the request would wait; None if it would get hosts.
    refusal: Refusal | None = None
    #: Why no host, present or to be created, could ever serve the request, or why no quota ever
    #: allows it; None if it can be served.
    infeasible: Refusal | None = None
    fits: tuple[Fit, ...] = ()


def forecast(
    index: HostIndex,
    live: Iterable[Placement],
    request: Request,
    *,
    hosts: tuple[str, ...],
    refusal: Refusal | None,
    reserved: Mapping[int, Shape],
    catalog: Catalog = NO_SCALE_GROUPS,
    never: Refusal | None = None,
) -> Forecast:
    """Returns the forecast for a request from the decision of a trial pass.

    Args:
        hosts: the hosts that the trial pass gave to the request; empty when it waits.
        refusal: why it waits; None when it has hosts.
        reserved: the hosts that the last pass reserved, each with its shape.
        catalog: the scale groups that could create slices.
        never: why no quota ever allows it; None if one does.
    """
    capacity = Capacity.of(index, live)
    capacity.keep_reserved(reserved)
    alike: dict[tuple[str, bool, str], list[str]] = {}
    for host, why in zip(index.hosts, host_reasons(index, capacity, request), strict=True):
        alike.setdefault(
            (str(host.attributes.get(SCALE_GROUP, "")), not why, why or "fits now"), []
        ).append(host.id)
    fits = [
        Fit(group=group, fits=fits, why=why, hosts=len(ids), named=tuple(sorted(ids)[:NAMED]))
        for (group, fits, why), ids in sorted(
            alike.items(), key=lambda entry: (not entry[0][1], entry[0])
        )
    ]
    fits = fitting(((fit, size_of(fit)) for fit in fits), MOST_FITS)
    present, creators = {fit.group for fit in fits}, catalog.creators(request, index)
    for group in catalog.groups:
        if group.max_slices and group.name not in present:
            absent = (
                no_scale_group(Catalog([group]), request) if group.name not in creators else None
            )
            why = (
                absent.message
                if absent is not None
                else "has no slice yet; the autoscaler can create one"
            )
            fits.append(Fit(group=group.name, fits=False, why=why, hosts=0, named=()))
    return Forecast(
        hosts=hosts,
        refusal=refusal,
        infeasible=infeasible(index, request, catalog) or never,
        fits=tuple(fits),
    )
