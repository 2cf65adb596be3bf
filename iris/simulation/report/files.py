"""Makes the files of a report: the page, the answers, the pictures, the gangs and the slices."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from iris.model.csv_text import csv_text
from iris.simulation.history import History
from iris.simulation.report.page import Picture, page
from iris.simulation.report.pictures.distribution import distribution
from iris.simulation.report.pictures.over_time import over_time, span_of
from iris.simulation.report.pictures.slices import slices
from iris.simulation.report.shapes import shape_of
from iris.simulation.report.tables import Shown
from iris.usage.records import SliceUse

#: The name of the page.
PAGE = "report.html"
_GANGS = (
    *("configuration", "id", "user", "band", "shape", "asked_at", "waited_seconds"),
    *("placed_at", "group", "ended_at", "state", "attempts", "evictions", "losses", "resubmitted"),
)
_SLICES = (
    *("configuration", "id", "group", "zone", "machine", "hosts", "requested_at", "ready_at"),
    *("gone_at", "open", "reason"),
)


def report_files(
    shown: Shown,
    notes: Sequence[str],
    simulated: Sequence[tuple[str, History]],
    values: Mapping[str, Any],
) -> dict[str, str]:
    """Returns the texts of the files by their names.

    Args:
        notes: lines about what was simulated.
        simulated: the names of the configurations, and what happened with the first seed; the one
            to compare with first.
        values: the answers, for JSON.
    """
    pictures = dict(_pictures(simulated, alone=True))
    *_, (name, _) = simulated
    inside = [picture for _, picture in _pictures(simulated, alone=False)]
    return {
        PAGE: page(f"Simulation of {name}", shown, notes, inside),
        "answers.json": json.dumps(values, indent=2) + "\n",
        **{file: each.svg for file, each in pictures.items()},
        "gangs.csv": csv_text(_GANGS, _gang_rows(simulated)),
        "slices.csv": csv_text(_SLICES, _slice_rows(simulated)),
    }


def _pictures(
    simulated: Sequence[tuple[str, History]], *, alone: bool
) -> Iterator[tuple[str, Picture]]:
    span = span_of(simulated)
    yield "waits.svg", Picture("Waits", distribution(simulated[::-1], alone=alone))
    yield "queue-and-use.svg", Picture("Queue and use", over_time(simulated, alone=alone))
    files = ["slices.svg"] if len(simulated) == 1 else ["slices-before.svg", "slices-after.svg"]
    for file, (name, history) in zip(files, simulated, strict=True):
        title = name if len(simulated) > 1 else ""
        heading = f"Slices, {name}" if title else "Slices"
        yield file, Picture(heading, slices(history, span, title, alone=alone))


def _gang_rows(simulated: Sequence[tuple[str, History]]) -> Iterator[Sequence[object]]:
    for name, history in simulated:
        for gang in history.gangs:
            trace, first = gang.trace, gang.attempts[0] if gang.attempts else None
            yield (
                *(name, trace.id, trace.user, trace.band.value, shape_of(trace)),
                *(gang.asked_at.isoformat(), gang.waited(history.stopped)),
                *(first.at.isoformat() if first else "", first.group if first else ""),
                gang.ended_at.isoformat() if gang.ended_at else "",
                gang.state.value if gang.state else "",
                *(len(gang.attempts), gang.evictions, gang.losses, gang.resubmitted),
            )


def _slice_rows(simulated: Sequence[tuple[str, History]]) -> Iterator[Sequence[object]]:
    for name, history in simulated:
        for use in history.uses:
            if isinstance(use, SliceUse):
                yield (
                    *(name, use.id, use.group, use.zone, use.machine, use.hosts),
                    use.requested_at.isoformat(),
                    use.ready_at.isoformat() if use.ready_at else "",
                    *(use.gone_at.isoformat(), "yes" if use.open else "no", use.reason),
                )
