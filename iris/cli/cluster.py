"""Implements `iris cluster start | status | pause | resume`. The other commands are in `lifecycle`, `config` and `validate`."""

import asyncio
from pathlib import Path
from typing import Any, TextIO

import click

from iris.cli import elsewhere, lifecycle, render_fleet
from iris.cli.common import (
    CPU,
    DEVICE,
    DISK,
    DURATION,
    KEY_VALUE,
    MEMORY,
    Parsed,
    cluster_option,
    json_option,
    print_json,
    with_client,
)
from iris.cli.config import config
from iris.cli.validate import validate
from iris.client.connect.clusters import ClusterRecord, check_is_free, cluster_dir, known_cluster
from iris.client.operate import scheduling
from iris.client.operate.scaling import FleetClient
from iris.config import ClusterConfig, dump_config, load_config, local_config, make_local_config, with_rules
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import Snapshot, SnapshotPage
from iris.model import accelerators
from iris.model.constraints import parse_attribute
from iris.model.names import check_name
from iris.model.resources import Device
from iris.platforms.local import MAX_LOCAL_HOSTS

#: Gives an `accelerators.Tpu`.
TPU = Parsed("variant", accelerators.tpu)


@click.group()
def cluster() -> None:
    """Start, stop, pause and look at clusters."""


for command in (config, validate, *lifecycle.COMMANDS):
    cluster.add_command(command)


@cluster.command()
@click.option("--local", is_flag=True, help="On this machine: a Temporal dev server, a control plane and hosts.")
@click.option("-d", "--detach", is_flag=True, help="In the background.")
@click.option("--name", help="The cluster's name; several can run side by side.  [default: the configuration's, or local]")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="What the cluster consists of; with --local its groups are simulated.",
)
@click.option("--hosts", type=click.IntRange(min=0, max=MAX_LOCAL_HOSTS), help="How many hosts.  [default: 1]")
@click.option("--tpu", type=TPU, help="Simulate a TPU slice too, such as v5litepod-16: a host for each of its machines.")
@click.option("--slices", type=click.IntRange(min=1), help="How many such slices.  [default: 1]")
@click.option("--ephemeral", is_flag=True, help="Keep nothing: it forgets all when it stops.")
@click.option("--cpu", type=CPU, help="Cores each host claims to have.  [default: 1000; of a slice: as real ones have]")
@click.option("--memory", type=MEMORY, help="Memory each host claims to have.  [default: 1000g; of a slice: as real ones have]")
@click.option("--disk", type=DISK, help="Disk each host claims to have.  [default: 1000g]")
@click.option("--device", type=DEVICE, help="KIND:VARIANT:COUNT each host outside slices claims to have.")
@click.option(
    "--attribute", type=KEY_VALUE, multiple=True, metavar="KEY=VALUE", help="What else is true of each host outside slices."
)
@click.option("--preemption/--no-preemption", default=None, help="Whether stronger bands evict weaker ones.  [default: they do]")
@click.option("--patience", type=DURATION, help="How long a job is overtaken by smaller ones.  [default: 10m]")
@click.option("--min-run-time", type=DURATION, help="How long a job has run before it may be evicted.  [default: 2m]")
@click.option("--dry-run", is_flag=True, help="Of a cluster elsewhere: start nothing; show what would be asked of the cloud.")
@click.option("--new", is_flag=True, help="Refuse one elsewhere that is there, and delete one that does not come up.")
@click.option("--options", "given", type=click.File(), hidden=True)
def start(local: bool, detach: bool, dry_run: bool, given: TextIO | None, **asked: Any) -> None:
    """Start a cluster. A local one runs until Ctrl-C. With -d, or elsewhere, it runs until it is stopped.

    \b
    iris cluster start --local -d                              one host
    iris cluster start --local --tpu v5litepod-16 --slices 2   one host, and two simulated TPU slices
    iris cluster start --local --config cluster.yaml           the cluster of the file, simulated
    iris cluster start --config cluster.yaml                   the cluster of the file
    iris cluster start --config cluster.yaml --dry-run         show the requests to the cloud
    """
    if not local:
        record = elsewhere.start(asked, dry_run=dry_run)
        if record is not None:
            _say_ready(record)
        return
    if dry_run:
        raise click.UsageError("--dry-run shows what would be asked of a cloud, and with --local none is")
    from iris.client.connect.process import be_private
    from iris.client.operate.controllers import create_controller
    from iris.worker_agents.local.cluster import LocalClusterOptions, supervise
    from iris.worker_agents.local.launch import wait_until_ready

    if given is not None:
        options = LocalClusterOptions.model_validate_json(given.read())
    else:
        meant = _local_config(asked)
        check_is_free(meant.name)
        options = LocalClusterOptions(name=meant.name, config=dump_config(meant), ephemeral=asked["ephemeral"])
    if detach:
        create_controller(load_config(options.config), ephemeral=options.ephemeral).start()
        _say_ready(known_cluster(options.name))
        return

    umask = be_private()

    async def run() -> None:
        supervisor = asyncio.create_task(supervise(options, umask))
        ready = asyncio.create_task(wait_until_ready(options))
        await asyncio.wait({supervisor, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not supervisor.done():
            if ready.exception() is None:
                _say_ready(ready.result())
            else:
                click.echo(f"warning: {ready.exception()}", err=True)
        else:
            ready.cancel()
        await supervisor

    asyncio.run(run())


#: Options that describe the machines. A configuration file takes their place.
_MACHINES = ("hosts", "tpu", "slices", "cpu", "memory", "disk", "device", "attribute")


def _local_config(asked: dict[str, Any]) -> ClusterConfig:
    """Returns the configuration of the requested local cluster: from the file, or from the options."""
    name = None if asked["name"] is None else check_name("name", asked["name"])
    if asked["file"] is not None:
        beside = [f"--{option}" for option in _MACHINES if asked[option]]
        if beside:
            raise click.UsageError(f"{', '.join(beside)}: the machines are in the file of --config; change it there")
        meant = make_local_config(load_config(asked["file"]), name)
    else:
        meant = _simple_config(name or "local", asked)
    lifecycle.check_size(meant)
    rules = {each: asked[each] for each in ("preemption", "patience", "min_run_time") if asked[each] is not None}
    return with_rules(meant, **rules) if rules else meant


def _simple_config(name: str, asked: dict[str, Any]) -> ClusterConfig:
    kind, slices = asked["tpu"], asked["slices"] or 1
    if kind is None and asked["slices"] is not None:
        raise click.UsageError("--slices says how many: say with --tpu of what kind")
    hosts = 1 if asked["hosts"] is None else asked["hosts"]
    return local_config(
        name,
        hosts,
        min_hosts=hosts,
        tpu=kind,
        slices=slices,
        cpu_millis=asked["cpu"],
        memory_bytes=asked["memory"],
        disk_bytes=asked["disk"],
        device=asked["device"] if isinstance(asked["device"], Device) else None,
        attributes={key: parse_attribute(value) for key, value in asked["attribute"]},
    )


@cluster.command()
@click.argument("name", required=False)
@json_option
@elsewhere.config_option
@cluster_option
@click.pass_context
def status(ctx: click.Context, name: str | None, file: Path | None, as_json: bool) -> None:
    """Show a cluster: where it is, its hosts, slices and jobs, and what blocks it."""
    wanted = elsewhere.named(ctx, name, file)
    if file is not None:
        from iris.client.operate.cluster_ref import meant_by

        wanted = meant_by(wanted, file)

    async def look() -> tuple[ClusterRecord, Snapshot, AutoscalerStatus, int]:
        client = await FleetClient.connect(wanted)
        shown = await client.ask_scheduler("snapshot", SnapshotPage(limit=0), Snapshot)
        return client.cluster, shown, await client.autoscaler(), len(await client.jobs(live_only=True, limit=1_000))

    record, shown, scaling, jobs = asyncio.run(look())
    if as_json:
        fields = record.model_dump(mode="json", include={"name", "address", "namespace", "store", "ui", "ephemeral"})
        counts = {"hosts": shown.total_hosts, "live_jobs": jobs, "waiting": shown.waiting, "held": shown.held}
        paused = {"paused": shown.paused, "paused_groups": shown.paused_groups}
        fleet = {"slices": render_fleet.counts_json(render_fleet.slice_counts(scaling)), "blocked": render_fleet.blocked(scaling)}
        autoscaler = scaling.model_dump(mode="json", include={"paused", "closing", "unreachable"})
        rules = shown.rules.model_dump(mode="json")
        print_json({**fields, "state": "RUNNING", **counts, **fleet, **paused, "autoscaler": autoscaler, "rules": rules})
        return
    click.echo(
        f"cluster {record.name} is RUNNING: {shown.total_hosts} host(s), {jobs} live job(s), {shown.waiting} gang(s) waiting"
        + (f", {shown.held} held" if shown.held else "")
    )
    click.echo(f"  slices    {render_fleet.counts_text(render_fleet.slice_counts(scaling))}")
    if shown.paused is not None:
        click.echo(f"  PAUSED    {shown.paused}")
    for group, reason in shown.paused_groups.items():
        click.echo(f"  PAUSED    scale group {group}: {reason}")
    for group, reason in render_fleet.blocked(scaling).items():
        if group not in shown.paused_groups:
            click.echo(f"  BLOCKED   scale group {group}: {reason}")
    for problem in render_fleet.problems(scaling):
        click.echo(f"  {problem}")
    if not shown.rules.preemption:
        click.echo("  priority preemption is off")
    click.echo(
        f"  Temporal  {record.address}, namespace {record.namespace}\n  Web UI    {record.ui or '-'}\n  store     {record.store}"
    )
    if record.gate is not None:
        click.echo(f"  machine   {record.gate.machine} in {record.gate.zone}, project {record.gate.project}; through a tunnel")
    if record.supervisor is not None:
        click.echo(f"  logs      {cluster_dir(record.name) / 'logs'}")


@cluster.command()
@click.option("--group", metavar="NAME", help="Only this scale group.")
@click.option("--reason", default="", help="Why, for whoever asks why a job waits.")
@cluster_option
@click.pass_context
def pause(ctx: click.Context, group: str | None, reason: str) -> None:
    """Place nothing new. Running tasks continue, and waiting jobs show the reason."""
    with_client(ctx, lambda client: scheduling.pause(client, reason, group))
    click.echo(f"{f'scale group {group}' if group else 'the cluster'} is paused; go on with: iris cluster resume")


@cluster.command()
@click.option("--group", metavar="NAME", help="Only this scale group.")
@cluster_option
@click.pass_context
def resume(ctx: click.Context, group: str | None) -> None:
    """Place work again."""
    with_client(ctx, lambda client: scheduling.resume(client, group))
    click.echo(f"{f'scale group {group}' if group else 'the cluster'} places work again")


def _say_ready(record: ClusterRecord) -> None:
    click.echo(f"cluster {record.name} is ready: {record.address}")
    click.echo(f"  Web UI     {record.ui}")
    click.echo("  try        iris submit -- python3 -c 'print(\"hello\")'")
    click.echo(f"  stop it    iris cluster stop {record.name}")
