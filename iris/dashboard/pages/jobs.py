"""The list of jobs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from iris.client.jobs.lists import JobFilter
from iris.client.jobs.rows import JobRow
from iris.dashboard.content import Address, Content
from iris.dashboard.reader import Reader
from iris.model.errors import InvalidValue
from iris.model.job.cancelling import state_text
from iris.model.job.tags import parse_tag
from iris.model.states import JobState
from iris.model.units import parse_duration

#: The number of jobs on one page.
PER_PAGE = 50
#: The limit on child jobs that the list shows below their parent. If there are at least two more, a
#: last line counts the others; a single further child is shown, too.
MOST_SIBLINGS = 5
#: The value of the query parameter `state` that selects the jobs that have not ended.
LIVE = "live"


class Line(NamedTuple):
    """A line of the list of jobs."""

    #: The number of ancestors of the job that the list shows above it.
    depth: int
    #: The job. It is None for a line that names a parent on another page, and for a line that
    #: counts further children.
    row: JobRow | None
    #: The text of the line: the job's id, or only its last part if the list shows the parent above.
    #: A line without a job has the parent's id or the number of further children.
    name: str
    #: For a line that only names a parent on another page, or only counts further children: the id
    #: of the parent. Empty for a line that shows a job.
    parent: str = ""
    #: For a line that counts further children: the number of these children in each state.
    #: Otherwise empty.
    more: Mapping[str, int] = {}


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page. The query has the filter: `state`, `user`, `tag`, `text`, `since`, `below`
    and `top`; and `from`, the place in the list.
    """
    query = address.query
    wanted = filter_of(query, datetime.now(UTC))
    page = await reader.page_of_jobs(wanted, PER_PAGE, query.get("from", ""))
    counts = await reader.count_by_state(wanted)
    return Content(
        "Jobs",
        {
            "lines": list(tree(page.rows)),
            "page_of_jobs": page,
            "counts": {state: count for state, count in counts.items() if count},
            "live": sum(count for state, count in counts.items() if not state.ended),
            "states": list(JobState),
            "filters": {key: value for key, value in query.items() if key != "from"},
            "query": query,
        },
    )


def filter_of(query: Mapping[str, str], now: datetime) -> JobFilter:
    """Returns the filter of a query.

    Raises:
        InvalidValue: a parameter is wrong.
    """
    state = query.get("state", "")
    states: tuple[JobState, ...] = ()
    if state and state != LIVE:
        if state.upper() not in JobState.__members__:
            raise InvalidValue("state", state, "is no state", f"use one of {', '.join(JobState)}")
        states = (JobState[state.upper()],)
    since, below = query.get("since", ""), query.get("below", "")
    if "'" in below or "\\" in below:
        raise InvalidValue("below", below, "is no job", "write USER/NAME")
    return JobFilter(
        live_only=state == LIVE,
        states=states,
        user=query.get("user", ""),
        text=query.get("text", ""),
        tags=(parse_tag(query["tag"]),) if query.get("tag") else (),
        # Whole minutes, so that the same question is asked twice within a minute.
        since=(now - parse_duration(since, "since")).replace(second=0, microsecond=0)
        if since
        else None,
        below=below,
        top_level=bool(query.get("top")),
    )


def tree(rows: Sequence[JobRow]) -> Iterator[Line]:
    """Yields the lines of a part of the list: below each job its children, the oldest first.

    Siblings whose parent is not in this part get a line with the parent's name.

    Args:
        rows: the newest job first.
    """
    known = {row.id for row in rows if row.run is None}
    below: dict[str, list[JobRow]] = {}
    for row in reversed(rows):
        if row.parent is not None:
            below.setdefault(row.parent, []).append(row)

    def lines(row: JobRow, depth: int, *, short: bool) -> Iterator[Line]:
        yield Line(depth, row, row.id.rpartition("/")[2] if short else row.id)
        if row.run is None:
            yield from children(row.id, depth + 1)

    def children(parent: str, depth: int) -> Iterator[Line]:
        siblings = below.pop(parent, [])
        shown = MOST_SIBLINGS if len(siblings) > MOST_SIBLINGS + 1 else len(siblings)
        for row in siblings[:shown]:
            yield from lines(row, depth, short=True)
        if len(siblings) > shown:
            counts = Counter(state_text(row) for row in siblings[shown:])
            yield Line(depth, None, f"{len(siblings) - shown} more", parent, counts)

    for row in rows:
        if row.parent is None:
            yield from lines(row, 0, short=False)
        elif row.parent not in known and len(siblings := below.get(row.parent, [])) == 1:
            yield from lines(siblings[0], 0, short=False)
            del below[row.parent]
        elif row.parent not in known and siblings:
            yield Line(0, None, row.parent, row.parent)
            yield from children(row.parent, 1)
