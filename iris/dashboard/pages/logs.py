"""The output of a job: its last lines, lines with a text, and earlier lines."""

from collections.abc import Mapping
from typing import Any

from iris.client.jobs.status import check_task
from iris.client.logs.selection import STREAMS, streams_of
from iris.dashboard.content import Address, Content
from iris.dashboard.log_html import lines_html
from iris.dashboard.log_parts import (
    MOST_LINES,
    LogPart,
    Selection,
    last_part,
    parse_place,
    position_text,
)
from iris.dashboard.pages.job_address import ancestors_of, number_in, run_of
from iris.dashboard.reader import Reader
from iris.dashboard.rendering import address as address_to
from iris.model.job.status import JobStatus, why_no_output
from iris.model.states import TaskState
from iris.storage.object_store import Store

#: The page shows the logs of all tasks together if the job has at most this many tasks.
MOST_TOGETHER = 16
#: The parameters of the query that select log lines.
SELECTS = ("run", "task", "attempt", "stream", "find")
#: If the job has too many tasks for one log, the page shows the log of one task: of a task in the
#: first of these states that any task of the job has.
_FIRST = (TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.RUNNING, TaskState.BUILDING)


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page. The query selects lines: `run`, `task`, `attempt`, `stream`, `find`; `before`
    is a place in the log.
    """
    job, query = address.path["job"], address.query
    run_id, number = await run_of(reader, job, query)
    status = await reader.job_status(job, run_id)
    wanted = await selection_of(reader, job, query, status)
    return Content(
        f"Output of {job}",
        {
            "status": status,
            "run": number,
            "ancestors": ancestors_of(job),
            "wanted": wanted,
            "query": query,
            "streams": list(STREAMS),
            "indices": [task.index for task in status.tasks] if len(status.tasks) <= 200 else [],
            "together": len(status.tasks) <= MOST_TOGETHER,
            "log": await log_of(
                reader, wanted, query, status, live=address.live, before=query.get("before", "")
            ),
        },
        above=f"/jobs/{job}",
    )


async def selection_of(
    reader: Reader, job: str, query: Mapping[str, str], status: JobStatus | None = None
) -> Selection:
    """Returns the lines that a query selects.

    Raises:
        NotFound: there is no such job, or it has no such task.
        InvalidValue: a parameter is wrong.
    """
    run_id, _ = await run_of(reader, job, query)
    source = await reader.shared(
        ("log source", job, run_id), lambda: reader.client.jobs.log_source(job, run_id), 10.0
    )
    task = number_in(query, "task")
    if task is not None:
        check_task(job, task, source.numbers)
    elif len(source.numbers) > MOST_TOGETHER:
        status = status or await reader.job_status(job, run_id)
        task = task_of_interest(status)
    streams = streams_of(query["stream"]) if query.get("stream") else None
    return Selection(
        job,
        source.run_id,
        task,
        1 if task is not None else len(source.numbers),
        number_in(query, "attempt"),
        frozenset(streams) if streams else None,
        query.get("find", ""),
    )


def task_of_interest(status: JobStatus) -> int:
    """Returns the index of the task whose log is shown first."""
    for state in _FIRST:
        for task in status.tasks:
            if task.state is state:
                return task.index
    return status.tasks[0].index


async def log_of(
    reader: Reader,
    wanted: Selection,
    query: Mapping[str, str],
    status: JobStatus,
    *,
    live: bool,
    before: str = "",
    most: int = MOST_LINES,
) -> dict[str, Any]:
    """Returns the values for the template of a log.

    Args:
        live: whether the lines are left out, because the open page gets them from a stream.
        before: the place before which the lines are. A page of earlier lines has no stream.
    """
    selects = {key: query.get(key, "") for key in SELECTS}
    if wanted.task is not None:
        selects["task"] = str(wanted.task)
    place = parse_place(before)
    part = (
        LogPart((), None, None, {})
        if live
        else await last_part(Store(reader.client.record.store), wanted, place, most)
    )
    page = f"/logs/{wanted.job}"
    # An open page begins anew when the job runs again: the address has the run, too.
    stream = address_to(f"/log-stream/{wanted.job}", selects, of=wanted.run_id)
    return {
        "lines": lines_html(part.entries, several=wanted.tasks > 1),
        "live": live,
        "note": "" if live or part.entries else _note(wanted, status, part, before),
        "earlier": address_to(page, selects, before=part.earlier) if part.earlier else "",
        "since": part.since if wanted.find else None,
        "stream": "" if before else stream,
        "text": address_to(f"/log-text/{wanted.job}", {**selects, "find": ""}),
        "latest": address_to(page, selects) if before else "",
        "position": position_text(part.position),
        "task": wanted.task,
        "several": wanted.tasks > 1,
    }


def _note(wanted: Selection, status: JobStatus, part: LogPart, before: str) -> str:
    """Returns why there are no lines."""
    if before:
        return "no earlier lines"
    if wanted.find or wanted.streams:
        return "no line matches"
    return why_no_output(status, wanted.task)
