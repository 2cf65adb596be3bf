"""Implements `iris cluster start | list | status | pause | resume`.

The other commands of the group are in the modules beside this one.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from iris.cli.cluster import lifecycle, start_elsewhere
from iris.cli.cluster.config import config
from iris.cli.cluster.init import init
from iris.cli.cluster.validate import validate
from iris.cli.command import CommandGroup
from iris.cli.interrupts import interrupted_start
from iris.cli.parameters import (
    CPU,
    DEVICE,
    DISK,
    DURATION,
    KEY_VALUE,
    MEMORY,
    Parsed,
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
from iris.cli.show.progress import Steps
from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import (
    START_HINT,
    ClusterRecord,
    check_is_free,
    cluster_dir,
    kept_records,
    read_record,
)
from iris.config import (
    ClusterConfig,
    dump_config,
    load_config,
    local_config,
    make_local_config,
    with_rules,
)
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import Snapshot
from iris.model.errors import IrisError
from iris.model.host import accelerators
from iris.model.host.constraints import parse_attribute
from iris.model.host.resources import Device
from iris.model.names import check_name
from iris.platforms.local import MAX_LOCAL_HOSTS

if TYPE_CHECKING:
    from iris.worker_agents.local.cluster import LocalClusterOptions

#: The value is an `accelerators.Tpu`.
TPU = Parsed("variant", accelerators.tpu)
#: The options of `iris cluster start` that describe machines. They exclude a configuration file.
_MACHINES = ("hosts", "tpu", "slices", "cpu", "memory", "disk", "device", "attribute")


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


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Start, stop, show and pause clusters."""


for command in (init, config, validate, *lifecycle.COMMANDS):
    cluster.add_command(command)


@cluster.command()
@click.option(
    "--local",
    is_flag=True,
    help="Start it on this machine: a Temporal dev server, a control plane and hosts.",
)
@click.option("-d", "--detach", is_flag=True, help="Run in the background.")
@click.option(
    "--name",
    help="Name of the cluster; several can run at once.  [default: the configuration's, or local]",
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Configuration file; with --local, its scale groups are simulated.",
)
@click.option(
    "--hosts",
    type=click.IntRange(min=0, max=MAX_LOCAL_HOSTS),
    help="Number of hosts.  [default: 1]",
)
@click.option(
    "--tpu",
    type=TPU,
    help="Also simulate a TPU slice, such as v5litepod-16, with one host for each of its machines.",
)
@click.option("--slices", type=click.IntRange(min=1), help="Number of TPU slices.  [default: 1]")
@click.option("--ephemeral", is_flag=True, help="Delete all data when the cluster stops.")
@click.option(
    "--agents",
    type=click.Choice(["shared", "separate"]),
    help=(
        "Whether the hosts of a slice share a process.  [default: shared in slices of more than 4"
        " hosts]"
    ),
)
@click.option(
    "--cpu",
    type=CPU,
    help="Cores that each host offers.  [default: 1000; in a slice: those of the real machine]",
)
@click.option(
    "--memory",
    type=MEMORY,
    help="Memory that each host offers.  [default: 1000g; in a slice: that of the real machine]",
)
@click.option("--disk", type=DISK, help="Disk that each host offers.  [default: 1000g]")
@click.option(
    "--device",
    type=DEVICE,
    help="Device that each host outside TPU slices offers: KIND:VARIANT:COUNT.",
)
@click.option(
    "--attribute",
    type=KEY_VALUE,
    multiple=True,
    metavar="KEY=VALUE",
    help="Attribute of each host outside TPU slices. Repeatable.",
)
@click.option(
    "--preemption/--no-preemption",
    default=None,
    help="Whether jobs in higher-priority bands evict others.  [default: preemption]",
)
@click.option(
    "--patience",
    type=DURATION,
    help="How long smaller jobs may be placed before a waiting job.  [default: 10m]",
)
@click.option(
    "--min-run-time",
    type=DURATION,
    help="How long a job runs before it can be evicted.  [default: 2m]",
)
@click.option("--dry-run", is_flag=True, help="Show the requests to the cloud, and start nothing.")
@click.option(
    "--new",
    is_flag=True,
    help="Fail if the cluster exists elsewhere, and delete it if it does not come up.",
)
@click.option("--options", "given", type=click.File(), hidden=True)
def start(local: bool, detach: bool, dry_run: bool, given: TextIO | None, **chosen: Any) -> None:
    """Start a cluster. A local cluster runs until Ctrl-C. With -d, or elsewhere, it runs until it
    is stopped.

    \b
    iris cluster start --local -d                              one host
    iris cluster start --local --tpu v5litepod-16 --slices 2   and two simulated TPU slices
    iris cluster start --local --config cluster.yaml           the cluster of the file, simulated
    iris cluster start --config cluster.yaml                   the cluster of the file
    iris cluster start --config cluster.yaml --dry-run         show the requests to the cloud
    """
    if not local:
        record = start_elsewhere.start(chosen, dry_run=dry_run)
        if record is not None:
            _print_ready(record)
        return
    if dry_run:
        raise click.UsageError("--dry-run shows the requests to a cloud; --local sends none")
    options = _local_options(chosen, given)
    if detach:
        _start_detached(options)
    else:
        _run_here(options)


def _local_options(chosen: dict[str, Any], given: TextIO | None) -> "LocalClusterOptions":
    """Returns how to start the local cluster.

    Args:
        chosen: the options of the command.
        given: has the result already, when Iris itself starts the command.
    """
    from iris.worker_agents.local.cluster import Agents, LocalClusterOptions

    if given is not None:
        return LocalClusterOptions.model_validate_json(given.read())
    wanted = _local_config(chosen)
    check_is_free(wanted.name)
    return LocalClusterOptions(
        name=wanted.name,
        config=dump_config(wanted),
        ephemeral=chosen["ephemeral"],
        agents=Agents(chosen["agents"]) if chosen["agents"] else None,
    )


def _start_detached(options: "LocalClusterOptions") -> None:
    """Starts the local cluster in the background, and returns when it answers."""
    from iris.client.operate.local.controller import create_controller

    controller = create_controller(
        load_config(options.config), ephemeral=options.ephemeral, agents=options.agents
    )
    stop = f"iris cluster stop {options.name}"
    with Steps(f"starting cluster {options.name}"), interrupted_start(options.name, stop):
        controller.start()
    if (started := read_record(options.name)) is not None:
        _print_ready(started)


def _run_here(options: "LocalClusterOptions") -> None:
    """Runs the local cluster in this process until Ctrl-C."""
    from iris.processes.process import be_private
    from iris.worker_agents.local.cluster import supervise
    from iris.worker_agents.local.launch import wait_until_ready

    umask = be_private()

    async def run() -> None:
        supervisor = asyncio.create_task(supervise(options, umask))
        ready = asyncio.create_task(wait_until_ready(options))
        await asyncio.wait({supervisor, ready}, return_when=asyncio.FIRST_COMPLETED)
        if supervisor.done():
            ready.cancel()
        elif ready.exception() is None:
            _print_ready(ready.result())
        else:
            click.echo(f"warning: {ready.exception()}", err=True)
        await supervisor

    asyncio.run(run())


def _local_config(chosen: dict[str, Any]) -> ClusterConfig:
    """Returns the configuration of the local cluster that the file or the options describe."""
    name = None if chosen["name"] is None else check_name("name", chosen["name"])
    if chosen["file"] is not None:
        beside = [f"--{option}" for option in _MACHINES if chosen[option]]
        if beside:
            raise click.UsageError(
                f"{', '.join(beside)}: exclude --config; change the file of --config instead"
            )
        wanted = make_local_config(load_config(chosen["file"]), name)
    else:
        wanted = _simple_config(name or "local", chosen)
    lifecycle.check_size(wanted)
    rules = {
        each: chosen[each]
        for each in ("preemption", "patience", "min_run_time")
        if chosen[each] is not None
    }
    return with_rules(wanted, **rules) if rules else wanted


def _simple_config(name: str, chosen: dict[str, Any]) -> ClusterConfig:
    kind, slices = chosen["tpu"], chosen["slices"] or 1
    if kind is None and chosen["slices"] is not None:
        raise click.UsageError("--slices needs --tpu with the type of the slices")
    hosts = 1 if chosen["hosts"] is None else chosen["hosts"]
    return local_config(
        name,
        hosts,
        min_hosts=hosts,
        tpu=kind,
        slices=slices,
        cpu_millis=chosen["cpu"],
        memory_bytes=chosen["memory"],
        disk_bytes=chosen["disk"],
        device=chosen["device"] if isinstance(chosen["device"], Device) else None,
        attributes={key: parse_attribute(value) for key, value in chosen["attribute"]},
    )


@cluster.command("list")
@json_option
def list_clusters(as_json: bool) -> None:
    """List the clusters that were started from here. Asks none of them; `iris cluster status NAME`
    does.
    """
    CLUSTERS.show(kept_records(), as_json=as_json)


@cluster.command()
@cluster_argument
@json_option
@config_option
@cluster_option
@click.pass_context
def status(ctx: click.Context, name: str | None, file: Path | None, as_json: bool) -> None:
    """Show a cluster: its location, hosts, slices and jobs, and what blocks it."""

    chosen = selected(ctx, name, file)
    found = with_client(ctx, _ask_status, chosen, known=_known, as_json=as_json)
    if as_json:
        print_json(_status_json(found))
    else:
        _print_status(found)


class _Status(NamedTuple):
    """The answers from which `iris cluster status` makes its output."""

    record: ClusterRecord
    scheduler: Snapshot
    autoscaler: AutoscalerStatus
    live_jobs: int


async def _ask_status(client: AsyncIrisClient) -> _Status:
    live = await client.jobs.count()
    return _Status(
        client.record, await client.cluster.status(), await client.autoscaler.status(), live
    )


async def _known(client: AsyncIrisClient) -> Known:
    """Returns what is known of a cluster whose control plane does not answer."""
    live = await client.jobs.count()
    silent = (
        f"cluster {client.record.name} has {live} live job(s); its control plane does not answer"
    )
    return Known(
        f"{silent}\n{_location(client.record)}",
        "hosts, slices, waiting jobs, the autoscaler",
        {**_location_json(client.record), "live_jobs": live},
    )


def _status_json(found: _Status) -> dict[str, Any]:
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
        "paused": scheduler.paused,
        "paused_groups": scheduler.paused_groups,
        "quarantined": scheduler.quarantined,
        "autoscaler": autoscaler.model_dump(
            mode="json", include={"paused", "closing", "unreachable"}
        ),
        "rules": scheduler.rules.model_dump(mode="json"),
    }


def _print_status(found: _Status) -> None:
    record, scheduler, autoscaler, jobs = found
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


def _location_json(record: ClusterRecord) -> dict[str, Any]:
    return record.model_dump(
        mode="json", include={"name", "address", "namespace", "store", "ui", "ephemeral"}
    )


def _location(record: ClusterRecord) -> str:
    """Formats the location of the cluster: its addresses, store and machine."""
    lines = [
        f"Temporal  {record.address}, namespace {record.namespace}",
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


@cluster.command()
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


@cluster.command()
@group_option("Only this scale group.")
@cluster_option
@click.pass_context
def resume(ctx: click.Context, group: str | None) -> None:
    """Place new tasks again."""
    with_client(ctx, lambda client: client.cluster.resume(group))
    click.echo(f"{f'scale group {group}' if group else 'the cluster'} is resumed")


def _print_ready(record: ClusterRecord) -> None:
    click.echo(f"cluster {record.name} is ready: {record.address}")
    click.echo(f"  Web UI     {record.ui or '-'}")
    click.echo(f"  try        iris submit {_no_files()}-- python3 -c 'print(\"hello\")'")
    click.echo(f"  stop it    iris cluster stop {record.name}")


def _no_files() -> str:
    """Returns the option that keeps a first job from sending and installing the current project."""
    from iris.client.workspace.files import is_project  # most commands send no files

    try:
        return "--no-workspace " if is_project(Path.cwd()) else ""
    except (IrisError, OSError):  # git fails, or the directory is gone
        return "--no-workspace "
