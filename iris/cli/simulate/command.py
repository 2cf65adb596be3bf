"""Implements `iris simulate`."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import click

from iris.cli.command import Command
from iris.cli.parameters import DURATION, cluster_option, json_option
from iris.cli.run import with_client
from iris.cli.show.messages import print_json, show_progress, show_warnings
from iris.cli.show.progress import Steps
from iris.cli.simulate.inputs import (
    make_workload,
    read_configuration,
    unknown_groups,
    workload_in,
    world_of,
)
from iris.cli.simulate.runs import Configuration, Simulated, simulate_all
from iris.cli.simulate.text import simulation_text
from iris.simulation.report.files import PAGE, report_files
from iris.simulation.report.results import to_json
from iris.simulation.report.tables import Shown
from iris.simulation.trace import Trace
from iris.simulation.world import World, write_world

#: How many seeds are simulated, unless the user wants others.
SEEDS = 3

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(cls=Command)
@click.option("--config", "file", type=_FILE, required=True, help="Configuration to try.")
@click.option("--against", type=_FILE, help="Configuration to compare it with.")
@click.option(
    "--last", type=DURATION, help="Simulate the workload that the cluster had in this time."
)
@click.option("--workload", type=_FILE, help="Simulate the workload of this file.")
@click.option(
    "--gpu",
    metavar="VARIANT",
    default="",
    help="Variant of the GPUs that all jobs of a public trace ask for, such as H100.",
)
@click.option(
    "--synthetic",
    metavar="TEXT|FILE",
    help="Simulate a workload of this description, such as jobs=1000,days=7,gpu=1|8.",
)
@click.option(
    "--world",
    "world_file",
    type=_FILE,
    help="Assumptions about machines and people, as YAML.  [default: measured, if the workload has"
    " slices]",
)
@click.option(
    "--show-world", is_flag=True, help="Print the assumptions as YAML, and simulate nothing."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="First seed."
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=SEEDS,
    show_default=True,
    help="Simulate with this many seeds: the luck of the machines.",
)
@json_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write a report with pictures into this directory.",
)
@cluster_option
@click.pass_context
def simulate(
    ctx: click.Context,
    file: Path,
    against: Path | None,
    last: timedelta | None,
    workload: Path | None,
    gpu: str,
    synthetic: str | None,
    world_file: Path | None,
    show_world: bool,
    seed: int,
    seeds: int,
    as_json: bool,
    out: Path | None,
) -> None:
    """Simulate a workload on a configuration, and show waits, machines and cost.

    The scheduler and the autoscaler are those of a real cluster, in virtual time. With --against,
    show what would change. Nothing is created, and no job runs.

    \b
    iris simulate --config new.yaml --last 7d
    iris simulate --config new.yaml --against old.yaml --last 7d --out report
    iris simulate --config new.yaml --workload week.jsonl --world spot.yaml
    """
    files = [file] if against is None else [against, file]
    configurations = [read_configuration(each) for each in files]
    trace, gaps = _workload(ctx, last, workload, gpu, synthetic)
    world, about = world_of(world_file, trace)
    notes = (about, *(f"incomplete: {gap}" for gap in gaps))
    if show_world:
        click.echo(write_world(world), nl=False)
        return
    if world_file is not None:
        show_warnings(
            f"{world_file}: no configuration has {each}"
            for each in unknown_groups(world, configurations)
        )
    simulated = _simulate(configurations, trace, world, seed, seeds if world.varies else 1)
    *before, after = (each.results for each in simulated)
    old = before[0] if before else None
    values = {"world": world.model_dump(mode="json"), **to_json(old, after)}
    shown = Shown(old, after, by_chance=world.varies)
    if as_json:
        print_json(values)
    else:
        click.echo(simulation_text(shown, notes))
    if out is not None:
        histories = [(each.results.name, each.first) for each in simulated]
        _write_files(out, report_files(shown, notes, histories, values))
        show_progress(f"the report is {out / PAGE}")


def _workload(
    ctx: click.Context,
    last: timedelta | None,
    workload: Path | None,
    gpu: str,
    synthetic: str | None,
) -> tuple[Trace, Sequence[str]]:
    """Returns the workload to simulate, and what is missing in it.

    Raises:
        click.UsageError: none is given, or several.
    """
    if sum(each is not None for each in (last, workload, synthetic)) != 1:
        raise click.UsageError("give one workload: --last, --workload or --synthetic")
    if gpu and workload is None:
        raise click.UsageError("--gpu is about the file of --workload")
    if last is not None:
        made = with_client(ctx, lambda client: client.cluster.usage_trace(since=last, names=True))
        return made.trace, made.gaps
    if workload is not None:
        return workload_in(workload, gpu), ()
    assert synthetic is not None
    return make_workload(synthetic), ()


def _simulate(
    configurations: list[Configuration], trace: Trace, world: World, first: int, seeds: int
) -> list[Simulated]:
    """Simulates each configuration with these seeds, and shows how many have ended."""
    with Steps("simulating") as steps:
        return simulate_all(
            configurations,
            trace,
            world,
            range(first, first + seeds),
            lambda done, of: steps.update(f"simulating: {done} of {of} have ended"),
        )


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Writes files into a folder, which is created if it does not exist. Other files there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
