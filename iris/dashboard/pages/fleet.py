"""The hosts of the cluster, as a grid and as a table; one slice; and the autoscaler."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from iris.dashboard import hosts, scaling
from iris.dashboard.content import Address, Content, page_number
from iris.dashboard.hosts import job_of
from iris.dashboard.problems import of_autoscaler, silent_hosts
from iris.dashboard.reader import Reader, part
from iris.messages.autoscaler import AutoscalerStatus
from iris.model.slice.status import SliceFacts, SliceState, SliceStatus

#: The number of hosts on one page of the grid.
PER_GRID = 1_000
#: The number of hosts on one page of the table.
PER_TABLE = 100
#: The grid shows the names of hosts if it has at most this many hosts.
MOST_NAMED = 48
#: The value of the query parameter `group` that selects hosts without a scale group.
NO_GROUP = "-"
#: The limit on actions of the autoscaler that the page shows.
MOST_ACTIONS = 50
#: The limit on rows of the table of waiting gangs. A row stands for all gangs with the same needs,
#: and shows which slice is on its way to them, or why none is requested.
MOST_OUTLOOKS = 50


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page. The query has `view`, `group`, `state`, `text`, `sort` and `page`."""
    query, now = address.query, datetime.now(UTC)
    views, scaler, reports = await asyncio.gather(
        reader.hosts(), part(reader.autoscaler()), part(reader.reports())
    )
    known = reports.value or {}
    silent = silent_hosts(views, known, now)
    every = [
        hosts.row_of(view, known.get((view.host.id, view.host.incarnation)), silent)
        for view in views
    ]
    group = query.get("group") or None
    rows = hosts.matching(
        every,
        "" if group == NO_GROUP else group,
        query.get("state", "").upper(),
        query.get("text", ""),
    )
    is_table = query.get("view") == "table"
    per_page, number = PER_TABLE if is_table else PER_GRID, page_number(query.get("page", ""))
    rows = hosts.in_order(rows, query.get("sort", "") if is_table else "slice")
    shown = rows[(number - 1) * per_page : number * per_page]
    more = len(rows) > number * per_page
    return Content(
        "Fleet",
        {
            "query": query,
            "is_table": is_table,
            "rows": shown if is_table else (),
            "grid": ()
            if is_table
            else hosts.grid(shown, () if more else coming(scaler.value, query)),
            "named": len(rows) <= MOST_NAMED,
            "counts": _counts(every),
            "groups": scaling.group_names(scaler.value, (row.group for row in every)),
            "has_other": any(not row.group for row in every),
            "states": hosts.STATES,
            "total": len(rows),
            "all": len(every),
            "number": number,
            "first": (number - 1) * per_page + 1,
            "last": (number - 1) * per_page + len(shown),
            "more": more,
            "scaling": scaler,
            "reports": reports,
            "job_of": hosts.job_of,
        },
    )


def coming(
    status: AutoscalerStatus | None, query: dict[str, str] | object
) -> list[tuple[SliceFacts, int]]:
    """Returns the slices of the filter that are not READY, each with its number of hosts. A filter
    by a state of hosts takes none of them.
    """
    assert isinstance(query, dict)
    if status is None or query.get("state"):
        return []
    groups = {each.name: each for each in (status.settings.groups if status.settings else ())}
    return [
        (each, groups[each.group].hosts if each.group in groups else 1)
        for each in status.slices
        if each.state is not SliceState.READY
        and query.get("group") in (None, "", each.group)
        and query.get("text", "").lower() in each.id.lower()
    ]


def _counts(rows: Iterable[hosts.HostRow]) -> list[tuple[str, int]]:
    """Returns the numbers of hosts by state, for the legend. Free and used hosts are always in
    it.
    """
    counts = Counter(row.state for row in rows)
    always = (hosts.BUSY, hosts.FREE)
    return [(state, counts[state]) for state in hosts.STATES if counts[state] or state in always]


class Step(NamedTuple):
    """A state change or an action in a slice's history."""

    at: datetime
    #: The time since the first step of the history.
    after: timedelta
    state: SliceState
    reason: str


async def load_slice(reader: Reader, address: Address) -> Content:
    """Loads the page of one slice: its state with the reason, its history and its hosts."""
    status = await reader.slice(address.path["slice"])
    now = datetime.now(UTC)
    views, reports, scaler, holdings = await asyncio.gather(
        part(reader.hosts()),
        part(reader.reports()),
        part(reader.autoscaler()),
        part(reader.holdings()),
    )
    here = [view for view in views.value or () if view.host.slice_id == status.id]
    known = reports.value or {}
    silent = silent_hosts(here, known, now)
    rows = [
        hosts.row_of(view, known.get((view.host.id, view.host.incarnation)), silent)
        for view in here
    ]
    idle = holdings.value.idle if holdings.value else {}
    due = [
        each
        for each in (scaling.returns(scaler.value, idle) if scaler.value else ())
        if each.slice_id == status.id
    ]
    return Content(
        status.id,
        {
            "status": status,
            "steps": steps_of(status),
            "rows": hosts.in_order(rows, "id"),
            "absent": absent_hosts(status, rows) if views.value is not None else [],
            "hosts": views,
            "due": due[0] if due else None,
            "job_of": hosts.job_of,
        },
        above="/fleet",
    )


def steps_of(status: SliceStatus) -> list[Step]:
    """Returns the history of a slice, the oldest step first."""
    return [
        Step(step.at, step.at - status.steps[0].at, step.state, step.reason)
        for step in status.steps
    ]


def absent_hosts(status: SliceStatus, rows: list[hosts.HostRow]) -> list[str]:
    """Returns the hosts of a READY slice that the scheduler does not have."""
    present = {row.id for row in rows}
    return (
        [host.id for host in status.hosts if host.id not in present]
        if status.state is SliceState.READY
        else []
    )


async def load_autoscaler(reader: Reader, address: Address) -> Content:
    """Loads the page of the autoscaler: what each scale group has and needs, and why it
    does not get more.
    """
    now = datetime.now(UTC)
    status = await reader.autoscaler()
    holdings = await part(reader.holdings())
    groups = {group.name: group for group in (status.settings.groups if status.settings else ())}
    return Content(
        "Autoscaler",
        {
            "status": status,
            "problems": list(of_autoscaler(status, now)),
            "settings": groups,
            "limits": scaling.limits(status),
            "counts_of": scaling.counts_of,
            "coming": scaling.coming(status),
            "leaving": scaling.leaving(status),
            "blocked": scaling.blocked(status, now),
            "holdings": holdings,
            "returns": scaling.returns(status, holdings.value.idle) if holdings.value else [],
            "outlooks": status.outlooks[:MOST_OUTLOOKS],
            "actions": status.actions[: -MOST_ACTIONS - 1 : -1],
            "job_of": job_of,
        },
    )
