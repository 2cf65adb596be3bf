"""Implements `iris host ssh` and `iris ssh-config`."""

import os
import sys
from pathlib import Path

import click

from iris.cli.command import Command
from iris.cli.name_completion import Kind, names_of
from iris.cli.parameters import cluster_argument, cluster_option, config_option
from iris.cli.run import selected, with_client
from iris.client import operate
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.config import ClusterConfig
from iris.model.errors import IrisError, NotFound, Rejected
from iris.model.host.constraints import SCALE_GROUP, TPU_WORKER_ID, ZONE
from iris.model.host.hosts import Host
from iris.model.slice.scale_groups import SliceType
from iris.platforms.manual.settings import HostAccess, ManualSettings, manual_settings
from iris.platforms.manual.ssh_options import ssh_command, ssh_config


@click.command(cls=Command, name="ssh")
@click.argument("host", shell_complete=names_of(Kind.HOSTS))
@click.argument("command", nargs=-1)
@config_option
@cluster_option
@click.pass_context
def ssh(ctx: click.Context, host: str, command: tuple[str, ...], file: Path | None) -> None:
    """Log in to HOST, a machine over SSH, or run COMMAND there. Exits with ssh's exit code.

    HOST is the id of a host, or the address of a machine as the configuration has it. A COMMAND of
    one word is a line for the login shell. Uses the system's ssh with the user, port, key, jump
    host and known hosts of the configuration.

    \b
    iris host ssh gpu1
    iris host ssh gpu1 -- nvidia-smi
    iris host ssh gpu1 -- 'dmesg | tail'
    """
    # imports the configuration's schema, which few commands need

    cluster = selected(ctx, None, file)
    config = _config_of(cluster)
    settings = _settings_of(config)
    found = _listed(settings, host)
    if found is None:
        try:
            view = with_client(ctx, lambda client: _named(client, host), cluster)
        except IrisError as error:
            if settings is None or not settings.all_hosts:
                raise
            raise _also_no_machine(error, host, settings) from None
        found = _listed(settings, view.address)
        if found is None:
            raise Rejected(_elsewhere(view, config))
    assert settings is not None
    terminal = bool(command) and sys.stdin.isatty() and sys.stdout.isatty()
    words = ssh_command(found, settings, command, terminal=terminal)
    sys.stdout.flush()
    try:
        os.execvp(words[0], words)  # noqa: S606 - no shell
    except FileNotFoundError:
        raise IrisError("the program ssh is not installed here; install OpenSSH's client") from None


@click.command(cls=Command, name="ssh-config")
@cluster_argument
@config_option
@cluster_option
@click.pass_context
def print_ssh_config(ctx: click.Context, name: str | None, file: Path | None) -> None:
    """Print the entries of ~/.ssh/config for a cluster's machines over SSH, for ssh, rsync and
    editors.

    \b
    iris ssh-config > ~/.ssh/iris.conf    and in ~/.ssh/config: Include iris.conf
    """
    cluster = selected(ctx, name, file)
    settings = _settings_of(_config_of(cluster))
    if settings is None or not settings.all_hosts:
        raise Rejected(
            f"no SSH machines of cluster {cluster.name} are known here; if it has some, name its"
            " configuration with --config FILE"
        )
    click.echo(ssh_config(settings), nl=False)


def _config_of(cluster: ClusterRef) -> ClusterConfig | None:
    """Returns the cluster's configuration if this machine knows it."""
    if cluster.config is not None or cluster.record is None:
        return cluster.config
    return operate.make_controller.known_config(cluster.record)


def _settings_of(config: ClusterConfig | None) -> ManualSettings | None:

    return manual_settings(config, "") if config is not None else None


def _listed(settings: ManualSettings | None, address: str) -> HostAccess | None:
    """Returns the machine with this address, if the configuration lists it."""
    machines = settings.all_hosts if settings is not None else ()
    return next((each for each in machines if each.address == address), None)


async def _named(client: AsyncIrisClient, name: str) -> Host:
    return (await client.hosts.show(name)).host


def _also_no_machine(error: IrisError, name: str, settings: ManualSettings) -> IrisError:
    """Returns the error that a name is neither a host nor a machine, with the known machines."""
    machines = [each.address for each in settings.all_hosts]
    few = ", ".join(machines[:10]) + (", …" if len(machines) > 10 else "")
    return NotFound(
        f"no machine in the configuration has the address {name}: they are {few}; and as the id of"
        f" a host: {error}"
    )


def _elsewhere(host: Host, config: ClusterConfig | None) -> str:
    """Returns why Iris does not log in to this host, and how the user can log in."""
    group = (
        config.scale_groups.get(str(host.attributes.get(SCALE_GROUP)))
        if config is not None
        else None
    )
    zone = host.attributes.get(ZONE)
    if group is not None and config is not None and config.platform.gcp is not None:
        project = f"--zone {zone} --project {config.platform.gcp.project_id}"
        if group.type is SliceType.TPU_VM:
            worker = host.attributes.get(TPU_WORKER_ID, 0)
            there = f"gcloud compute tpus tpu-vm ssh {host.slice_id} --worker {worker} {project}"
        else:
            there = f"gcloud compute ssh {host.slice_id} {project}"
        return (
            f"host {host.id} is a machine of Google Cloud; log in with: {there}; or run a command"
            " beside a task: iris exec JOB"
        )
    if config is None:
        return (
            "the configuration of the cluster is not known here; name it with --config FILE to log"
            f" in to host {host.id}"
        )
    return (
        f"host {host.id} is not a machine that Iris reaches over SSH: it runs at {host.address} by"
        " itself; log in as to any machine, or run a command beside a task: iris exec JOB"
    )
