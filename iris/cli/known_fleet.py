"""Formats what is known of hosts, slices and scale groups while no control plane answers."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from iris.cli import render_fleet
from iris.cli.columns import Column, Listing
from iris.client.client import AsyncIrisClient
from iris.client.operate.worker_reports import agent_reports
from iris.client.slices import SliceRow
from iris.messages.autoscaler import AutoscalerStatus
from iris.model.errors import IrisError


class ReportedHost(NamedTuple):
    """A host whose agent reports to the Temporal service."""

    id: str
    reported_at: datetime
    started_at: datetime


_HOSTS: Listing[ReportedHost] = Listing(
    Column("ID", "id"), Column("REPORTED", "reported_at"), Column("UP", "started_at"), empty="no agents"
)
_SLICES: Listing[SliceRow] = Listing(
    Column("ID", "id"),
    Column("STATE", "state"),
    Column("GROUP", "group", lambda row: row.group or None, absent="(joined)", optional=True),
    Column("AGE", "requested_at"),
    empty="no slices",
)


async def known_hosts(client: AsyncIrisClient, host: str | None = None) -> str:
    """Returns the hosts, or one host, whose agents report to the service.

    Raises:
        IrisError: the service does not answer, or has no list of agents.
    """
    reports = {name: report for (name, _), report in sorted((await agent_reports(client.connection)).items())}
    rows = [ReportedHost(name, *report) for name, report in reports.items() if host in (None, name)]
    return _known(client, "agents that report to Temporal", _HOSTS.table(rows), "the hosts' resources and tasks, cordons")


async def known_slices(client: AsyncIrisClient, wanted: Callable[[SliceRow], bool]) -> str:
    """Returns the wanted slices as the service lists them.

    Raises:
        IrisError: the service does not answer.
    """
    rows: Sequence[SliceRow] = [row for row in await client.slices.listed() if wanted(row)]
    return _known(client, "slices that Temporal lists", _SLICES.table(rows), "changes since their last report, hosts, tasks")


async def known_groups(client: AsyncIrisClient) -> str:
    """Returns the scale groups of the configuration that the cluster was started with from here."""
    from iris.client.configuring import scaling_settings
    from iris.client.operate.controllers import known_config

    try:
        groups = scaling_settings(known_config(client.record)).groups
    except IrisError as error:
        return _known(client, "its configuration is not known here", str(error), "scale groups")
    table = render_fleet.groups(AutoscalerStatus()).table(groups)
    return _known(client, "scale groups of its last configuration from here", table, "slices and availability")


def _known(client: AsyncIrisClient, what: str, text: str, not_asked: str) -> str:
    return f"the control plane of cluster {client.record.name} does not answer; {what}:\n{text}\nnot asked: {not_asked}"
