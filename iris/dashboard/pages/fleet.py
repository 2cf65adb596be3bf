"""The hosts of the cluster, as a grid and as a table."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from iris.dashboard import hosts, scaling
from iris.dashboard.content import Address, Content, page_number
from iris.dashboard.problems import silent_hosts
from iris.dashboard.reader import Reader, part
from iris.messages.autoscaler import AutoscalerStatus
from iris.model.slice.status import SliceFacts, SliceState

#: The number of hosts on one page of the grid.
PER_GRID = 1_000
#: The number of hosts on one page of the table.
PER_TABLE = 100
#: The grid shows the names of hosts if it has at most this many hosts.
MOST_NAMED = 48
#: The value of the query parameter `group` that selects hosts without a scale group.
NO_GROUP = "-"


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
