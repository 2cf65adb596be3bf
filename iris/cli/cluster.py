"""`iris cluster start | stop | status`"""

import asyncio
import sys

import click

from iris.cli.common import CPU, DEVICE, DISK, MEMORY, cluster_option, json_option, print_json
from iris.client.client import IrisClient
from iris.client.clusters import ClusterRecord, cluster_dir, read_record, running_clusters
from iris.errors import IrisError, NotFound
from iris.names import check_name
from iris.platforms.local import LOCAL_CPU_MILLIS, LOCAL_DISK, LOCAL_MEMORY, LocalHost
from iris.resources import Device


@click.group()
def cluster() -> None:
    """Start, stop and look at clusters."""


@cluster.command()
@click.option("--local", is_flag=True, help="On this machine: a Temporal dev server, a control plane and hosts.")
@click.option("-d", "--detach", is_flag=True, help="In the background.")
@click.option("--name", default="local", show_default=True, help="The cluster's name; several can run side by side.")
@click.option("--hosts", type=click.IntRange(min=0, max=500), default=1, show_default=True, help="How many hosts.")
@click.option("--ephemeral", is_flag=True, help="Keep nothing: it forgets all when it stops.")
@click.option("--cpu", type=CPU, default=LOCAL_CPU_MILLIS, help="Cores each host claims to have.  [default: 1000]")
@click.option("--memory", type=MEMORY, default=LOCAL_MEMORY, help="Memory each host claims to have.  [default: 1000g]")
@click.option("--disk", type=DISK, default=LOCAL_DISK, help="Disk each host claims to have.  [default: 1000g]")
@click.option("--device", type=DEVICE, help="KIND:VARIANT:COUNT each host claims to have.")
def start(
    local: bool,
    detach: bool,
    name: str,
    hosts: int,
    ephemeral: bool,
    cpu: int,
    memory: int,
    disk: int,
    device: Device | str | None,
) -> None:
    """Start a cluster; without -d it runs until Ctrl-C."""
    if not local:
        raise click.UsageError("say --local: clusters elsewhere are not started from here yet")
    from iris.worker_agents.local_cluster import LocalClusterOptions, supervise
    from iris.worker_agents.local_launch import start_detached, wait_until_ready

    has = device if isinstance(device, Device) else None
    machines = tuple(
        LocalHost(id=f"{name}-{number}", cpu_millis=cpu, memory_bytes=memory, disk_bytes=disk, device=has)
        for number in range(hosts)
    )
    options = LocalClusterOptions(name=check_name("name", name), hosts=machines, ephemeral=ephemeral)
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

    async def look() -> tuple[ClusterRecord, int, int]:
        client = await IrisClient.connect(wanted)
        return client.cluster, len(await client.hosts()), len(await client.jobs(live_only=True, limit=1_000))

    record, hosts, jobs = asyncio.run(look())
    if as_json:
        shown = record.model_dump(mode="json", include={"name", "address", "namespace", "store", "ui", "ephemeral"})
        print_json({**shown, "state": "RUNNING", "hosts": hosts, "live_jobs": jobs})
        return
    click.echo(f"cluster {record.name} is RUNNING: {hosts} host(s), {jobs} live job(s)")
    click.echo(
        f"  Temporal  {record.address}, namespace {record.namespace}\n  Web UI    {record.ui or '-'}\n  store     {record.store}"
    )
    if record.supervisor is not None:
        click.echo(f"  logs      {cluster_dir(record.name) / 'logs'}")


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
