"""Implements `iris cluster list | status | pause | resume | tunnel`, and `iris debug tunnel`."""

from pathlib import Path
from typing import Any, NamedTuple

import click

from iris.cli.cluster.dashboard import without_dashboard
from iris.cli.command import Command
from iris.cli.parameters import (
    cluster_argument,
    cluster_option,
    config_option,
    group_option,
    json_option,
    reason_option,
)
from iris.cli.run import Known, selected, with_client
from iris.cli.show.autoscaler import (
    blocked_groups,
    counts_json,
    counts_text,
    problems,
    slice_counts,
)
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.cli.show.messages import print_json
from iris.client.access.whoami import Caller
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.clusters import START_HINT, ClusterRecord, cluster_dir, kept_records
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import Snapshot
from iris.model.errors import Rejected


def _cluster_state(record: ClusterRecord) -> str:
    """Returns the state of a cluster as this machine knows it. Does not ask the cluster."""
    if record.remote:
        return "STARTED"
    return "RUNNING" if record.alive() else "STOPPED"


CLUSTERS: Listing[ClusterRecord] = Listing(
    Column("NAME", "name", shortens=True),
    Column("STATE", "state", _cluster_state),
    Column(
        "LOCATION",
        "location",
        lambda record: record.location() if record.remote else "this machine",
        wraps=True,
        optional=True,
        importance=1,
    ),
    Column("TEMPORAL", "address", shortens=True),
    Column("WEB UI", "ui", shortens=True, optional=True),
    Column(key="store"),
    empty=f"no clusters were started from here; {START_HINT}",
)


@click.command("list", cls=Command)
@json_option
def list_clusters(as_json: bool) -> None:
    """List the clusters that were started from here. Asks none of them; `iris cluster status NAME`
    does.
    """
    CLUSTERS.show(kept_records(), as_json=as_json)


@click.command(cls=Command)
@cluster_argument
@json_option
@config_option
@cluster_option
@click.pass_context
def status(ctx: click.Context, name: str | None, file: Path | None, as_json: bool) -> None:
    """Show a cluster: its location, hosts, slices and jobs, and what blocks it."""
    chosen = selected(ctx, name, file)
    found = with_client(ctx, cluster_state, chosen, known=_known, as_json=as_json)
    if as_json:
        print_json(cluster_state_json(found))
    else:
        _print_status(found)


class ClusterState(NamedTuple):
    """The data that `iris cluster status` shows."""

    record: ClusterRecord
    scheduler: Snapshot
    autoscaler: AutoscalerStatus
    live_jobs: int
    #: The name and the role that the cluster's service has found for this client.
    caller: Caller


async def cluster_state(client: AsyncIrisClient) -> ClusterState:
    """Asks the cluster for the data that `iris cluster status` shows.

    Raises:
        Unreachable: the service or the control plane does not answer.
    """
    live = await client.jobs.count()
    return ClusterState(
        client.record,
        await client.cluster.status(),
        await client.autoscaler.status(),
        live,
        await client.cluster.whoami(),
    )


async def _known(client: AsyncIrisClient) -> Known:
    """Returns the facts of a cluster that Temporal knows, because no control plane answers."""
    live = await client.jobs.count()
    silent = (
        f"cluster {client.record.name} has {live} live job(s); its control plane does not answer"
    )
    return Known(
        f"{silent}\n{_location(client.record)}",
        "hosts, slices, waiting jobs, the autoscaler",
        {**_location_json(client.record), "live_jobs": live},
    )


def cluster_state_json(found: ClusterState) -> dict[str, Any]:
    """Returns the data as the JSON of `iris cluster status`."""
    scheduler, autoscaler = found.scheduler, found.autoscaler
    return {
        **_location_json(found.record),
        "state": "RUNNING",
        "hosts": scheduler.total_hosts,
        "live_jobs": found.live_jobs,
        "waiting": scheduler.waiting,
        "held": scheduler.held,
        "slices": counts_json(slice_counts(autoscaler)),
        "blocked": blocked_groups(autoscaler),
        "missing_hosts": [each.host_id for each in autoscaler.missing],
        "identities": found.caller.identities,
        "paused": scheduler.paused,
        "paused_groups": scheduler.paused_groups,
        "quarantined": scheduler.quarantined,
        "autoscaler": autoscaler.model_dump(
            mode="json", include={"paused", "closing", "unreachable"}
        ),
        "rules": scheduler.rules.model_dump(mode="json"),
    }


def _print_status(found: ClusterState) -> None:
    record, scheduler, autoscaler, jobs, caller = found
    click.echo(
        f"cluster {record.name} is RUNNING: {scheduler.total_hosts} host(s), {jobs} live job(s),"
        f" {scheduler.waiting} gang(s) waiting"
        + (f", {scheduler.held} held" if scheduler.held else "")
    )
    click.echo(f"  slices    {counts_text(slice_counts(autoscaler))}")
    if scheduler.paused is not None:
        click.echo(f"  PAUSED    {scheduler.paused}")
    for group, reason in scheduler.paused_groups.items():
        click.echo(f"  PAUSED    scale group {group}: {reason}")
    for group, reason in blocked_groups(autoscaler).items():
        if group not in scheduler.paused_groups:
            click.echo(f"  BLOCKED   scale group {group}: {reason}")
    for problem in problems(autoscaler):
        click.echo(f"  {problem}")
    for host, reason in scheduler.quarantined.items():
        click.echo(f"  QUARANTINED  host {host}: {reason}")
    if not scheduler.rules.preemption:
        click.echo("  priority preemption is off")
    click.echo(_location(record))
    click.echo(f"  users     {_users(caller)}")


def _users(caller: Caller) -> str:
    """Describes whether the cluster knows who its users are."""
    if not caller.identities:
        return "no identities: everyone who reaches Temporal may act as any user"
    return f"identities; you are {caller.name} ({caller.role})"


def _location_json(record: ClusterRecord) -> dict[str, Any]:
    return record.model_dump(
        mode="json",
        include={"name", "address", "namespace", "store", "ui", "dashboard", "ephemeral"},
    )


def _location(record: ClusterRecord) -> str:
    """Formats the location of the cluster: its addresses, store and machine."""
    lines = [
        f"Temporal  {record.address}, namespace {record.namespace}",
        f"dashboard {record.dashboard or without_dashboard(record)}",
        f"Web UI    {record.ui or '-'}",
        f"store     {record.store}",
    ]
    if record.vm is not None:
        lines.append(
            f"machine   {record.vm.machine} in {record.vm.zone}, project {record.vm.project};"
            " through a tunnel"
        )
    if record.ssh is not None:
        lines.append(f"machine   {record.ssh.user}@{record.ssh.machine}; through a tunnel")
    if record.supervisor is not None:
        lines.append(f"logs      {cluster_dir(record.name) / 'logs'}")
    return "\n".join(f"  {line}" for line in lines)


@click.command(cls=Command)
@group_option("Only this scale group.")
@reason_option("for the jobs that wait")
@cluster_option
@click.pass_context
def pause(ctx: click.Context, group: str | None, reason: str) -> None:
    """Place no new tasks. Running tasks continue, and waiting jobs show the reason."""
    with_client(ctx, lambda client: client.cluster.pause(reason, group))
    click.echo(
        f"{f'scale group {group}' if group else 'the cluster'} is paused; resume with: iris cluster"
        " resume"
    )


@click.command(cls=Command)
@group_option("Only this scale group.")
@cluster_option
@click.pass_context
def resume(ctx: click.Context, group: str | None) -> None:
    """Place new tasks again."""
    with_client(ctx, lambda client: client.cluster.resume(group))
    click.echo(f"{f'scale group {group}' if group else 'the cluster'} is resumed")


@click.command(cls=Command)
@cluster_argument
@json_option
@config_option
@cluster_option
@click.pass_context
def tunnel(ctx: click.Context, name: str | None, file: Path | None, as_json: bool) -> None:
    """Open a tunnel to a cluster in a cloud, and show its local address. Other commands open the
    tunnel when they need it.
    """
    show_tunnel(ctx, selected(ctx, name, file).known(), as_json)


def show_tunnel(ctx: click.Context, cluster: ClusterRef, as_json: bool) -> None:
    """Opens a tunnel to the cluster, and prints its local address when the service has answered.

    Raises:
        Rejected: the cluster needs no tunnel.
        Unreachable: the cluster does not run, or the service does not answer.
    """
    if cluster.platform != "manual":
        cluster.controller_vm("it needs no tunnel")

    async def connected(client: AsyncIrisClient) -> ClusterRecord:
        return client.record

    record = with_client(ctx, connected, cluster)
    if record.end is None:
        raise Rejected(f"cluster {record.name} is reached without a tunnel, at {record.address}")
    if as_json:
        print_json(
            record.model_dump(include={"address", "ui", "dashboard"}) | {"cluster": record.name}
        )
    else:
        click.echo(
            f"cluster {record.name} is reached at {record.address}\n"
            f"  dashboard  {record.dashboard or '-'}\n  Web UI     {record.ui}"
        )
