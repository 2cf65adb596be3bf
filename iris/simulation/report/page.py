"""Makes the files of a report: the answers, the pictures, the gangs, the slices, and one HTML page:
without scripts and without anything from
outside, in a light and a dark theme, for screens of any width.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from iris.model.csv_text import csv_text
from iris.simulation.history import History
from iris.simulation.report.answers import LongWait
from iris.simulation.report.document import Report
from iris.simulation.report.forms import moment, seconds
from iris.simulation.report.pictures.drawing import COLOURS, SHAPES, WIDTH, escape
from iris.simulation.report.shapes import shape_of
from iris.simulation.report.tables import Table
from iris.usage.records import SliceUse

_STYLE = f"""\
{COLOURS}{SHAPES}
* {{ box-sizing: border-box; }}
body {{
  margin: 0 auto; padding: 12px 16px 48px; max-width: 1100px; background: var(--ground);
  color: var(--text); font: 15px/1.45 system-ui, sans-serif; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere;
}}
h1 {{ font-size: 22px; margin: 8px 0 4px; }} h2 {{ font-size: 17px; margin: 26px 0 6px; }}
p {{ margin: 4px 0; }} .quiet {{ color: var(--quiet); }}
.scroll {{ overflow-x: auto; }}
.scroll:focus-visible {{ outline: 2px solid var(--first); }}
.scroll svg {{ display: block; max-width: 100%; min-width: {WIDTH * 0.8:.0f}px; height: auto; }}
table {{ border-collapse: collapse; }}
th, td {{
  text-align: left; padding: 3px 14px 3px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: normal;
}}
th {{ color: var(--quiet); font-size: 12px; }}
th, td {{ white-space: nowrap; }}
.number {{ text-align: right; }}
summary {{ cursor: pointer; padding: 3px 0; }} details ol {{ margin: 4px 0 10px; }}
"""
#: The name of the file with the page of the report.
PAGE = "report.html"
#: The names of files that only some reports have. If a new report does not have one, `iris
#: simulate` deletes the file that an earlier report left in the directory.
SOMETIMES = ("slices.svg", "slices-before.svg", "slices-after.svg")
_GANGS = (
    *("configuration", "id", "user", "band", "shape", "asked_at", "waited_seconds"),
    *("placed_at", "group", "ended_at", "state", "attempts", "evictions", "losses", "resubmitted"),
)
_SLICES = (
    *("configuration", "id", "group", "zone", "machine", "hosts", "requested_at", "ready_at"),
    *("gone_at", "open", "reason"),
)


def page(report: Report) -> str:
    """Returns the page as a file of its own."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style></head>\n<body><main>\n"
        f"<h1>{escape(report.title)}</h1>\n{content(report)}\n</main></body></html>\n"
    )


def content(report: Report) -> str:
    """Returns the HTML below the heading of the page. Every text in it is escaped, and it has no
    styles of its own.
    """
    summary, *others = report.tables
    body = [f'<p class="quiet">{escape(each)}</p>' for each in report.facts]
    body += _table(summary)
    for each in report.pictures:
        body.append(f"<h2>{escape(each.title)}</h2>")
        drawing = each.drawing.svg(alone=False)
        body.append(f'<div class="scroll" tabindex="0">{drawing}</div>')
    for table in others:
        body += _table(table)
    body += _waits(report.worst)
    return "\n".join(body)


def _table(table: Table) -> Iterator[str]:
    yield f"<h2>{escape(table.title)}</h2>"
    head = "".join(
        f'<th scope="col"{_kind(table, at)}>{escape(each)}</th>'
        for at, each in enumerate(table.head)
    )
    yield f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>'
    for row in table.rows:
        cells = (f"<td{_kind(table, at)}>{escape(each)}</td>" for at, each in enumerate(row))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"
    if table.note:
        yield f'<p class="quiet">{escape(table.note)}</p>'


def _kind(table: Table, at: int) -> str:
    return "" if at < table.texts else ' class="number"'


def _waits(worst: Sequence[LongWait]) -> Iterator[str]:
    """Yields the longest waits, each with its reasons."""
    if worst:
        yield "<h2>Longest waits</h2>"
    for each in worst:
        facts = f"{each.id}, {each.user}, {each.band}, {each.shape}, from {moment(each.asked_at)}"
        first = f"<b>{seconds(each.waited)}</b> {escape(facts)}"
        if not each.reasons:
            yield f"<p>{first}</p>"
            continue
        yield f"<details><summary>{first}</summary><ol>"
        for reason in each.reasons:
            line = f"after {seconds(reason.after)}: {reason.code} {reason.message}"
            yield f"<li>{escape(line)}</li>"
        yield "</ol></details>"


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
