"""One host: its state with the reason, its load, its tasks and the log of its agent."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from iris.client.logs.stored import AgentReader, TaskLine
from iris.dashboard import hosts
from iris.dashboard.content import Address, Content
from iris.dashboard.problems import silent_hosts
from iris.dashboard.reader import SHARED_LONGER, Reader, part
from iris.model import names
from iris.model.errors import IrisError, NotFound, first_line
from iris.model.host.constraints import written
from iris.storage.object_store import STORE_ERRORS, Store

#: The number of lines at the end of the agent's log that the page reads. The user can search them
#: for a text.
LINES = 500
#: The limit on lines of the agent's log that the page shows: the last of the lines that match the
#: search.
MOST_SHOWN = 200


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page. The query has `text`, which log lines must contain."""
    host, query = names.check_name("host", address.path["host"]), address.query
    now = datetime.now(UTC)
    views, reports, log = await asyncio.gather(
        part(reader.hosts()), part(reader.reports()), part(agent_log(reader, host))
    )
    view = next((view for view in views.value or () if view.host.id == host), None)
    if view is None and views.value is not None and not log.value:
        raise NotFound(f"there is no host {host}, and no log of its agent")
    known = reports.value or {}
    row = None
    if view is not None:
        report = known.get((host, view.host.incarnation))
        row = hosts.row_of(view, report, silent_hosts([view], known, now))
    wanted = query.get("text", "")
    return Content(
        host,
        {
            "host": host,
            "view": view,
            "row": row,
            "hosts": views,
            "reports": reports,
            "attributes": {
                name: written(value)
                for name, value in sorted(view.host.attributes.items() if view else ())
            },
            "log": log,
            "lines": matching(log.value or (), wanted),
            "query": query,
            "job_of": hosts.job_of,
        },
        above="/fleet",
    )


async def agent_log(reader: Reader, host: str) -> Sequence[str]:
    """Returns the last lines of the log of the host's agent.

    Raises:
        IrisError: the store does not answer.
    """
    record = reader.client.record

    async def ask() -> Sequence[str]:
        try:
            tail = await AgentReader(Store(record.store), record.name, host).tail(LINES)
        except STORE_ERRORS as error:
            raise IrisError(f"the store cannot be read: {first_line(error)}") from None
        return [text_of(each) for each in tail]

    return await reader.shared(("agent log", host), ask, SHARED_LONGER)


def text_of(line: TaskLine) -> str:
    """Returns a stored line as a text."""
    return line.line.data.decode(errors="replace").rstrip("\r\n")


def matching(lines: Sequence[str], text: str) -> list[str]:
    """Returns the last lines that contain the text, in any case."""
    wanted = text.lower()
    return [line for line in lines if wanted in line.lower()][-MOST_SHOWN:]
