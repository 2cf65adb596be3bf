"""Formats the known facts of hosts, slices and scale groups while no control plane answers."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from iris.cli.run import Known
from iris.cli.show.autoscaler import group_listing
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.client.client import AsyncIrisClient
from iris.client.fleet.configure import scaling_settings
from iris.client.fleet.slices import SliceRow
from iris.client.operate.make_controller import known_config
from iris.client.operate.worker_reports import agent_reports
from iris.messages.autoscaler import AutoscalerStatus
from iris.model.errors import IrisError


class ReportedHost(NamedTuple):
    """A host whose agent reports to the Temporal service, and the time of the last report."""

    id: str
    reported_at: datetime
    started_at: datetime


_HOSTS: Listing[ReportedHost] = Listing(
    Column("ID", "id", shortens=True),
    Column("REPORTED", "reported_at"),
    Column("UP", "started_at"),
    empty="no agents",
)
_SLICES: Listing[SliceRow] = Listing(
    Column("ID", "id", shortens=True),
    Column("STATE", "state"),
    Column("GROUP", "group", lambda row: row.group or None, absent="(joined)", optional=True),
    Column("AGE", "requested_at"),
    empty="no slices",
)


async def known_hosts(client: AsyncIrisClient, host: str | None = None) -> Known:
    """Returns the hosts with agents that report to the Temporal service.

    Args:
        host: return only this host.

    Raises:
        IrisError: the service does not answer, or has no list of agents.
    """
    reports = {
        name: report
        for (name, _), report in sorted((await agent_reports(client.connection)).items())
    }
    rows = [
        ReportedHost(name, report.reported_at, report.started_at)
        for name, report in reports.items()
        if host in (None, name)
    ]
    fields = _HOSTS.json(rows[0]) if host is not None and rows else None
    return _known(
        client,
        "agents that report to Temporal",
        _HOSTS.table(rows),
        "the hosts' resources and tasks, cordons",
        fields,
    )


async def known_slices(
    client: AsyncIrisClient, wanted: Callable[[SliceRow], bool], *, one: bool = False
) -> Known:
    """Returns the wanted slices as the Temporal service lists them.

    Args:
        one: the user has named one slice.

    Raises:
        IrisError: the service does not answer.
    """
    rows: Sequence[SliceRow] = [row for row in await client.slices.listed() if wanted(row)]
    fields = _SLICES.json(rows[0]) if one and len(rows) == 1 else None
    not_asked = "changes since their last report, hosts, tasks"
    return _known(client, "slices that Temporal lists", _SLICES.table(rows), not_asked, fields)


async def known_groups(client: AsyncIrisClient, *, of_autoscaler: bool = False) -> Known:
    """Returns the scale groups of the configuration with which this machine started the cluster.

    Args:
        of_autoscaler: the user has asked for the state of the autoscaler.
    """
    try:
        groups = scaling_settings(known_config(client.record)).groups
    except IrisError as error:
        return _known(client, "its configuration is not known here", str(error), "scale groups")
    listing = group_listing(AutoscalerStatus())
    fields = {"groups": [listing.json(each) for each in groups]} if of_autoscaler else None
    not_asked = "slices and availability" + (
        ", demand, waiting jobs, actions" if of_autoscaler else ""
    )
    return _known(
        client,
        "scale groups of its last configuration from here",
        listing.table(groups),
        not_asked,
        fields,
    )


def _known(
    client: AsyncIrisClient,
    what: str,
    text: str,
    not_asked: str,
    fields: dict[str, Any] | None = None,
) -> Known:
    """Returns the known part with an explanation for people.

    Args:
        what: names the known part.
        text: the known part.
        not_asked: names the missing parts.
    """
    silent = f"the control plane of cluster {client.record.name} does not answer"
    return Known(f"{silent}; {what}:\n{text}\nnot asked: {not_asked}", not_asked, fields)
