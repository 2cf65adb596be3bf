"""Schedules, pools of workers, and the endpoints of a job."""

import asyncio
from collections.abc import Sequence

from iris.client.schedules.client import ScheduleRow
from iris.dashboard.content import Address, Content
from iris.dashboard.reader import SHARED_LONGER, Part, Reader, part
from iris.model.job.endpoints import Endpoint

#: The number of schedules on one page.
PER_PAGE = 100
#: The page shows at most this many jobs whose tasks are the workers of a pool.
MOST_POOLS = 50


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page. The query has `job`, whose endpoints are shown, and `text`, which the ids or
    commands of schedules must contain.
    """
    query = address.query
    job = query.get("job", "")

    async def endpoints() -> Part[Sequence[Endpoint]]:
        if not job:
            return Part(())
        client = reader.client.endpoints
        return await part(
            reader.shared(("endpoints", job), lambda: client.list("", job), SHARED_LONGER)
        )

    schedules, pools, found = await asyncio.gather(
        part(reader.shared("schedules", reader.client.schedules.list, SHARED_LONGER)),
        part(reader.pools(MOST_POOLS)),
        endpoints(),
    )
    rows = matching(schedules.value or (), query.get("text", ""))
    return Content(
        "More",
        {
            "schedules": schedules,
            "rows": rows[:PER_PAGE],
            "total": len(rows),
            "pools": pools,
            "most_pools": MOST_POOLS,
            "endpoints": found,
            "job": job,
            "query": query,
        },
    )


def matching(rows: Sequence[ScheduleRow], text: str) -> list[ScheduleRow]:
    """Returns the schedules whose id or command contains the text, in any case."""
    wanted = text.lower()
    return [row for row in rows if wanted in row.id.lower() or wanted in row.command.lower()]
