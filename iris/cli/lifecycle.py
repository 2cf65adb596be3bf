"""`iris cluster stop | restart | reload | cleanup`: what is done to a cluster that was started on this machine."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iris.cli.common import cluster_option
from iris.client.clusters import ClusterRecord, cluster_dir, read_record, running_clusters
from iris.config import ClusterConfig, groups, load_config, make_local_config
from iris.errors import NotFound, Unreachable
from iris.names import check_name
from iris.platforms.local import MAX_LOCAL_HOSTS

if TYPE_CHECKING:
    from iris.client.controllers import StopPlan

_name = click.argument("name", required=False)
_dry = click.option("--dry-run", is_flag=True, help="Change nothing; show what would be done.")
_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.command()
@_name
@_dry
@_yes
@cluster_option
@click.pass_context
def stop(ctx: click.Context, name: str | None, dry_run: bool, yes: bool) -> None:
    """Give back all slices of a local cluster, and stop it. Unless it is ephemeral, its jobs go on when it is started again.

    Programs have their grace. When the control plane does not answer, the machines are deleted directly. A stop that was
    interrupted is finished by the next one.
    """
    from iris.client.controllers import LocalController

    record = meant(name or ctx.find_root().obj["cluster"])
    controller = LocalController.of(record.name, tell=_say)
    plan = asyncio.run(controller.plan_stop()) if dry_run or not yes or not record.alive() else None
    if dry_run and plan is not None:
        click.echo(_plan_text(plan))
        return
    if plan is not None and plan.running and not yes:
        what = f"{plan.jobs} live job(s) " + (
            "will be lost" if record.ephemeral else "will be interrupted and go on at the next start"
        )
        question = f"Stop cluster {record.name}? " + (what if plan.jobs else "No job runs.")
        if not sys.stdin.isatty():
            raise click.UsageError(f"{question} Say --yes: there is no terminal to ask on.")
        click.confirm(question, abort=True)
    controller.stop()
    if plan is None or plan.running:
        click.echo(f"cluster {record.name} is stopped")
    else:
        click.echo(f"cluster {record.name} did not run; {_left_text(plan)}")


@click.command()
@_name
@cluster_option
@click.pass_context
def restart(ctx: click.Context, name: str | None) -> None:
    """Start the control plane of a local cluster anew, and wait until it answers. Slices and jobs live on."""
    from iris.client.controllers import LocalController

    record = running(name or ctx.find_root().obj["cluster"])
    LocalController.of(record.name).restart()
    click.echo(f"the control plane of cluster {record.name} was started again")


@click.command("reload")
@_name
@click.option(
    "--config",
    "file",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="What the cluster is to consist of from now on; its groups are simulated.",
)
@_dry
@cluster_option
@click.pass_context
def reload_(ctx: click.Context, name: str | None, file: Path, dry_run: bool) -> None:
    """Let a local cluster have another configuration. What is too much goes when it is idle; what runs runs on."""
    from iris.cli.render_fleet import config_changes
    from iris.client.controllers import LocalController

    record = running(name or ctx.find_root().obj["cluster"])
    after = make_local_config(load_config(file), record.name)
    check_size(after)
    before = LocalController.of(record.name).config
    lines = config_changes(before, after)
    click.echo("\n".join(lines) if lines else "no scale group changes")
    if dry_run:
        return
    LocalController(after).reload()
    click.echo(f"cluster {record.name} has the configuration of {file}")


@click.command()
@_name
@click.option("--no-dry-run", "really", is_flag=True, help="Delete it.  [default: only show it]")
@cluster_option
@click.pass_context
def cleanup(ctx: click.Context, name: str | None, really: bool) -> None:
    """Find what local clusters have left: machines that nobody looks after, processes and directories of dead ones.

    Of NAME, or of all clusters on this machine. What a stopped cluster needs for its next start stays.
    """
    from iris.client.cleanup import clean, leftovers

    named = name or ctx.find_root().obj["cluster"]
    found = asyncio.run(leftovers(meant(named).name if named else None))
    for each in found:
        click.echo(f"{'deleting' if really else 'would delete'} {each}")
    if not found:
        click.echo("nothing is left over")
    elif really:
        asyncio.run(clean(found))
    else:
        click.echo("nothing was deleted; to do so say --no-dry-run")


COMMANDS = (stop, restart, reload_, cleanup)


def meant(name: str | None) -> ClusterRecord:
    """The local cluster of that name, running or not, or the only one that runs.

    Raises:
        NotFound: there is no such cluster, or there are several.
    """
    if name is not None:
        record = read_record(check_name("name", name))
        if record is None:
            raise NotFound(f"there is no local cluster {name!r}")
        return record
    found = running_clusters()
    if not found:
        raise NotFound("no local cluster runs")
    if len(found) > 1:
        raise NotFound(f"several local clusters run ({', '.join(record.name for record in found)}); name one")
    return found[0]


def running(name: str | None) -> ClusterRecord:
    """The same, if it runs.

    Raises:
        Unreachable: it does not.
    """
    record = meant(name)
    if not record.alive():
        raise Unreachable(
            f"local cluster {record.name!r} does not run; start it with: iris cluster start --local --name {record.name} -d"
        )
    return record


def check_size(config: ClusterConfig) -> None:
    """Refuse what one machine cannot begin with."""
    total = sum(group.min_slices * group.hosts for group in groups(config))
    if total > MAX_LOCAL_HOSTS:
        raise click.UsageError(f"that begins with {total:,} hosts; {MAX_LOCAL_HOSTS} is the most for one machine")


def _plan_text(plan: "StopPlan") -> str:
    """What a stop would do, for people."""
    if not plan.running:
        return f"cluster {plan.name} does not run; {_left_text(plan, 'would clear away')}"
    how = "by the autoscaler" if plan.answers else "directly: the control plane does not answer"
    lines = [f"would give back {len(plan.slices)} slice(s), {how}", *(f"  {slice_id}" for slice_id in plan.slices)]
    if plan.jobs:
        lines.append(f"would {'end' if plan.ephemeral else 'interrupt'} {plan.jobs} live job(s)")
    lines.append(f"would stop the processes {', '.join(map(str, plan.processes))}")
    if plan.ephemeral:
        lines.append(f"would remove {cluster_dir(plan.name)}")
    return "\n".join([*lines, "nothing was changed"])


def _left_text(plan: "StopPlan", done: str = "cleared away") -> str:
    left = [f"{len(plan.slices)} slice(s)"] if plan.slices else []
    left += [f"{len(plan.processes)} process(es)"] if plan.processes else []
    left += [f"its directory {cluster_dir(plan.name)}"] if plan.ephemeral else []
    return f"{done}: {' and '.join(left)}" if left else "nothing was left of it"


def _say(text: str) -> None:
    click.echo(text, err=True)
