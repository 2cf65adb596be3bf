"""Implements `iris cluster stop | restart | reload`."""

import asyncio
from pathlib import Path

import click

from iris.cli.cluster.config_changes import config_changes
from iris.cli.command import Command
from iris.cli.parameters import (
    cluster_argument,
    cluster_option,
    config_option,
    dry_run_option,
    json_option,
    yes_option,
)
from iris.cli.run import selected
from iris.cli.show.messages import confirm, print_json, show_progress
from iris.cli.show.progress import Steps
from iris.client.connect.clusters import cluster_dir, not_running, read_record
from iris.client.operate.controller import ControllerProtocol, StopPlan
from iris.client.operate.make_controller import (
    controller_of,
    create_controller,
    give_up_machines,
    known_config,
)
from iris.config import ClusterConfig, load_written, make_local_config, scale_groups_of
from iris.model.errors import InvalidValue, NotFound
from iris.platforms.local import MAX_LOCAL_HOSTS

#: `iris cluster stop` asks for confirmation with this text if the control plane does not answer.
_SILENT = "Its control plane does not answer: its machines are deleted directly."
#: `iris cluster stop` asks for confirmation with this text if the control plane's machine does not
#: exist.
_MISSING = "Its control plane has no machine: its slices are deleted directly."


@click.command(cls=Command)
@cluster_argument
@dry_run_option
@yes_option
@click.option(
    "--give-up",
    multiple=True,
    metavar="MACHINE",
    help=(
        "Count the slice of a machine over SSH as deleted, because the machine will not come back."
        " Repeatable."
    ),
)
@json_option
@config_option
@cluster_option
@click.pass_context
def stop(
    ctx: click.Context,
    name: str | None,
    dry_run: bool,
    yes: bool,
    give_up: tuple[str, ...],
    file: Path | None,
    as_json: bool,
) -> None:
    """Delete all slices of a cluster, and stop it. The next stop finishes an interrupted one.

    Programs get their grace period. If the control plane does not answer, the machines are deleted
    directly. The jobs of a local cluster continue when it is started again, unless it is ephemeral.
    A control plane in a cloud is deleted with its disk and its jobs, unless the configuration names
    another Temporal service.
    """
    if as_json and not dry_run:
        raise click.UsageError("--json needs --dry-run")
    if give_up and dry_run:
        raise click.UsageError("--dry-run has no effect with --give-up; remove one of the two")
    steps = Steps("stopping the cluster")
    name, controller = _controller(ctx, name, file, steps)
    record = read_record(name)
    dead = record is not None and not record.in_use()
    plan = asyncio.run(controller.plan_stop()) if dry_run or not yes or dead else None
    if dry_run and plan is not None:
        if as_json:
            print_json(plan.model_dump(mode="json"))
        else:
            click.echo(_plan_text(plan))
        return
    if plan is not None and not yes and (plan.running or (plan.elsewhere and plan.slices)):
        _confirm(plan)
    with steps:
        if give_up:
            give_up_machines(controller, give_up)
        controller.stop()
    if plan is None or plan.running:
        click.echo(f"cluster {name} is stopped")
    else:
        click.echo(f"cluster {name} did not run; {_left_text(plan)}")


@click.command(cls=Command)
@cluster_argument
@config_option
@cluster_option
@click.pass_context
def restart(ctx: click.Context, name: str | None, file: Path | None) -> None:
    """Restart the control plane of a cluster, and wait until it answers. Slices and jobs continue.

    A machine in a cloud is reset. It boots with the cluster's configuration and images, or with
    those of --config.
    """
    steps = Steps("restarting the control plane")
    name, controller = _controller(ctx, name, file, steps)
    with steps:
        controller.restart()
    click.echo(f"the control plane of cluster {name} was restarted")


@click.command(cls=Command, name="reload")
@cluster_argument
@click.option(
    "--config",
    "file",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="New configuration file; the groups of a local cluster are simulated.",
)
@dry_run_option
@cluster_option
@click.pass_context
def reload_(ctx: click.Context, name: str | None, file: Path, dry_run: bool) -> None:
    """Apply another configuration to a cluster. Excess slices are deleted when they are idle;
    running tasks continue.
    """
    record = selected(ctx, name, none_known=NotFound).known().record
    if record is None:
        raise click.UsageError(
            "name a cluster of which this machine has a record; `iris cluster list` shows them"
        )
    if not record.in_use():
        raise not_running(record.name)
    before, (after, text) = known_config(record), load_written(file)
    steps = Steps("applying the configuration")
    if record.remote:
        if after.name != record.name:
            raise InvalidValue(
                "name",
                after.name,
                f"is not cluster {record.name}",
                f"write name: {record.name} in {file}",
            )
        controller = create_controller(after, text=text, progress=steps)
    elif record.over_ssh:
        if after.name != record.name or after.platform.manual is None:
            problem = f"is not cluster {record.name}, whose hosts are reached over SSH"
            raise InvalidValue(
                "name",
                after.name,
                problem,
                f"write name: {record.name} and platform: {{manual: {{}}}} in {file}",
            )
        controller = create_controller(after, progress=steps)
    else:
        after = make_local_config(after, record.name)
        check_size(after)
        controller = create_controller(after)
    lines = config_changes(before, after)
    click.echo("\n".join(lines) if lines else "no scale group changes")
    if dry_run:
        return
    with steps:
        controller.reload()
    click.echo(f"cluster {record.name} uses the configuration of {file}")


def _confirm(plan: StopPlan) -> None:
    """Asks the user to confirm the stop, and shows what happens to jobs."""
    if plan.silent:
        show_progress(plan.silent)
    what = f"{plan.jobs} live job(s) " + (
        "will be lost" if plan.ephemeral else "will be interrupted and continue at the next start"
    )
    nothing = "No jobs run." if plan.answers else _SILENT if plan.running else _MISSING
    question = f"Stop cluster {plan.name}? " + (what if plan.jobs else nothing)
    confirm(question)


def _controller(
    ctx: click.Context, name: str | None, file: Path | None, steps: Steps
) -> tuple[str, ControllerProtocol]:
    """Returns the name and the control plane of the selected cluster, running or not.

    Args:
        steps: shows the steps of the control plane's operations.
    """
    cluster = selected(ctx, name, file, none_known=NotFound)
    return cluster.name, controller_of(cluster, steps)


def check_size(config: ClusterConfig) -> None:
    """Rejects a configuration that starts more hosts than one machine can have."""
    total = sum(group.min_slices * group.hosts for group in scale_groups_of(config))
    if total > MAX_LOCAL_HOSTS:
        raise click.UsageError(
            f"the cluster would start {total:,} hosts; the limit for one machine is"
            f" {MAX_LOCAL_HOSTS}"
        )


def _plan_text(plan: StopPlan) -> str:
    """Formats the plan of a stop, for people."""
    unseen = [
        f"zone {zone} could not be listed: {why}" for zone, why in sorted(plan.unreachable.items())
    ]
    if not plan.running:
        return "\n".join(
            [f"cluster {plan.name} does not run; {_left_text(plan, 'would delete')}", *unseen]
        )
    how = "by the autoscaler" if plan.answers else "directly: the control plane does not answer"
    how += f" ({plan.silent})" if plan.silent else ""
    lines = [
        f"would delete {len(plan.slices)} slice(s), {how}",
        *(f"  {slice_id}" for slice_id in plan.slices),
        *unseen,
    ]
    if plan.jobs:
        lines.append(f"would {'end' if plan.ephemeral else 'interrupt'} {plan.jobs} live job(s)")
    if plan.processes:
        lines.append(f"would stop the processes {', '.join(map(str, plan.processes))}")
    if plan.machine:
        lines.append(f"would delete machine {plan.machine} with its disk")
    elif plan.ephemeral:
        lines.append(f"would delete {cluster_dir(plan.name)}")
    return "\n".join([*lines, "nothing was changed"])


def _left_text(plan: StopPlan, done: str = "deleted") -> str:
    """Returns which leftovers of a cluster that does not run are deleted."""
    left = [f"{len(plan.slices)} slice(s)"] if plan.slices else []
    left += [f"{len(plan.processes)} process(es)"] if plan.processes else []
    left += (
        [f"its directory {cluster_dir(plan.name)}"] if plan.ephemeral and not plan.elsewhere else []
    )
    nothing = (
        "nothing to delete"
        if not plan.unreachable
        else "nothing to delete in the zones that could be listed"
    )
    return f"{done}: {' and '.join(left)}" if left else nothing
