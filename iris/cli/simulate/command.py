"""Implements `iris simulate`."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from iris.cli.cluster.dashboard import without_dashboard
from iris.cli.command import Command
from iris.cli.parameters import cluster_option, json_option
from iris.cli.run import with_client
from iris.cli.show.messages import print_json, show_progress
from iris.cli.show.progress import Steps
from iris.cli.simulate.inputs import read_configuration
from iris.cli.simulate.options import FILE, Asked, prepare, simulation_options
from iris.cli.simulate.runs import simulate_all
from iris.cli.simulate.text import simulation_text
from iris.client.client import AsyncIrisClient
from iris.model.errors import InvalidValue
from iris.model.names import check_name
from iris.simulation.report.document import Report, report_of
from iris.simulation.report.page import PAGE, SOMETIMES, report_files
from iris.simulation.report.results import to_json
from iris.simulation.report.tables import Shown
from iris.simulation.world import write_world


@click.command(cls=Command)
@click.option("--config", "file", type=FILE, required=True, help="Configuration to try.")
@click.option("--against", type=FILE, help="Configuration to compare it with.")
@simulation_options
@click.option(
    "--show-world", is_flag=True, help="Print the assumptions as YAML, and simulate nothing."
)
@json_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write a report with pictures into this directory.",
)
@click.option(
    "--publish",
    metavar="NAME",
    help="Keep the report under this name in the cluster's store. Its dashboard shows it.",
)
@cluster_option
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    file: Path,
    against: Path | None,
    show_world: bool,
    as_json: bool,
    out: Path | None,
    publish: str | None,
    **asked: Any,
) -> None:
    """Simulate a workload on a configuration, and show waits, machines and cost.

    The scheduler and the autoscaler are those of a real cluster, in virtual time. With --against,
    show what would change. Nothing is created, and no job runs.

    \b
    iris simulate --config new.yaml --last 7d
    iris simulate --config new.yaml --against old.yaml --last 7d --out report
    iris simulate --config new.yaml --workload week.jsonl --world spot.yaml
    iris simulate --config new.yaml --against old.yaml --last 7d --publish one-more-slice
    """
    if out is not None:
        _check_folder(out)
    if publish is not None:
        check_name("publish", publish)
    files = [file] if against is None else [against, file]
    configurations = [read_configuration(each) for each in files]
    prepared = prepare(ctx, Asked(**asked), configurations)
    trace, world, seeds, notes = prepared
    if show_world:
        click.echo(write_world(world), nl=False)
        return
    if publish is not None:
        with_client(ctx, lambda client: client.simulations.check(publish))
    with Steps("simulating") as steps:
        simulated = simulate_all(
            configurations, trace, world, seeds, progress=steps.update, histories=True
        )
    *before, after = (each.results for each in simulated)
    old = before[0] if before else None
    values = {"world": world.model_dump(mode="json"), **to_json(old, after)}
    shown = Shown(old, after, by_chance=world.varies)
    if as_json:
        print_json(values)
    else:
        click.echo(simulation_text(shown, notes))
    if out is None and publish is None:
        return
    histories = [(each.results.name, each.first) for each in simulated if each.first]
    report = report_of(shown, notes, histories)
    if out is not None:
        _write_files(out, report_files(report, histories, values))
        show_progress(f"the report is {out / PAGE}")
    if publish is not None:
        show_progress(with_client(ctx, partial(_published, name=publish, report=report)))


async def _published(client: AsyncIrisClient, name: str, report: Report) -> str:
    """Publishes a report. Returns a sentence about where it is."""
    replaces = await client.simulations.publish(name, report)
    earlier = ", in place of an earlier one" if replaces else ""
    if page := client.simulations.page(name):
        return f"the report is {page}{earlier}"
    cluster = client.record.name
    return (
        f"the report {name} is in the store of cluster {cluster}{earlier}; the cluster has no"
        f" dashboard here: {without_dashboard(client.record)}"
    )


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Writes the files of a report into a folder, which is created if it does not exist. Removes
    those of an earlier report that this one lacks. Other files there stay.

    The files appear when all of them are written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".", dir=folder) as drafts:
        for name, text in files.items():
            (Path(drafts) / name).write_text(text, encoding="utf-8")
        for name in files:
            (Path(drafts) / name).replace(folder / name)
    for name in {*SOMETIMES} - files.keys():
        (folder / name).unlink(missing_ok=True)


def _check_folder(folder: Path) -> None:
    """Checks that files can be written into a folder, before a long simulation.

    Raises:
        InvalidValue: the folder, or the one in which it is to be created, cannot be written.
    """
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        problem = "is no directory" if not there.is_dir() else "is not writable"
        raise InvalidValue("out", there, problem, "give another directory")
