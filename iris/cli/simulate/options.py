"""The options that say what to simulate, and what they mean."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from iris.cli.parameters import DURATION
from iris.cli.run import with_client
from iris.cli.show.messages import show_warnings
from iris.cli.simulate.inputs import (
    make_workload,
    unknown_groups,
    unnamed_groups,
    workload_in,
    world_of,
)
from iris.cli.simulate.runs import Configuration
from iris.simulation.trace import Trace
from iris.simulation.world import World

F = TypeVar("F", bound=Callable[..., Any])

#: The number of seeds that are simulated if the user gives no `--seeds`.
SEEDS = 3
MOST_SEEDS = 1_000
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


class Asked(NamedTuple):
    """The values of the options that choose a simulation's workload, world and seeds."""

    last: timedelta | None
    workload: Path | None
    gpu: str
    synthetic: str | None
    world: Path | None
    seed: int
    seeds: int


class Prepared(NamedTuple):
    """The input of a simulation, made from its options."""

    trace: Trace
    world: World
    seeds: Sequence[int]
    #: Lines for the user: where the assumptions about machines (the world) come from, and which
    #: parts of the workload are missing.
    notes: tuple[str, ...]


_OPTIONS = (
    click.option(
        "--last", type=DURATION, help="Simulate the workload that the cluster had in this time."
    ),
    click.option("--workload", type=FILE, help="Simulate the workload of this file."),
    click.option(
        "--gpu",
        metavar="VARIANT",
        default="",
        help="Variant of the GPUs that all jobs of a public trace ask for, such as H100.",
    ),
    click.option(
        "--synthetic",
        metavar="TEXT|FILE",
        help="Simulate a workload of this description, such as jobs=1000,days=7,gpu=1|8.",
    ),
    click.option(
        "--world",
        type=FILE,
        help="Assumptions about machines and people, as YAML.  [default: measured, if the workload"
        " has slices]",
    ),
    click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="First seed."
    ),
    click.option(
        "--seeds",
        type=click.IntRange(1, MOST_SEEDS),
        default=SEEDS,
        show_default=True,
        help="Simulate with this many seeds: the luck of the machines.",
    ),
)


def simulation_options(function: F) -> F:
    """Adds the options whose values are the fields of `Asked`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def prepare(ctx: click.Context, asked: Asked, configurations: Sequence[Configuration]) -> Prepared:
    """Reads the workload and the world.

    Args:
        configurations: those to simulate. Warns if the world has other groups.

    Raises:
        click.UsageError: no workload is given, or several.
    """
    trace, gaps = _workload(ctx, asked)
    world, about = world_of(asked.world, trace)
    if asked.world is not None:
        unknown = unknown_groups(world, configurations)
        show_warnings(f"{asked.world}: no configuration has {each}" for each in unknown)
    if world.machines:  # a world without any is of defaults on purpose
        unnamed = unnamed_groups(world, configurations)
        show_warnings(
            f"{asked.world} has no entry for {each}: its machines boot in 2m and never fail"
            for each in unnamed
        )
    seeds = range(asked.seed, asked.seed + (asked.seeds if world.varies else 1))
    return Prepared(trace, world, seeds, (about, *(f"incomplete: {gap}" for gap in gaps)))


def _workload(ctx: click.Context, asked: Asked) -> tuple[Trace, Sequence[str]]:
    """Returns the workload, and what is missing in it."""
    given = (asked.last, asked.workload, asked.synthetic)
    if sum(each is not None for each in given) != 1:
        raise click.UsageError("give one workload: --last, --workload or --synthetic")
    if asked.gpu and asked.workload is None:
        raise click.UsageError("--gpu needs --workload")
    if asked.last is not None:
        since = asked.last
        made = with_client(ctx, lambda client: client.cluster.usage_trace(since=since, names=True))
        return made.trace, made.gaps
    if asked.workload is not None:
        return workload_in(asked.workload, asked.gpu), ()
    assert asked.synthetic is not None
    return make_workload(asked.synthetic), ()
