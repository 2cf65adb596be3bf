"""One job: its state with the reason, what was asked for, its tasks, its attempts and its logs."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from iris.client.jobs.explanation import Explanation
from iris.client.jobs.status import task_of
from iris.client.jobs.submitted import Submission
from iris.dashboard.charts import bar
from iris.dashboard.content import Address, Content
from iris.dashboard.pages.attempts import time_line
from iris.dashboard.pages.job_address import ancestors_of, number_in, run_of
from iris.dashboard.pages.job_use import use_of
from iris.dashboard.pages.logs import log_of, selection_of
from iris.dashboard.reader import SHARED_FOR, Reader
from iris.model.host.resources import format_amounts
from iris.model.job.cancelling import state_text
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import TaskState
from iris.scheduling.placement.refusals import Refusal

#: How long the dashboard caches the data of an ended job, in seconds. It is longer than for a live
#: job, because an ended job does not change, and because the query for its attempts replays the
#: workflow's history.
ENDED_SHARED_FOR = 30.0
#: The page has a table of the tasks of a job with at most this many tasks, and a grid for a job
#: with more tasks.
MOST_IN_TABLE = 64
#: The number of tasks in one part of the grid.
MOST_CELLS = 4_096
#: The limit on tasks in the table. It takes effect if the user selects one state of a job with many
#: tasks.
MOST_OF_A_STATE = 200
#: The limit on child jobs that the page lists.
MOST_CHILDREN = 50
#: The limit on lines of output that the page contains when it is loaded.
MOST_LINES = 200
#: The letter of each task state in the grid of tasks.
LETTERS: Mapping[TaskState, str] = {
    TaskState.PENDING: "P",
    TaskState.ASSIGNED: "A",
    TaskState.BUILDING: "B",
    TaskState.RUNNING: "R",
    TaskState.SUCCEEDED: "S",
    TaskState.FAILED: "F",
    TaskState.KILLED: "K",
    TaskState.CANCELLED: "C",
    TaskState.WORKER_FAILED: "W",
    TaskState.PREEMPTED: "E",
    TaskState.UNSCHEDULABLE: "U",
}


class Tasks(NamedTuple):
    """The tasks of a job as the page shows them."""

    #: The number of tasks in each state.
    counts: Mapping[TaskState, int]
    #: The tasks in the table.
    table: Sequence[TaskStatus]
    #: The tasks in the grid; empty if the table contains all tasks.
    cells: Sequence[TaskStatus]
    #: The number of tasks in the selected state that the table leaves out.
    left_out: int
    #: The number of the shown part of the grid, from 1 on.
    part: int
    #: The number of parts of the grid of tasks. A part has at most `MOST_CELLS` tasks.
    parts: int


class Numbers(NamedTuple):
    """The needed and the free amount of one resource, for one task: a row of the table that
    explains why a job waits.
    """

    resource: str
    needed: str
    free: str


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page. The query may have `run`, the number of an earlier run; `task`, the index of
    the task to show; `tasks`, the state of the tasks in the table; `part`, the part of the grid.
    """
    job, query = address.path["job"], address.query
    run_id, number = await run_of(reader, job, query)
    status = await reader.job_status(job, run_id)
    index = number_in(query, "task")
    seconds = ENDED_SHARED_FOR if status.state.ended else SHARED_FOR
    task = None if index is None else task_of(job, index, status.tasks)
    explanation = await explain(reader, job, run_id, None, seconds)
    own = explanation if index is None else await explain(reader, job, run_id, index, seconds)
    submission = await submission_of(reader, job, run_id, seconds)
    runs = await reader.shared(("runs", job), lambda: reader.client.jobs.runs(job), 10.0)
    page = number_in(query, "part") or 1
    chosen = {key: query[key] for key in ("run", "task") if key in query}
    wanted = await selection_of(reader, job, chosen, status)
    return Content(
        job,
        {
            "status": status,
            "explanation": explanation,
            "own": own,
            "task": task,
            "remedy": remedy_of(own, status, task),
            "numbers": numbers_of(own.refusal),
            "spec": submission.spec,
            "command": shlex.join(submission.spec.command),
            "priority": submission.priority,
            "hosts": hosts_of(status.tasks),
            "retries": retries_of(status, submission),
            "ancestors": ancestors_of(job),
            "runs": len(runs),
            "run": number,
            "tasks": tasks_of(status.tasks, query.get("tasks", ""), page),
            "letters": LETTERS,
            "bar": bar,
            "line": time_line(status, own.attempts, index, datetime.now(UTC)),
            "children": explanation.children[:MOST_CHILDREN],
            "child_counts": Counter(map(state_text, explanation.children)),
            "page_in_ui": reader.client.jobs.page(job, run_id),
            "log": await log_of(reader, wanted, chosen, status, live=address.live, most=MOST_LINES),
            "use": await use_of(reader, status, run_id, index),
            "query": query,
        },
        above="/jobs",
    )


async def explain(
    reader: Reader, job: str, run_id: str | None, index: int | None, seconds: float
) -> Explanation:
    """Explains the job, or its task with this index."""
    return await reader.shared(
        ("explain", job, run_id, index),
        lambda: reader.client.jobs.explain(job, index, run_id),
        seconds,
    )


async def submission_of(
    reader: Reader, job: str, run_id: str | None, seconds: float = SHARED_FOR
) -> Submission:
    """Returns the submission of the job."""
    return await reader.shared(
        ("submission", job, run_id), lambda: reader.client.jobs.submission(job, run_id), seconds
    )


def tasks_of(tasks: Sequence[TaskStatus], state: str, part: int) -> Tasks:
    """Returns how the page shows the tasks.

    Args:
        state: the table has the tasks in this state; empty for all if they are few.
        part: the part of the grid, from 1 on.
    """
    counts = Counter(task.state for task in tasks)
    ordered = {each: counts[each] for each in TaskState if counts[each]}
    found = [task for task in tasks if task.state == state] if state else list(tasks)
    few = len(tasks) <= MOST_IN_TABLE
    parts = max(1, -(-len(tasks) // MOST_CELLS))
    part = min(max(1, part), parts)
    return Tasks(
        ordered,
        found[:MOST_OF_A_STATE] if few or state else (),
        () if few else tasks[(part - 1) * MOST_CELLS : part * MOST_CELLS],
        max(0, len(found) - MOST_OF_A_STATE) if few or state else 0,
        part,
        parts,
    )


def remedy_of(explanation: Explanation, status: JobStatus, task: TaskStatus | None) -> str:
    """Returns what a user can do about the state; empty if nothing is known."""
    if explanation.refusal is not None:
        return explanation.refusal.remedy
    if task is not None:
        return task.remedy
    return next((each.remedy for each in status.tasks if each.remedy), "")


def numbers_of(refusal: Refusal | None) -> list[Numbers]:
    """Returns the needed and the free amounts behind a reason, one row for each resource."""
    if refusal is None:
        return []
    return [
        Numbers(
            name,
            format_amounts({name: needed}),
            format_amounts({name: refusal.free[name]}) if name in refusal.free else "",
        )
        for name, needed in refusal.needed.items()
        if needed
    ]


def hosts_of(tasks: Sequence[TaskStatus]) -> list[str]:
    """Returns the hosts of the tasks, without repetitions."""
    return sorted({task.host for task in tasks if task.host})


def retries_of(status: JobStatus, submission: Submission) -> list[str]:
    """Returns the retries that the tasks have used, by account, with their limits."""
    spec = submission.spec
    # A gang is retried as a whole, so each of its tasks has the same numbers.
    total = max if spec.is_gang else sum
    used = {
        "failures": total(task.failures for task in status.tasks),
        "preemptions": total(task.preemptions for task in status.tasks),
    }
    limits = {"failures": spec.max_retries_failure, "preemptions": spec.max_retries_preemption}
    each = "" if spec.is_gang else " for each task"
    return [f"{used[name]} {name} (at most {limits[name]} retries{each})" for name in used]
