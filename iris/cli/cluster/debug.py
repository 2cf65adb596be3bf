"""Implements `iris debug`.

Its commands are discover, ssh-status, tunnel, health, autoscaler-status, codec-server,
list-workers, logs, bootstrap-logs, list-jobs and bundle.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from iris.cli.cluster.bundle import bundle
from iris.cli.cluster.checks import CHECKS, WORKERS
from iris.cli.cluster.commands import show_tunnel
from iris.cli.cluster.debug_options import config_option, debug_options
from iris.cli.command import CommandGroup
from iris.cli.parameters import cluster_option, limit_option
from iris.cli.run import locate, selected, with_client
from iris.cli.show.autoscaler import autoscaler_json, autoscaler_text
from iris.cli.show.columns import Column
from iris.cli.show.jobs import JOBS
from iris.cli.show.listing import Listing
from iris.cli.show.messages import print_json
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.encryption import payload_keys
from iris.client.operate.codec_server import CodecServer
from iris.client.operate.debugging import PARTS, Check, Diagnostics, local_log, run_check
from iris.client.operate.discovery import Discovery, discovery
from iris.client.operate.gcp.ssh import container_log, machine_status
from iris.client.operate.make_controller import controller_of, gcp_controller
from iris.model.errors import NotFound, Rejected
from iris.model.names import ENV_PAYLOAD_KEYS

#: The text that `iris debug codec-server` prints.
_CODEC_SERVER = """\
decrypts payloads for {ui} until Ctrl-C
in the Web UI, click the glasses (Configure Codec Server), choose "Use my browser setting",
and paste:
{endpoint}
keep this address to yourself: who has it can decrypt on this machine while this command runs"""
#: The end of the error message for a cluster that is not on Google Cloud. Only there does Iris give
#: the control plane a machine of its own.
NO_MACHINE = "its control plane has no machine of its own; see: iris debug logs"
_CONTAINERS: Listing[Mapping[str, str]] = Listing(
    Column("CONTAINER", value=lambda found: found["name"]),
    Column("IMAGE", value=lambda found: found["image"]),
    Column("STATUS", value=lambda found: found["status"], wraps=True),
    empty="no containers",
)


_tail = click.option(
    "--tail",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    metavar="N",
    help="Show the last N lines.",
)


@click.group(cls=CommandGroup)
@cluster_option
@config_option
def debug() -> None:
    """Find faults in a cluster: its location, the health of its parts, and their logs.

    ssh-status, tunnel and bootstrap-logs need a cluster on Google Cloud.
    """


debug.add_command(bundle)


@debug.command()
@debug_options
@click.pass_context
def discover(ctx: click.Context, as_json: bool) -> None:
    """Show the location of a cluster and whether it runs. Opens a tunnel if the cluster needs
    one.
    """
    found = discovery(_selected(ctx))
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        click.echo(discovery_text(found))


@debug.command()
@debug_options
@click.pass_context
def health(ctx: click.Context, as_json: bool) -> None:
    """Check each part of a cluster: service, control plane, scheduler, autoscaler, hosts, store.

    Exits with 1 if a check fails.
    """
    checks = asyncio.run(_checks(_selected(ctx)))
    ok = all(each.ok for each in checks)
    if as_json:
        print_json({"ok": ok, "checks": [CHECKS.json(each) for each in checks]})
    else:
        click.echo(CHECKS.table(checks))
    ctx.exit(0 if ok else 1)


async def _checks(cluster: ClusterRef) -> list[Check]:
    """Checks the service, and through it the other parts of the cluster if the service answers."""
    await locate(cluster)
    clients: list[AsyncIrisClient] = []

    async def service() -> str:
        clients.append(await AsyncIrisClient.connect(cluster))  # queries the service
        record = clients[0].record
        return f"answers at {record.address}, namespace {record.namespace}"

    first = await run_check("service", service)
    return [first, *(await Diagnostics(clients[0]).health() if first.ok else [])]


@debug.command("codec-server")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on this machine.  [default: any free port]",
)
@debug_options
@click.pass_context
def codec_server(ctx: click.Context, port: int, as_json: bool) -> None:
    """Decrypt payloads for the Web UI, until Ctrl-C. Needs the cluster's keys: IRIS_PAYLOAD_KEYS.

    Prints an address for the settings of the Web UI in your browser. Keep it to yourself: who knows
    it can decrypt on this machine. It contains a secret that is new at each start.
    """
    keys = payload_keys()
    if keys is None:
        raise click.UsageError(f"name the file with the cluster's keys: {ENV_PAYLOAD_KEYS}=FILE")
    ui = discovery(_selected(ctx)).ui
    if not ui:
        raise Rejected("this machine does not know the address of the cluster's Web UI")
    origins = {ui, ui.replace("127.0.0.1", "localhost")}
    try:
        server = CodecServer(port, origins, keys)
    except OSError as error:
        raise Rejected(f"port {port} cannot be used: {error.strerror}") from None
    if as_json:
        print_json({"endpoint": server.endpoint, "ui": ui})
    else:
        click.echo(_CODEC_SERVER.format(ui=ui, endpoint=server.endpoint))
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


@debug.command("autoscaler-status")
@debug_options
@click.pass_context
def autoscaler_status(ctx: click.Context, as_json: bool) -> None:
    """Show the autoscaler's state, like `iris autoscaler status`."""
    found = with_client(ctx, lambda client: client.autoscaler.status(), _selected(ctx))
    if as_json:
        print_json(autoscaler_json(found))
    else:
        click.echo(autoscaler_text(found, datetime.now(UTC)))


@debug.command("list-workers")
@debug_options
@click.pass_context
def list_workers(ctx: click.Context, as_json: bool) -> None:
    """List hosts and agents: which take work, which are closed, and which do not report."""
    rows = with_client(ctx, lambda client: Diagnostics(client).workers(), _selected(ctx))
    WORKERS.show(rows, as_json=as_json)


@debug.command("list-jobs")
@limit_option(50)
@debug_options
@click.pass_context
def list_jobs(ctx: click.Context, limit: int, as_json: bool) -> None:
    """List jobs, the newest first, including ended ones."""
    rows = with_client(ctx, lambda client: client.jobs.list(limit=limit), _selected(ctx))
    JOBS.show(rows, as_json=as_json)


@debug.command()
@click.option(
    "--part",
    default=PARTS[0],
    show_default=True,
    help="Part of a local cluster: controller, supervisor, temporal or a slice.",
)
@_tail
@debug_options
@click.pass_context
def logs(ctx: click.Context, part: str, tail: int, as_json: bool) -> None:
    """Show the log of the control plane. On Google Cloud, reads the log of its container over
    SSH.
    """
    cluster = _selected(ctx)
    if cluster.platform == "local" and cluster.record is not None:
        lines = local_log(cluster.record, part, tail)
    elif cluster.platform == "gcp":
        lines = container_log(cluster.controller_vm(""), tail)
    elif cluster.platform == "manual":
        lines = (controller_of(cluster).fetch_startup_logs(tail) or "").splitlines()
    else:
        raise Rejected(
            f"the location of the control plane's log of {cluster.name} is not known; name its"
            " configuration with --config"
        )
    _show_lines(lines, as_json)


@debug.command("bootstrap-logs")
@_tail
@debug_options
@click.pass_context
def bootstrap_logs(ctx: click.Context, tail: int, as_json: bool) -> None:
    """Show the serial console of the control plane's machine on Google Cloud, with its boot
    messages.
    """
    cluster = _selected(ctx)
    console = gcp_controller(cluster, NO_MACHINE).fetch_startup_logs(tail)
    if console is None:
        raise NotFound(
            f"the control plane of {cluster.name} has no machine, or its console output is empty"
        )
    _show_lines(console.splitlines()[-tail:] if tail else [], as_json)


@debug.command("ssh-status")
@debug_options
@click.pass_context
def ssh_status(ctx: click.Context, as_json: bool) -> None:
    """Log in to the control plane's machine on Google Cloud, and show its containers, disk and
    uptime.
    """
    found = machine_status(_selected(ctx).controller_vm(NO_MACHINE))
    if as_json:
        print_json(found)
    else:
        click.echo(machine_text(found))


@debug.command()
@debug_options
@click.pass_context
def tunnel(ctx: click.Context, as_json: bool) -> None:
    """Open the tunnel to a cluster on Google Cloud, or find the open one, and show its local
    address.
    """
    show_tunnel(ctx, _selected(ctx), as_json)


def _selected(ctx: click.Context) -> ClusterRef:
    return selected(ctx).known()


def _show_lines(lines: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"lines": lines})
    else:
        click.echo("\n".join(lines) if lines else "the log is empty")


def discovery_text(found: Discovery) -> str:
    """Formats the location of a cluster, for people."""
    runs = {None: "is known by its address", True: "runs", False: "does not run"}[found.running]
    answers = "answers" if found.healthy else "does not answer"
    lines = [
        f"cluster {found.cluster} ({found.platform}) {runs}"
        + ("" if found.running is False else f", and {answers}")
    ]
    if (where := found.machine) is not None:
        lines.append(
            f"  machine   {where.name} in {where.zone}, project {where.project}: {where.status}"
        )
    shown = {
        "Temporal": f"{found.address}, namespace {found.namespace}" if found.address else "",
        "Web UI": found.ui,
        "store": found.store,
    }
    return "\n".join([*lines, *(f"  {name:<8}  {text}" for name, text in shown.items() if text)])


def machine_text(found: Mapping[str, Any]) -> str:
    """Formats the state of a machine, found by a login, for people."""
    lines = [f"{found['machine']} in {found['zone']}"]
    labels = ("hostname", "up", "load", "disk", "startup")
    lines += [f"  {label:<8}  {found[label]}" for label in labels if found.get(label)]
    return "\n".join([*lines, "", _CONTAINERS.table(found["containers"])])
