"""Implements `iris agent`, which runs this machine as a host."""

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from iris.activities.host.machine.gpu_health import CHECK_INTERVAL
from iris.cli.command import Command
from iris.cli.parameters import (
    CPU,
    DISK,
    DURATION,
    KEY_VALUE,
    MEMORY,
    Parsed,
    cluster_option,
    metrics_options,
)
from iris.cli.run import selected
from iris.client.access.message_key import keep_key
from iris.client.access.selection import host_tokens, tokens_of
from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord, cluster_dir
from iris.client.connect.paths import state_dir
from iris.client.connect.secret_keys import use_keys_of
from iris.metrics.serve import Listen
from iris.model.host.constraints import parse_attribute
from iris.model.host.faults import parse_fault
from iris.model.host.resources import parse_device
from iris.model.host.run_as import choose_uids
from iris.model.host.store_limits import StoreLimits
from iris.model.names import check_name
from iris.model.slice.keys import read_key_file
from iris.processes.process import be_private
from iris.worker_agents.host.agent import serve
from iris.worker_agents.host.agent_options import JOBS_DIR, AgentOptions, TaskSettings
from iris.worker_agents.host.probe import default_host_id
from iris.worker_agents.logging_setup import log_to_stderr

#: The type of an option whose value is `name=regex`. It returns a `Fault`.
FAULT = Parsed("name=regex", parse_fault)


@click.command(cls=Command)
@click.option(
    "--join",
    is_flag=True,
    help="Join the cluster as a slice of one host, or as one host of --slice.",
)
@click.option("--host-id", help="Id of the host.  [default: the machine's name]")
@click.option(
    "--slice",
    "slice_id",
    metavar="ID",
    help="Slice of the host.  [default: a slice of this host only]",
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with the private key of a machine that was created for --slice; excludes --join.",
)
@click.option(
    "--slice-size", type=click.IntRange(min=1), help="Number of hosts in the slice.  [default: 1]"
)
@click.option(
    "--address",
    "host_address",
    help="Address of this host for other hosts.  [default: from this machine's routes]",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Directory for logs, and for the files of tasks without uids of their own.",
)
@click.option(
    "--cache",
    "cache_dir",
    type=click.Path(path_type=Path),
    help=(
        "Directory for bundles, and for environments of tasks without uids of their own; agents may"
        " share it."
    ),
)
@click.option(
    "--run-as",
    metavar="FIRST-LAST|root",
    help=(
        "Uids of tasks that run as processes, one each; root: the agent's user.  [default:"
        " 60706-61183 if the agent is root]"
    ),
)
@click.option(
    "--jobs-dir",
    type=click.Path(path_type=Path),
    default=JOBS_DIR,
    callback=lambda _ctx, _option, path: path.absolute(),
    help=(
        "Directory for working directories, outputs and environments of tasks with such uids. "
        " [default: /var/lib/iris-jobs]"
    ),
)
@click.option(
    "--image",
    help="Container image of tasks without --image.  [default: none: tasks are processes]",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Configuration file of the cluster, for the variables, directories and limits of tasks.",
)
@click.option("--simulated", is_flag=True, hidden=True)
@click.option(
    "--all-hosts-of",
    "home",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    hidden=True,
)
@click.option("--cpu", "cpu_millis", type=CPU, help="Cores to offer.  [default: all]")
@click.option("--memory", "memory_bytes", type=MEMORY, help="Memory to offer.  [default: all]")
@click.option("--disk", "disk_bytes", type=DISK, help="Disk to offer.  [default: free space]")
@click.option(
    "--device",
    type=Parsed("kind[:variant[:count]]", parse_device),
    help="Device to offer: KIND:VARIANT:COUNT, such as gpu:H100:8.",
)
@click.option(
    "--gpu-check",
    type=DURATION,
    default=CHECK_INTERVAL,
    help="How often the GPUs are checked.  [default: 30s]",
)
@click.option(
    "--attribute",
    type=KEY_VALUE,
    multiple=True,
    metavar="KEY=VALUE",
    help="Attribute of this host. Repeatable.",
)
@click.option(
    "--accept-cpu-jobs",
    is_flag=True,
    help="Also run tasks that request no device, although this host has devices.",
)
@click.option(
    "--fault",
    "faults",
    type=FAULT,
    multiple=True,
    metavar="NAME=REGEX",
    help=(
        "Pattern in a failed program's last output lines that shows a fault of the host."
        " Repeatable."
    ),
)
@metrics_options
@cluster_option
@click.pass_context
def agent(
    ctx: click.Context,
    /,
    join: bool,
    slice_id: str | None,
    slice_size: int | None,
    key_file: Path | None,
    home: Path | None,
    host_id: str | None,
    directory: Path | None,
    config: Path | None,
    run_as: str | None,
    simulated: bool,
    attribute: tuple[tuple[str, str], ...],
    metrics_port: int | None,
    metrics_address: str | None,
    **offered: Any,  # the options that have the name and the value of a field of AgentOptions
) -> None:
    """Run this machine as a host of the cluster until SIGTERM.

    \b
    iris --cluster 10.0.0.5:7233 agent --join
    """
    _check_membership(key_file, slice_id, slice_size, join=join)
    slice_key, delegation = (None, "") if key_file is None else _private_key(key_file)
    tasks, listen = _from_configuration(config, run_as, simulated=simulated)
    log_to_stderr()
    umask = be_private()

    async def run() -> None:
        own_id = check_name("host-id", host_id or default_host_id())
        with tokens_of(host_tokens(own_id, slice_key, delegation)):
            cluster = (await AsyncIrisClient.connect(selected(ctx))).record
        _use_keys_of(cluster)
        keep_key("", cluster.address)
        options = AgentOptions(
            address=cluster.address,
            namespace=cluster.namespace,
            cluster=cluster.name,
            store=cluster.store,
            host_id=own_id,
            slice_id=slice_id and check_name("slice", slice_id),
            slice_key=slice_key,
            delegation=delegation,
            key_file=key_file,
            slice_size=slice_size or 1,
            directory=directory or state_dir() / "hosts" / cluster.name / own_id,
            tasks=tasks,
            metrics=listen.with_options(metrics_port, metrics_address),
            simulated=simulated,
            umask=umask,
            attributes={key: parse_attribute(value) for key, value in attribute},
            **offered,
        )
        await _serve(options, home)

    asyncio.run(run())


def _check_membership(
    key_file: Path | None, slice_id: str | None, slice_size: int | None, *, join: bool
) -> None:
    """Checks that a user adds this machine, or that the options name its slice and the key."""
    if join == (key_file is not None):
        raise click.UsageError(
            "add --join on a machine that you add, or --slice and --key-file on a machine that was"
            " created for a slice"
        )
    if key_file is not None and slice_id is None:
        raise click.UsageError("--key-file needs --slice")
    if slice_size is not None and slice_id is None:
        raise click.UsageError("--slice-size needs --slice")


def _use_keys_of(cluster: ClusterRecord) -> None:
    """Uses the keys of users' secrets of a cluster that runs on this machine."""
    if cluster.supervisor is not None:
        use_keys_of(cluster_dir(cluster.name))


def _from_configuration(
    config: Path | None, run_as: str | None, *, simulated: bool
) -> tuple[TaskSettings, Listen]:
    """Returns the settings of tasks, and where the agent serves its metrics. Simulated hosts share
    a machine, so they serve none.

    Args:
        config: the file with the configuration of the cluster; None: the defaults hold.
        run_as: overrides the setting of the configuration.
    """
    from iris.config import Bootstrap, load_config, secrets_of  # most agents have no file

    loaded = None if config is None else load_config(config)
    bootstrap = Bootstrap() if loaded is None else loaded.bootstrap
    gcp = None if loaded is None else loaded.platform.gcp
    uids = bootstrap.run_as if run_as is None else run_as
    own_users = choose_uids(uids, root=os.geteuid() == 0, simulated=simulated) is not None
    listen = Listen()
    if loaded is not None and not simulated:
        listen = Listen(loaded.metrics.host_port, loaded.metrics.address)
    settings = TaskSettings(
        run_as=uids,
        require_digests=bootstrap.require_image_digests,
        env_vars=bootstrap.env_vars,
        mounts=tuple(map(Path, bootstrap.mounts)),
        limits=StoreLimits(
            logs=bootstrap.max_logs,
            outputs=bootstrap.max_outputs,
            checkpoint=bootstrap.max_checkpoint,
            disk=bootstrap.max_disk,
        ),
        secrets=() if loaded is None else secrets_of(loaded, own_users=own_users),
        secrets_project="" if gcp is None else gcp.project_id,
        secrets_endpoint="" if gcp is None else gcp.endpoints.secret_manager,
    )
    return settings, listen


async def _serve(options: AgentOptions, home: Path | None) -> None:
    """Runs the agent until SIGTERM.

    Args:
        home: the directory of a slice of a local cluster, if this process runs all its hosts.
    """
    if home is None:
        await serve(options)
    else:
        from iris.worker_agents.local.slice_agents import agents_of_slice, serve_slice

        await serve_slice([*agents_of_slice(home, options)])


def _private_key(key_file: Path) -> tuple[str, str]:
    """Returns the private key of the slice for which this machine was created, and its
    delegation.
    """
    try:
        return read_key_file(key_file.read_text())
    except ValueError:
        raise click.UsageError(f"{key_file} contains no private key of a slice") from None
