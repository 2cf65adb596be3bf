"""Implements `iris host add | remove` for machines over SSH.

Both change the cluster's configuration file, and the cluster itself if it runs.
"""

import asyncio
import difflib
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

import click

from iris.cli.cluster.config_changes import config_changes
from iris.cli.command import Command
from iris.cli.name_completion import Kind, names_of
from iris.cli.parameters import DURATION, dry_run_option, group_option, yes_option
from iris.cli.run import selected
from iris.cli.show.columns import several
from iris.cli.show.messages import confirm, show_progress
from iris.cli.show.progress import Steps
from iris.client.operate.controller import REMOTE_ANSWER_TIMEOUT, client_once_it_answers
from iris.client.operate.make_controller import ConfiguredCluster
from iris.client.operate.manual.leaving import give_machines_back
from iris.client.operate.manual.survey import ask_machines
from iris.client.operate.platforms import secret_reader
from iris.config import ClusterConfig, load_config
from iris.config.edit_hosts import add_hosts, remove_hosts, retire_hosts
from iris.config.machine_choice import (
    addresses_in,
    group_to_join,
    lacks,
    machines_to_add,
    machines_to_remove,
    misfit,
)
from iris.model.errors import IrisError, Rejected, Unreachable
from iris.platforms.manual.settings import manual_settings

_machines = click.argument(
    "machines",
    metavar="MACHINE...",
    nargs=-1,
    required=True,
    shell_complete=names_of(Kind.MACHINES),
)
_file = click.option(
    "--config",
    "file",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Configuration file of the cluster. It is changed in place; its comments stay.",
)


@click.command(cls=Command)
@_machines
@_file
@group_option("Scale group of the machines.  [default: the only one of machines over SSH]")
@click.option(
    "--no-check",
    is_flag=True,
    help="Do not log in to the machines now, because they are off or not reached from here.",
)
@dry_run_option
@click.pass_context
def add(
    ctx: click.Context,
    machines: tuple[str, ...],
    file: Path,
    group: str | None,
    no_check: bool,
    dry_run: bool,
) -> None:
    """Add each MACHINE over SSH to a scale group: to the configuration file, and to the cluster if
    it runs.

    MACHINE is an address, or a range such as gpu[1-4]. The login is that of the group. A machine
    that cannot be a host, or whose accelerators are not those of the group, is refused. A machine
    that is being removed stays.

    \b
    iris host add 10.0.0.14 --config lab.yaml
    iris host add 'gpu[5-8]' --config lab.yaml --group gpus
    """
    steps = Steps("looking at the cluster")
    with steps:
        cluster = _cluster(ctx, file, steps)
    group = group_to_join(cluster.config, group)
    addresses = machines_to_add(cluster.config, group, machines)
    new = [each for each in addresses if each not in cluster.config.scale_groups[group].hosts]
    changed = add_hosts(cluster.text, group, addresses)
    with steps:
        if new and not no_check:
            steps(f"asking {len(new)} machine(s) what they have")
            _check(changed, group, new)
    _show(cluster, changed)
    if dry_run:
        return
    with steps:
        cluster.apply(changed, steps)
    what = f"{', '.join(addresses)} {'are' if len(addresses) > 1 else 'is'} in scale group {group}"
    click.echo(
        f"{what}; see: iris host list"
        if cluster.running
        else f"{what}; the next start of the cluster uses {file}"
    )


@click.command(cls=Command)
@_machines
@_file
@click.option(
    "--deadline",
    type=DURATION,
    help="Let running tasks continue for this time, such as 30m, and then stop them.",
)
@click.option(
    "--give-up", is_flag=True, help="Do not visit the machines, because they will not come back."
)
@dry_run_option
@yes_option
@click.pass_context
def remove(
    ctx: click.Context,
    machines: tuple[str, ...],
    file: Path,
    deadline: timedelta | None,
    give_up: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove each MACHINE over SSH from the cluster and from its configuration file, and leave it
    as it was before.

    Its tasks are stopped after their grace period, and their jobs wait for another machine. If the
    command is interrupted, run it again; to keep the machine instead, run iris host add.

    MACHINE is an address, or a range such as gpu[1-4].

    \b
    iris host remove 10.0.0.14 --config lab.yaml
    iris host remove gpu5 gpu6 --config lab.yaml --deadline 2h
    """
    if give_up and deadline is not None:
        raise click.UsageError("--deadline has no effect with --give-up; remove one of the two")
    steps = Steps("looking at the cluster")
    with steps:
        cluster = _cluster(ctx, file, steps)
    addresses = addresses_in(machines)
    groups = machines_to_remove(cluster.config, cluster.applied, addresses)
    retired = cluster.text
    for name, members in groups.items():
        retired = retire_hosts(retired, name, members)
    removed = retired
    for name, members in groups.items():
        removed = remove_hosts(removed, name, members)
    _show(cluster, removed)
    if dry_run:
        return
    if groups and cluster.running and not yes:
        _confirm(cluster.config, addresses, deadline)
    with steps:
        if groups and not give_up:
            cluster = cluster.apply(retired, steps)
            _give_back(cluster, addresses, deadline or timedelta(0), steps)
        cluster.apply(removed, steps)
    were = f"{', '.join(addresses)} {'are' if len(addresses) > 1 else 'is'} removed"
    if give_up:
        show_progress(
            "what is on them stays: ~/.iris-host, and the agent if it runs; a cluster that lists"
            " them again removes both"
        )
        click.echo(f"{were} from cluster {cluster.config.name} without a visit")
    else:
        click.echo(f"{were}; nothing of cluster {cluster.config.name} is left there")


def _cluster(ctx: click.Context, file: Path, steps: Steps) -> ConfiguredCluster:
    # imports the local cluster

    return ConfiguredCluster.find(selected(ctx, None, file), file, steps)


def _check(text: str, group: str, addresses: Collection[str]) -> None:
    """Logs in to the machines, and checks that each can be a host of the group. Prints warnings.

    Args:
        text: the configuration that lists the machines.
    """
    config = load_config(text)
    settings = manual_settings(config, "")
    hosts = [each for each in settings.hosts[group] if each.address in addresses]
    # The directory of a store is on this machine only if the control plane is.
    store = config.controller.bundle_prefix if config.controller.kind == "local" else ""
    refused = []
    for host, found in ask_machines(
        settings, hosts, store, setting="controller.bundle_prefix", access=secret_reader(config)
    ).items():
        if found.report is None:
            refused.append(f"{host} cannot be used: {'; '.join(found.notes)}")
        elif problem := misfit(found.report, config.scale_groups[group]):
            refused.append(f"{host} does not fit scale group {group}: it {problem}")
        else:
            for note in (*found.notes, *lacks(found.report, config.scale_groups[group])):
                show_progress(f"warning: {host}: {note}")
    if refused:
        raise Rejected(
            "\n".join(["nothing is changed, because a machine cannot be added:", *refused])
        )


def _show(cluster: ConfiguredCluster, changed: str) -> None:
    """Prints the changes of the file, also earlier ones that the cluster does not have yet."""
    if cluster.applied is not None and (lines := config_changes(cluster.applied, cluster.config)):
        click.echo(
            "\n".join([f"{cluster.file} has other changes, too, which are applied:", *lines])
        )
    name = str(cluster.file)
    lines = list(
        difflib.unified_diff(
            cluster.text.splitlines(), changed.splitlines(), name, name, lineterm="", n=1
        )
    )
    click.echo("\n".join(lines) if lines else f"{name} needs no change")


def _confirm(config: ClusterConfig, addresses: Collection[str], deadline: timedelta | None) -> None:
    """Asks the user to confirm if tasks run on the machines."""

    async def tasks() -> list[str]:
        client = await client_once_it_answers(config.name, REMOTE_ANSWER_TIMEOUT)
        return [
            task
            for view in await client.hosts.list()
            if view.host.address in addresses
            for task in view.running
        ]

    if running := asyncio.run(tasks()):
        confirm(
            f"Remove {', '.join(addresses)}? {several(running)} will be"
            f" stopped{' at the deadline' if deadline else ''}."
        )


def _give_back(
    cluster: ConfiguredCluster, addresses: Collection[str], deadline: timedelta, steps: Steps
) -> None:
    """Waits until the machines have nothing of the cluster. An error says how to finish."""

    async def give_back() -> None:
        client = (
            await client_once_it_answers(cluster.config.name, REMOTE_ANSWER_TIMEOUT)
            if cluster.running
            else None
        )
        await give_machines_back(cluster.config, addresses, client, steps, deadline)

    try:
        asyncio.run(give_back())
    except IrisError as error:
        again = f"iris host remove {' '.join(addresses)} --config {cluster.file}"
        lines = [
            str(error),
            f"{cluster.file} lists them as retiring_hosts: no new slice begins there",
        ]
        lines += [f"to finish, run: {again}", f"if they will not come back, run: {again} --give-up"]
        kind = Unreachable if isinstance(error, Unreachable) else IrisError
        raise kind("\n".join(lines)) from None
