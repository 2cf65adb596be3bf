"""The list of jobs."""

from datetime import UTC, datetime

from iris.client.jobs.lists import JobFilter
from iris.dashboard.content import Address, Content
from iris.dashboard.reader import Reader
from iris.model.errors import InvalidValue
from iris.model.job.tags import parse_tag
from iris.model.states import JobState
from iris.model.units import parse_duration

#: The number of jobs on one page.
PER_PAGE = 50


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page. The query has the filter: `state`, `user`, `tag`, `text`, `since`."""
    query = address.query
    wanted = filter_of(query)
    number = page_number(query.get("page", ""))
    rows = await reader.jobs(wanted, number * PER_PAGE + 1)
    shown = rows[(number - 1) * PER_PAGE : number * PER_PAGE]
    return Content(
        "Jobs",
        {"rows": shown, "number": number, "more": len(rows) > number * PER_PAGE, "query": query},
    )


def filter_of(query: dict[str, str] | object) -> JobFilter:
    """Returns the filter of a query.

    Raises:
        InvalidValue: a parameter is wrong.
    """
    assert isinstance(query, dict)
    state = query.get("state", "")
    states: tuple[JobState, ...] = ()
    if state and state != "live":
        if state.upper() not in JobState.__members__:
            raise InvalidValue("state", state, "is no state", f"one of {', '.join(JobState)}")
        states = (JobState[state.upper()],)
    since = query.get("since", "")
    return JobFilter(
        live_only=state == "live",
        states=states,
        user=query.get("user", ""),
        text=query.get("text", ""),
        tags=(parse_tag(query["tag"]),) if query.get("tag") else (),
        since=datetime.now(UTC) - parse_duration(since, "since") if since else None,
    )


def page_number(text: str) -> int:
    """Returns the number of a page of a list, from 1 on."""
    return int(text) if text.isdecimal() and 0 < int(text) < 10_000 else 1
