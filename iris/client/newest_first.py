"""Lists workflows by their start, the latest first.

The service sorts those that have ended by their end, and takes no other order. So they are read by windows of their start, each
whole, and sorted here. What a window has is counted before it is read: a cluster may have thousands of jobs of one minute.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from temporalio.client import Client, WorkflowExecution

#: The length of the first window, and how many times longer the next one is if it has too few.
FIRST_WINDOW, GROWTH = timedelta(hours=1), 8
#: Windows that have too many are halved at most this many times: decades become a second, which is not halved.
MOST_HALVINGS = 30
#: How many times more than wanted are read together.
MOST_TIMES = 4
#: No workflow of Iris started before.
_FIRST = datetime(2025, 1, 1, tzinfo=UTC)


async def newest_first(client: Client, query: str, least: int) -> AsyncIterator[WorkflowExecution]:
    """Yields the workflows, the latest started first.

    Args:
        query: the conditions of a visibility query.
        least: how many are wanted at least, if there are so many; about so many are read together.
    """
    until: datetime | None = None
    left = (await client.count_workflows(query)).count
    while left > 0:
        start = await _start(client, query, until, least, left) if left > MOST_TIMES * least else None
        found = [each async for each in client.list_workflows(_within(query, start, until))]
        found.sort(key=lambda each: each.start_time, reverse=True)
        for each in found:
            yield each
        if start is None:
            return
        until, left = start, left - len(found)


async def _start(client: Client, query: str, until: datetime | None, least: int, left: int) -> datetime | None:
    """Returns the start of a window that has enough workflows and not too many, if there is one; None: it has the whole past.

    Args:
        until: the end of the window; None: it is not over.
        left: how many workflows started before its end.
    """
    latest = until or datetime.now(UTC).replace(microsecond=0)
    length, few = FIRST_WINDOW, latest
    while True:
        start = latest - length
        if start < _FIRST:
            return None
        count = (await client.count_workflows(_within(query, start, until))).count
        if count >= least or count >= left:
            break
        few, length = start, GROWTH * length
    for _ in range(MOST_HALVINGS):
        middle = (start + (few - start) / 2).replace(microsecond=0)
        if count <= MOST_TIMES * least or middle <= start:
            break
        between = (await client.count_workflows(_within(query, middle, until))).count
        if between >= least:
            start, count = middle, between
        else:
            few = middle
    return start


def _within(query: str, start: datetime | None, until: datetime | None) -> str:
    since = f" AND StartTime >= '{start.isoformat()}'" if start is not None else ""
    return f"{query}{since}" + (f" AND StartTime < '{until.isoformat()}'" if until is not None else "")
