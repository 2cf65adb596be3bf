"""Implements `iris autoscaler advise`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from iris.cli.command import Command
from iris.cli.parameters import cluster_option, json_option
from iris.cli.show.columns import plain
from iris.cli.show.messages import print_json, show_warnings
from iris.cli.show.progress import Steps
from iris.cli.simulate.inputs import read_configuration
from iris.cli.simulate.options import FILE, Asked, Prepared, prepare, simulation_options
from iris.cli.simulate.runs import Configuration, simulate_all
from iris.cli.simulate.text import advice_text
from iris.simulation.advice import Advice, Step, advice, best, effect, steps_of
from iris.simulation.report.results import Results
from iris.simulation.report.tables import waits_for_ever


@click.command(cls=Command)
@click.option("--config", "file", type=FILE, required=True, help="Configuration to improve.")
@simulation_options
@json_option
@cluster_option
@click.pass_context
def advise(ctx: click.Context, /, file: Path, as_json: bool, **asked: Any) -> None:
    """Look for small changes of a configuration that shorten waits, or save money.

    Simulates a workload with one change at a time: max_slices, min_slices, buffer_slices,
    scale_down_delay or the order of the zones of one scale group. The best changes are simulated
    with all seeds. Nothing is changed and nothing is created.

    \b
    iris autoscaler advise --config cluster.yaml --last 7d
    """
    configuration = read_configuration(file)
    prepared = prepare(ctx, Asked(**asked), [configuration])
    with Steps("simulating") as steps:
        found = _search(configuration, prepared, steps.update)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        click.echo(advice_text(found, prepared.notes))


def _search(
    configuration: Configuration, prepared: Prepared, progress: Callable[[str], None]
) -> Advice:
    """Returns the best steps: of all steps with the first seed, and then with all seeds."""
    first = prepared.seeds[:1]

    def simulated(steps: Sequence[Step], seeds: Sequence[int]) -> list[Results]:
        names = [configuration, *(_changed(configuration, step) for step in steps)]
        found = simulate_all(names, prepared.trace, prepared.world, seeds, progress=progress)
        return [each.results for each in found]

    def judged(steps: Sequence[Step], seeds: Sequence[int]) -> Advice:
        before, *others = simulated(steps, seeds)
        effects = [effect(step, before, each) for step, each in zip(steps, others, strict=True)]
        return advice(effects, before.answers[0].currency, tried)

    (alone,) = simulated((), first)
    show_warnings(map(plain, waits_for_ever(alone)))
    steps = steps_of(configuration.cluster, alone.answers[0])
    tried = len(steps)
    found = judged(steps, first)
    if len(prepared.seeds) == 1:
        return found
    return judged(best(steps, found), prepared.seeds)


def _changed(configuration: Configuration, step: Step) -> Configuration:
    name = f"{step.group}: {step.text}"
    return configuration._replace(name=name, cluster=step.cluster)
