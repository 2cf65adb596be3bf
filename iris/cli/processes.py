"""Implements `iris controller run | serve` and `iris agent`: the processes of a cluster."""

import asyncio
from pathlib import Path

import click

from iris.cli.common import CPU, DEVICE, DISK, KEY_VALUE, MEMORY, Parsed, cluster_option
from iris.client.client import IrisClient
from iris.client.connect.clusters import state_dir
from iris.model.constraints import parse_attribute
from iris.model.faults import Fault, parse_fault
from iris.model.names import check_name
from iris.model.resources import Device
from iris.worker_agents.logging_setup import log_to_stderr

FAULT = Parsed("name=regex", parse_fault)


@click.group()
def controller() -> None:
    """Run a control plane."""


@controller.command()
@click.option("--name", required=True, help="The cluster's name.")
@click.option("--address", required=True, metavar="HOST:PORT", help="The Temporal service.")
@click.option("--namespace", default="default", show_default=True, help="The namespace there.")
@click.option("--store", required=True, metavar="URL", help="The object store: file:///…, gs://… or s3://….")
@click.option("--ui", default="", metavar="URL", help="Where Temporal's Web UI is, for links.")
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="What the cluster consists of.")
@click.option("--advertise", default="", metavar="HOST:PORT", help="The Temporal service as hosts reach it; else --address.")
@click.option("--machines", type=click.Path(path_type=Path), hidden=True)
def serve(
    name: str, address: str, namespace: str, store: str, ui: str, config: Path | None, advertise: str, machines: Path | None
) -> None:
    """Serve a cluster's workflows until SIGTERM. If you run two, either may fail."""
    from iris.client.connect.process import be_private
    from iris.worker_agents.control_plane.serve import ControlPlaneOptions, serve

    log_to_stderr()
    be_private()
    options = ControlPlaneOptions(
        cluster=check_name("name", name),
        address=address,
        namespace=namespace,
        store=store,
        ui=ui,
        config=config,
        machines=machines,
        advertise=advertise,
    )
    asyncio.run(serve(options))


@controller.command("run")
@click.option(
    "--config",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="What the cluster consists of, unless the machine's metadata says it.",
)
@click.option("--state-dir", required=True, type=click.Path(path_type=Path, file_okay=False), help="What is kept, on a disk.")
@click.option("--port", default=10000, show_default=True, type=click.IntRange(1, 65534), help="Of the Temporal server.")
@click.option("--advertise", metavar="HOST:PORT", help="That server as hosts reach it; else by this machine's internal name.")
def run_(config: Path, state_dir: Path, port: int, advertise: str | None) -> None:
    """Run a cluster's control plane until SIGTERM, and a Temporal server unless the configuration names one."""
    from iris.client.connect.process import be_private
    from iris.worker_agents.control_plane.gce_controller import HostedOptions, run

    log_to_stderr()
    be_private()
    asyncio.run(run(HostedOptions(config=config.absolute(), state_dir=state_dir.absolute(), port=port, advertise=advertise)))


@click.command()
@click.option("--join", is_flag=True, help="Join the cluster: as a slice of one host, or as one host of --slice.")
@click.option("--host-id", help="The host's id; else the machine's name.")
@click.option("--slice", "slice_id", metavar="ID", help="The slice that the host belongs to; else it is one by itself.")
@click.option("--token", help="What a machine that was made for --slice shows to it; such a machine does not --join.")
@click.option("--slice-size", type=click.IntRange(min=1), help="How many hosts make the slice whole.  [default: 1]")
@click.option("--address", help="Where other hosts reach this one; else what this machine's routes say.")
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Where tasks have their files.")
@click.option(
    "--cache", type=click.Path(path_type=Path), help="Where bundles and environments are kept; machines' agents may share it."
)
@click.option("--image", help="Container image of tasks that name none; else they are processes.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The cluster's configuration: which variables and directories of the host it gives to tasks.",
)
@click.option("--simulated", is_flag=True, hidden=True)
@click.option("--cpu", type=CPU, help="Cores to offer; else those there are.")
@click.option("--memory", type=MEMORY, help="Memory to offer; else what there is.")
@click.option("--disk", type=DISK, help="Disk to offer; else what is free.")
@click.option("--device", type=DEVICE, help="KIND:VARIANT:COUNT to offer, such as gpu:H100:8.")
@click.option("--attribute", type=KEY_VALUE, multiple=True, metavar="KEY=VALUE", help="What else is true of this host.")
@click.option("--accept-cpu-jobs", is_flag=True, help="Take tasks without devices too, although there are some.")
@click.option(
    "--fault",
    type=FAULT,
    multiple=True,
    metavar="NAME=REGEX",
    help="What in a failed program's last lines shows that it failed through no fault of its own.",
)
@cluster_option
@click.pass_context
def agent(
    ctx: click.Context,
    join: bool,
    host_id: str | None,
    slice_id: str | None,
    token: str | None,
    slice_size: int | None,
    address: str | None,
    directory: Path | None,
    cache: Path | None,
    image: str | None,
    config: Path | None,
    simulated: bool,
    cpu: int | None,
    memory: int | None,
    disk: int | None,
    device: Device | str | None,
    attribute: tuple[tuple[str, str], ...],
    accept_cpu_jobs: bool,
    fault: tuple[Fault, ...],
) -> None:
    """Make this machine a host, until SIGTERM.

    \b
    iris --cluster 10.0.0.5:7233 agent --join
    """
    if join == (token is not None):
        raise click.UsageError("say --join on a machine that you bring, or --slice and --token on one that was made for a slice")
    if token is not None and slice_id is None:
        raise click.UsageError("--token is that of a slice: say with --slice of which")
    if slice_size is not None and slice_id is None:
        raise click.UsageError("--slice-size says how many hosts the slice has: say with --slice which")
    from iris.client.connect.process import be_private
    from iris.config import load_config
    from iris.worker_agents.host.agent import AgentOptions, serve
    from iris.worker_agents.host.probe import default_host_id

    log_to_stderr()
    umask = be_private()

    async def run() -> None:
        cluster = (await IrisClient.connect(ctx.find_root().obj["cluster"])).cluster
        name = check_name("host-id", host_id or default_host_id())
        bootstrap = None if config is None else load_config(config).bootstrap
        options = AgentOptions(
            address=cluster.address,
            namespace=cluster.namespace,
            cluster=cluster.name,
            store=cluster.store,
            host_id=name,
            slice_id=slice_id and check_name("slice", slice_id),
            slice_size=slice_size or 1,
            token=token,
            host_address=address,
            directory=directory or state_dir() / "hosts" / cluster.name / name,
            cache_dir=cache,
            image=image,
            simulated=simulated,
            umask=umask,
            env_vars={} if bootstrap is None else bootstrap.env_vars,
            mounts=() if bootstrap is None else tuple(map(Path, bootstrap.mounts)),
            cpu_millis=cpu,
            memory_bytes=memory,
            disk_bytes=disk,
            device=device if isinstance(device, Device) else None,
            attributes={key: parse_attribute(value) for key, value in attribute},
            accept_cpu_jobs=accept_cpu_jobs,
            faults=fault,
        )
        await serve(options)

    asyncio.run(run())
