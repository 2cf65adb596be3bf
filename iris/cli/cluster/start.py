"""Implements `iris cluster start`: on this machine, in a cloud, or over SSH."""

import asyncio
from pathlib import Path
from typing import Any, TextIO

import click

from iris.cli.cluster.dashboard import without_dashboard
from iris.cli.cluster.lifecycle import check_size
from iris.cli.command import Command
from iris.cli.interrupts import interrupted_start
from iris.cli.parameters import CPU, DEVICE, DISK, DURATION, KEY_VALUE, MEMORY, Parsed
from iris.cli.show.messages import print_json, show_warnings
from iris.cli.show.progress import Steps
from iris.client.connect.clusters import ClusterRecord, check_is_free, read_record
from iris.client.operate.make_controller import create_controller
from iris.client.workspace.files import is_project
from iris.config import (
    ClusterConfig,
    dump_config,
    load_config,
    load_written,
    local_config,
    make_local_config,
    risks,
    with_actions,
    with_rules,
)
from iris.model.errors import IrisError
from iris.model.host import accelerators
from iris.model.host.constraints import parse_attribute
from iris.model.host.resources import Device
from iris.model.names import check_name
from iris.platforms.local import MAX_LOCAL_HOSTS
from iris.processes.process import be_private
from iris.worker_agents.local.cluster import Agents, LocalClusterOptions, supervise
from iris.worker_agents.local.launch import wait_until_ready

#: The type of an option whose value is a TPU variant. It returns an `accelerators.Tpu`.
TPU = Parsed("variant", accelerators.tpu)
#: The options of `iris cluster start` that describe machines. They cannot be used together with a
#: configuration file.
_MACHINES = ("hosts", "tpu", "slices", "cpu", "memory", "disk", "device", "attribute")
#: The options of `iris cluster start` that are valid only for a cluster on this machine.
_LOCAL_ONLY = (
    *("name", "hosts", "tpu", "slices", "ephemeral", "agents", "allow_actions"),
    *("cpu", "memory", "disk", "device", "attribute"),
    *("preemption", "patience", "min_run_time"),
)


@click.command(cls=Command)
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
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Let the dashboard change jobs, hosts and slices. It has no logins.",
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
    iris cluster start --local --tpu v5litepod-16 --slices 2   one host, two simulated slices
    iris cluster start --local --config cluster.yaml           the cluster of the file, simulated
    iris cluster start --config cluster.yaml                   the cluster of the file
    iris cluster start --config cluster.yaml --dry-run         show the requests to the cloud
    """
    if not local:
        record = _start_elsewhere(chosen, dry_run=dry_run)
        if record is not None:
            _print_ready(record)
        return
    if dry_run:
        raise click.UsageError(
            "--dry-run shows the requests to a cloud, and --local sends none; leave out --dry-run"
        )
    options = _local_options(chosen, given)
    if detach:
        _start_detached(options)
    else:
        _run_here(options)


def _start_elsewhere(given: dict[str, Any], *, dry_run: bool) -> ClusterRecord | None:
    """Starts a cluster with hosts on other machines, and returns its record.

    Args:
        given: the options of the command.
        dry_run: print the requests to the cloud, start nothing, and return None.
    """
    file: Path | None = given["file"]
    if file is None:
        raise click.UsageError(
            "add --local for a cluster on this machine, or --config FILE for another cluster"
        )
    config, text = load_written(file)
    if config.platform.local is not None:
        raise click.UsageError(f"the cluster of {file} is on this machine: add --local")
    beside = [
        f"--{option.replace('_', '-')}"
        for option in _LOCAL_ONLY
        if given[option] not in (None, (), False)
    ]
    if beside:
        raise click.UsageError(
            f"{', '.join(beside)}: only for local clusters; edit the file of --config instead"
        )
    show_warnings(risks(config))
    steps = Steps(f"starting cluster {config.name}")
    controller = create_controller(config, text=text, progress=steps)
    if dry_run and config.platform.gcp is None:
        raise click.UsageError(
            "--dry-run shows the requests to a cloud, and this cluster sends none; leave out"
            " --dry-run"
        )
    if dry_run:
        print_json(controller.requests())
        return None
    with steps, interrupted_start(config.name, f"iris cluster stop --config {file}"):
        controller.start(new=given["new"])
    return read_record(config.name)


def _local_options(chosen: dict[str, Any], given: TextIO | None) -> LocalClusterOptions:
    """Returns how to start the local cluster.

    Args:
        chosen: the options of the command.
        given: has the result already, when Iris itself starts the command.
    """
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


def _start_detached(options: LocalClusterOptions) -> None:
    """Starts the local cluster in the background, and returns when it answers."""
    controller = create_controller(
        load_config(options.config), ephemeral=options.ephemeral, agents=options.agents
    )
    stop = f"iris cluster stop {options.name}"
    with Steps(f"starting cluster {options.name}"), interrupted_start(options.name, stop):
        controller.start()
    if (started := read_record(options.name)) is not None:
        _print_ready(started)


def _run_here(options: LocalClusterOptions) -> None:
    """Runs the local cluster in this process until Ctrl-C."""
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
                f"{', '.join(beside)} cannot be used with --config; describe the hosts in its file"
                " instead"
            )
        wanted = make_local_config(load_config(chosen["file"]), name)
    else:
        wanted = _simple_config(name or "local", chosen)
    check_size(wanted)
    rules = {
        each: chosen[each]
        for each in ("preemption", "patience", "min_run_time")
        if chosen[each] is not None
    }
    wanted = with_actions(wanted) if chosen["allow_actions"] else wanted
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


def _print_ready(record: ClusterRecord) -> None:
    click.echo(f"cluster {record.name} is ready: {record.address}")
    click.echo(f"  dashboard  {record.dashboard or without_dashboard(record)}")
    click.echo(f"  Web UI     {record.ui or '-'}")
    click.echo(f"  try        iris submit {_no_files()}-- python3 -c 'print(\"hello\")'")
    click.echo(f"  stop it    iris cluster stop {record.name}")


def _no_files() -> str:
    """Returns the option that keeps a first job from sending and installing the current project."""
    try:
        return "--no-workspace " if is_project(Path.cwd()) else ""
    except (IrisError, OSError):  # git fails, or the directory is gone
        return "--no-workspace "
