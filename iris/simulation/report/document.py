"""What the page about a simulation shows, as a value: lines, tables, pictures and the longest
waits. `page` turns it into HTML, and `stored` keeps it in a cluster's store.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from iris.model.frozen import Frozen
from iris.simulation.history import History
from iris.simulation.report.answers import LongWait
from iris.simulation.report.pictures.distribution import distribution
from iris.simulation.report.pictures.drawing import Drawing
from iris.simulation.report.pictures.over_time import over_time, span_of
from iris.simulation.report.pictures.slices import slices
from iris.simulation.report.tables import WAITS, Headline, Shown, Table


class Picture(Frozen):
    """A picture with its title."""

    title: str
    #: The name of the picture's file, without the suffix.
    name: str
    drawing: Drawing


class Report(Frozen):
    """The results of a simulation of one configuration, or the comparison of two configurations."""

    #: The name of the simulated configuration.
    configuration: str
    #: The name of the configuration with which the simulated one is compared; empty if there is
    #: none.
    against: str = ""
    #: The simulated time and the number of gangs, as text.
    workload: str
    #: Sentences about the simulation, such as the number of seeds, one on each line.
    facts: tuple[str, ...]
    headline: Headline
    #: The tables. The first one has the numbers of the whole simulation.
    tables: Annotated[tuple[Table, ...], Field(min_length=1)]
    pictures: tuple[Picture, ...] = ()
    #: The longest waits, with all reasons of each wait.
    worst: tuple[LongWait, ...] = ()

    @property
    def title(self) -> str:
        return f"Simulation of {self.configuration}"


def report_of(
    shown: Shown, notes: Sequence[str], simulated: Sequence[tuple[str, History]]
) -> Report:
    """Returns what the page shows.

    Args:
        notes: further lines about what was simulated.
        simulated: the names of the configurations, and what happened with the first seed; the one
            to compare with first.
    """
    *before, (name, _) = simulated
    # The page has the longest waits with all their reasons, in place of their table.
    tables = tuple(each for each in shown.tables() if each.head[0] != WAITS)
    return Report(
        configuration=name,
        against=before[0][0] if before else "",
        workload=shown.workload,
        facts=(*shown.facts, *notes),
        headline=shown.headline(),
        tables=tables,
        pictures=tuple(_pictures(simulated)),
        worst=shown.worst,
    )


def _pictures(simulated: Sequence[tuple[str, History]]) -> Iterator[Picture]:
    span = span_of(simulated)
    yield Picture(title="Waits", name="waits", drawing=distribution(simulated[::-1]))
    yield Picture(title="Queue and use", name="queue-and-use", drawing=over_time(simulated))
    names = ("slices",) if len(simulated) == 1 else ("slices-before", "slices-after")
    for file, (name, history) in zip(names, simulated, strict=True):
        title = name if len(simulated) > 1 else ""
        heading = f"Slices, {name}" if title else "Slices"
        yield Picture(title=heading, name=file, drawing=slices(history, span, title))
