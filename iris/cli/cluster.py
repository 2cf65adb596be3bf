"""`iris cluster start | stop | status | pause | resume`"""

import asyncio
import sys
from pathlib import Path
from typing import Any, TextIO

import click

from iris import accelerators
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
from iris.client import scheduling
from iris.client.client import IrisClient
from iris.client.clusters import ClusterRecord, cluster_dir, read_record, running_clusters
from iris.config import ClusterConfig, dump_config, groups, load_config, local_config, make_local_config
from iris.constraints import parse_attribute
from iris.errors import IrisError, NotFound
from iris.names import check_name
from iris.placement import Rules
from iris.platforms.local import MAX_LOCAL_HOSTS
from iris.resources import Device
from iris.workflows.messages import Snapshot, SnapshotPage

#: Gives an `accelerators.Tpu`.
TPU = Parsed("variant", accelerators.tpu)


@click.group()
def cluster() -> None:
    """Start, stop, pause and look at clusters."""


cluster.add_command(config)


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
@click.option("--preemption/--no-preemption", default=True, help="Whether stronger bands evict weaker ones.  [default: they do]")
@click.option("--patience", type=DURATION, help="How long a job is overtaken by smaller ones.  [default: 10m]")
@click.option("--min-run-time", type=DURATION, help="How long a job has run before it may be evicted.  [default: 2m]")
@click.option("--options", "given", type=click.File(), hidden=True)
def start(local: bool, detach: bool, given: TextIO | None, **asked: Any) -> None:
    """Start a cluster; without -d it runs until Ctrl-C.

    \b
    iris cluster start --local -d                              one host
    iris cluster start --local --tpu v5litepod-16 --slices 2   one host, and two simulated TPU slices
    iris cluster start --local --config cluster.yaml           what the file says, simulated
    """
    if not local:
        raise click.UsageError("say --local: clusters elsewhere are not started from here yet")
    from iris.worker_agents.local_cluster import LocalClusterOptions, supervise
    from iris.worker_agents.local_launch import start_detached, wait_until_ready

    if given is not None:
        options = LocalClusterOptions.model_validate_json(given.read())
    else:
        meant = _local_config(asked)
        given_times = {key: asked[key] for key in ("patience", "min_run_time") if asked[key] is not None}
        rules = Rules(preemption=asked["preemption"], **given_times)
        options = LocalClusterOptions(name=meant.name, config=dump_config(meant), ephemeral=asked["ephemeral"], rules=rules)
    if detach:
        _say_ready(start_detached(options))
        return

    async def run() -> None:
        supervisor = asyncio.create_task(supervise(options))
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


#: What the options say that a configuration file says better.
_MACHINES = ("hosts", "tpu", "slices", "cpu", "memory", "disk", "device", "attribute")


def _local_config(asked: dict[str, Any]) -> ClusterConfig:
    """The configuration of the local cluster that was asked for: a file's, or one made of the options."""
    name = None if asked["name"] is None else check_name("name", asked["name"])
    if asked["file"] is not None:
        beside = [f"--{option}" for option in _MACHINES if asked[option]]
        if beside:
            raise click.UsageError(f"{', '.join(beside)}: the machines are in the file of --config; change it there")
        meant = make_local_config(load_config(asked["file"]), name)
    else:
        meant = _simple_config(name or "local", asked)
    total = sum(group.min_slices * group.hosts for group in groups(meant))
    if total > MAX_LOCAL_HOSTS:
        raise click.UsageError(f"that begins with {total:,} hosts; {MAX_LOCAL_HOSTS} is the most for one machine")
    return meant


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
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cluster_option
@click.pass_context
def stop(ctx: click.Context, name: str | None, yes: bool) -> None:
    """Stop a local cluster. What runs is ended; unless it is ephemeral, its jobs go on when it is started again."""
    from iris.worker_agents.local_launch import stop_local

    record = _pick(name or ctx.find_root().obj["cluster"])
    if record.alive() and not yes:
        live = asyncio.run(_live_jobs(record))
        what = f"{live} live job(s) " + (
            "will be lost" if record.ephemeral else "will be interrupted and go on at the next start"
        )
        question = f"Stop cluster {record.name}? " + (what if live else "No job runs.")
        if not sys.stdin.isatty():
            raise click.UsageError(f"{question} Say --yes: there is no terminal to ask on.")
        click.confirm(question, abort=True)
    stop_local(record.name)
    click.echo(f"cluster {record.name} is stopped")


@cluster.command()
@click.argument("name", required=False)
@json_option
@cluster_option
@click.pass_context
def status(ctx: click.Context, name: str | None, as_json: bool) -> None:
    """Show a cluster: where it is, its hosts and its jobs."""
    wanted = name or ctx.find_root().obj["cluster"]

    async def look() -> tuple[ClusterRecord, Snapshot, int]:
        client = await IrisClient.connect(wanted)
        shown = await client.ask_scheduler("snapshot", SnapshotPage(limit=0), Snapshot)
        return client.cluster, shown, len(await client.jobs(live_only=True, limit=1_000))

    record, shown, jobs = asyncio.run(look())
    if as_json:
        fields = record.model_dump(mode="json", include={"name", "address", "namespace", "store", "ui", "ephemeral"})
        counts = {"hosts": shown.total_hosts, "live_jobs": jobs, "waiting": shown.waiting, "held": shown.held}
        paused = {"paused": shown.paused, "paused_groups": shown.paused_groups}
        print_json({**fields, "state": "RUNNING", **counts, **paused, "rules": shown.rules.model_dump(mode="json")})
        return
    click.echo(
        f"cluster {record.name} is RUNNING: {shown.total_hosts} host(s), {jobs} live job(s), {shown.waiting} gang(s) waiting"
        + (f", {shown.held} held" if shown.held else "")
    )
    if shown.paused is not None:
        click.echo(f"  PAUSED    {shown.paused}")
    for group, reason in shown.paused_groups.items():
        click.echo(f"  PAUSED    scale group {group}: {reason}")
    if not shown.rules.preemption:
        click.echo("  priority preemption is off")
    click.echo(
        f"  Temporal  {record.address}, namespace {record.namespace}\n  Web UI    {record.ui or '-'}\n  store     {record.store}"
    )
    if record.supervisor is not None:
        click.echo(f"  logs      {cluster_dir(record.name) / 'logs'}")


@cluster.command()
@click.option("--group", metavar="NAME", help="Only this scale group.")
@click.option("--reason", default="", help="Why, for whoever asks why a job waits.")
@cluster_option
@click.pass_context
def pause(ctx: click.Context, group: str | None, reason: str) -> None:
    """Place nothing new. What runs runs on, and what waits is told why."""
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


def _pick(name: str | None) -> ClusterRecord:
    """The local cluster to stop: the named one, running or not, or the only one that runs."""
    if name is not None:
        record = read_record(name)
        if record is None:
            raise NotFound(f"there is no local cluster {name!r}")
        return record
    running = running_clusters()
    if not running:
        raise NotFound("no local cluster runs")
    if len(running) > 1:
        raise NotFound(f"several local clusters run ({', '.join(record.name for record in running)}); name one")
    return running[0]


async def _live_jobs(record: ClusterRecord) -> int:
    try:
        return len(await (await IrisClient.connect(record.name)).jobs(live_only=True, limit=1_000))
    except IrisError:
        return 0  # a cluster that does not answer can be stopped all the same


def _say_ready(record: ClusterRecord) -> None:
    click.echo(f"cluster {record.name} is ready: {record.address}")
    click.echo(f"  Web UI     {record.ui}")
    click.echo("  try        iris submit -- python3 -c 'print(\"hello\")'")
    click.echo(f"  stop it    iris cluster stop {record.name}")
