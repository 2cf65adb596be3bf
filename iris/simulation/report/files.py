"""Makes the files of a report: the page, the answers, the pictures, the gangs and the slices."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from iris.model.csv_text import csv_text
from iris.simulation.history import History
from iris.simulation.report.document import Report
from iris.simulation.report.page import page
from iris.simulation.report.shapes import shape_of
from iris.usage.records import SliceUse

#: The name of the file with the page of the report.
PAGE = "report.html"
#: The names of files that only some reports have. If a report does not have one, the command
#: deletes the file that an earlier report left in the directory.
SOMETIMES = ("slices.svg", "slices-before.svg", "slices-after.svg")
_GANGS = (
    *("configuration", "id", "user", "band", "shape", "asked_at", "waited_seconds"),
    *("placed_at", "group", "ended_at", "state", "attempts", "evictions", "losses", "resubmitted"),
)
_SLICES = (
    *("configuration", "id", "group", "zone", "machine", "hosts", "requested_at", "ready_at"),
    *("gone_at", "open", "reason"),
)


def report_files(
    report: Report, simulated: Sequence[tuple[str, History]], values: Mapping[str, Any]
) -> dict[str, str]:
    """Returns the texts of the files by their names.

    Args:
        simulated: the names of the configurations, and what happened with the first seed; the one
            to compare with first.
        values: the answers, for JSON.
    """
    return {
        PAGE: page(report),
        "answers.json": json.dumps(values, indent=2) + "\n",
        **{f"{each.name}.svg": each.drawing.svg() for each in report.pictures},
        "gangs.csv": csv_text(_GANGS, _gang_rows(simulated)),
        "slices.csv": csv_text(_SLICES, _slice_rows(simulated)),
    }


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
