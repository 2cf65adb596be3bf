"""Implements `iris debug`.

Its commands are discover, ssh-status, tunnel, health, autoscaler-status, list-workers, logs, bootstrap-logs and list-jobs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from iris.cli import debug_render, render, render_fleet
from iris.cli.common import cluster_option, json_option, print_json, with_client
from iris.cli.tunnel import show_tunnel
from iris.client.client import IrisClient
from iris.client.operate.cluster_ref import Subject, discovery, subject
from iris.client.operate.controller_ssh import container_log, look
from iris.client.operate.debugging import PARTS, Check, DebugClient, checked, local_log
from iris.client.operate.scaling import FleetClient
from iris.model.errors import NotFound, Rejected

NO_MACHINE = "its control plane has no machine of its own; see: iris debug logs"
T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])


def _meant_file(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.find_root().obj["config"] = value


config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    expose_value=False,
    callback=_meant_file,
    help="The cluster of this configuration.",
)
_tail = click.option("--tail", type=click.IntRange(min=0), default=100, show_default=True, metavar="N", help="Its last N lines.")


def looking(command: Function) -> Function:
    """Adds the options of every debug command: configuration, cluster and JSON."""
    for option in (json_option, cluster_option, config_option):
        command = option(command)
    return command


@click.group()
@cluster_option
@config_option
def debug() -> None:
    """Find out what is wrong with a cluster: where it is, which of its parts answer, and what they log.

    All but ssh-status, tunnel and bootstrap-logs work with any cluster.
    """


@debug.command()
@looking
@click.pass_context
def discover(ctx: click.Context, as_json: bool) -> None:
    """Show where a cluster is and whether it runs. Starts nothing but a tunnel."""
    found = discovery(meant(ctx))
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        click.echo(debug_render.discovery_text(found))


@debug.command()
@looking
@click.pass_context
def health(ctx: click.Context, as_json: bool) -> None:
    """Check each part of a cluster by itself: service, control plane, planners, hosts, store.

    Exits with 1 if a check fails.
    """
    looked_at = meant(ctx)
    checks = asyncio.run(_checks(looked_at.reached()))
    ok = all(each.ok for each in checks)
    if as_json:
        print_json({"ok": ok, "checks": [debug_render.CHECKS.json(each) for each in checks]})
    else:
        click.echo(debug_render.CHECKS.table(checks))
    ctx.exit(0 if ok else 1)


async def _checks(cluster: str | None) -> list[Check]:
    clients: list[IrisClient] = []

    async def service() -> str:
        clients.append(await IrisClient.connect(cluster))  # queries the service
        record = clients[0].cluster
        return f"answers at {record.address}, namespace {record.namespace}"

    first = await checked("service", service)
    return [first, *(await DebugClient.of(clients[0]).health() if first.ok else [])]


@debug.command("autoscaler-status")
@looking
@click.pass_context
def autoscaler_status(ctx: click.Context, as_json: bool) -> None:
    """Show what the autoscaler has, wants, waits for and did, like `iris autoscaler status`."""
    found = _ask(ctx, lambda client: FleetClient.of(client).autoscaler())
    if as_json:
        print_json(render_fleet.autoscaler_json(found))
    else:
        click.echo(render_fleet.autoscaler_text(found, datetime.now(UTC)))


@debug.command("list-workers")
@looking
@click.pass_context
def list_workers(ctx: click.Context, as_json: bool) -> None:
    """List hosts and agents: which take work, which report but take none, and which are silent."""
    rows = _ask(ctx, lambda client: DebugClient.of(client).workers())
    debug_render.WORKERS.show(rows, as_json=as_json)


@debug.command("list-jobs")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@looking
@click.pass_context
def list_jobs(ctx: click.Context, limit: int, as_json: bool) -> None:
    """List jobs, the newest first, including ended ones."""
    rows = _ask(ctx, lambda client: client.jobs(limit=limit))
    render.JOBS.show(rows, as_json=as_json)


@debug.command()
@click.option(
    "--part", default=PARTS[0], show_default=True, help="Of a local cluster: controller, supervisor, temporal, a slice."
)
@_tail
@looking
@click.pass_context
def logs(ctx: click.Context, part: str, tail: int, as_json: bool) -> None:
    """Show the log of the control plane; on Google Cloud that of its container, read over SSH."""
    looked_at = meant(ctx)
    if looked_at.platform == "local" and looked_at.record is not None:
        lines = local_log(looked_at.record, part, tail)
    elif looked_at.platform == "gcp":
        lines = container_log(looked_at.gate(""), tail)
    else:
        raise Rejected(
            f"where the control plane of {looked_at.name} keeps its log is not known; name its configuration: --config"
        )
    _show_lines(lines, as_json)


@debug.command("bootstrap-logs")
@_tail
@looking
@click.pass_context
def bootstrap_logs(ctx: click.Context, tail: int, as_json: bool) -> None:
    """Show the serial console of the control plane's machine on Google Cloud, with its boot messages."""
    looked_at = meant(ctx)
    said = looked_at.controller(NO_MACHINE).fetch_startup_logs(tail)
    if said is None:
        raise NotFound(f"the control plane of {looked_at.name} has no machine, or its console is empty")
    _show_lines(said.splitlines()[-tail:] if tail else [], as_json)


@debug.command("ssh-status")
@looking
@click.pass_context
def ssh_status(ctx: click.Context, as_json: bool) -> None:
    """Log in to the control plane's machine on Google Cloud, and show its containers, disk and uptime."""
    found = look(meant(ctx).gate(NO_MACHINE))
    if as_json:
        print_json(found)
    else:
        click.echo(debug_render.machine_text(found))


@debug.command()
@looking
@click.pass_context
def tunnel(ctx: click.Context, as_json: bool) -> None:
    """Open the tunnel to a cluster on Google Cloud, or find the open one, and show its local address."""
    show_tunnel(meant(ctx), as_json)


def meant(ctx: click.Context) -> Subject:
    """Returns the cluster that the options name, or the only one that runs here."""
    asked = ctx.find_root().obj
    return subject(asked["cluster"], asked.get("config"))


def _ask(ctx: click.Context, work: Callable[[IrisClient], Awaitable[T]]) -> T:
    """Connects to the cluster and runs `work`."""
    ctx.find_root().obj["cluster"] = meant(ctx).reached()
    return with_client(ctx, work)


def _show_lines(lines: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"lines": lines})
    else:
        click.echo("\n".join(lines) if lines else "nothing was said")
