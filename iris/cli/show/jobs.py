"""Formats jobs, tasks, attempts and hosts for people and for programs.

The keys of the JSON are a public contract (tests/cli).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from iris.cli.show.columns import Column, age, several
from iris.cli.show.listing import Listing, headline
from iris.client.jobs.rows import JobRow
from iris.model import names
from iris.model.host.resources import Resources
from iris.model.job.cancelling import state_text
from iris.model.job.errors import JobCancelled, JobFailed
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.job.tags import format_tags
from iris.model.states import ENDED, LIVE, JobState, TaskState
from iris.model.units import format_bytes, format_cpu, format_duration

if TYPE_CHECKING:  # most commands do not need these; some import the scheduler's state
    from iris.client.jobs.usage import InUse

#: The maximum number of characters of a job's command that a list shows.
MAX_COMMAND = 60


_AFTER_ID: tuple[Column[JobRow], ...] = (
    Column(key="id"),
    Column(key="run"),
    Column(key="parent"),
    Column(key="commit"),
    Column(key="note"),
    Column("STATE", value=state_text),
    Column(key="state"),
    Column(key="cancelling"),
    Column(key="user"),
    Column("PRIORITY", "priority", wraps=True, optional=True, importance=1),
    Column("TASKS", "tasks", optional=True, importance=3),
    Column("DEVICE", "device", shortens=True, optional=True, importance=4),
    Column("AGE", "submitted_at"),
    Column("TAGS", "tags", text=format_tags, absent="", wraps=True, optional=True),
    Column("REASON", "reason", absent="", wraps=True, optional=True, importance=5, least=16),
    Column(
        "COMMAND",
        value=lambda row: (
            row.command if len(row.command) <= MAX_COMMAND else f"{row.command[: MAX_COMMAND - 1]}…"
        ),
        absent="",
        wraps=True,
        optional=True,
        importance=2,
    ),
)
_JOB_KEYS = (
    "id run state cancelling user submitted_at priority tasks device parent commit tags note reason"
)
JOBS: Listing[JobRow] = Listing(
    Column("ID", value=lambda row: _numbered(row), shortens=True),
    *_AFTER_ID,
    keys=_JOB_KEYS,
    empty="no jobs",
)
TASKS: Listing[TaskStatus] = Listing(
    Column("TASK", "index"),
    Column("STATE", value=state_text),
    Column(key="state"),
    Column(key="cancelling"),
    Column("HOST", "host", shortens=True),
    Column("ATTEMPT", "attempt", text=lambda number: number or None),
    Column("EXIT", "exit_code"),
    Column("REASON", "reason", absent="", wraps=True),
    keys="index state cancelling attempt host exit_code reason",
)


def _numbered(row: JobRow) -> str:
    return row.id if row.run is None else f"{row.id}#{row.run}"


def job_tree(rows: Sequence[JobRow]) -> str:
    """Returns a table in which each job's child jobs are below it, the oldest child first.

    The table shows the last part of a child's id. A job whose parent is not among the rows is at
    the left, with its whole id.
    """
    known = {(row.id, row.run) for row in rows}
    below: dict[str | None, list[JobRow]] = {}
    for row in rows:
        below.setdefault(row.parent if (row.parent, None) in known else None, []).append(row)
    shown: dict[int, str] = {}
    ordered: list[JobRow] = []

    def add(row: JobRow, depth: int) -> None:
        shown[id(row)] = (
            f"{'  ' * (depth - 1)}└ {_numbered(row).rpartition('/')[2]}"
            if depth
            else _numbered(row)
        )
        ordered.append(row)
        for each in reversed(below.get(row.id, []) if row.run is None else []):
            add(each, depth + 1)

    for row in below.get(None, []):
        add(row, 0)
    return Listing(
        Column("ID", value=lambda row: shown[id(row)], shortens=True), *_AFTER_ID, empty="no jobs"
    ).table(ordered, cut=True)


def children_text(rows: Sequence[JobRow]) -> str:
    """Returns the number of child jobs, their number by state, and the ids of the first live ones.

    Args:
        rows: the child jobs.
    """
    counts = Counter(state_text(row) for row in sorted(rows, key=lambda row: row.state.ended))
    live = [f"{row.id} {state_text(row)}" for row in rows if not row.state.ended]
    numbers = ", ".join(f"{count} {state}" for state, count in counts.items())
    return f"{len(rows)}: {numbers}" + (f" ({several(live, 5)})" if live else "")


def status_json(status: JobStatus) -> dict[str, Any]:
    fields = {
        "id",
        "state",
        "cancelling",
        "reason",
        "user",
        "submitted_at",
        "started_at",
        "finished_at",
    }
    return {
        **status.model_dump(mode="json", include=fields),
        "parent": names.parent_id(status.id),
        "tasks": [TASKS.json(task) for task in status.tasks],
    }


def status_text(
    status: JobStatus, now: datetime, submission: str = "", children: Sequence[JobRow] = ()
) -> str:
    """Formats a job and its tasks, for people.

    Args:
        submission: the text about its submission (`submission_text`).
        children: its child jobs.
    """
    times = [f"submitted {age(status.submitted_at, now)} ago"]
    if status.started_at:
        times.append(f"ran {format_duration(_ran_until(status, now) - status.started_at)}")
    # The reason of the whole job is not repeated for each task.
    repeated = status.reason if len(status.tasks) > 1 else None
    tasks = [
        task.model_copy(update={"reason": ""}) if task.reason == repeated else task
        for task in status.tasks
    ]
    if status.cancelling is not None:
        end = {"cancelling": status.cancelling}
        tasks = [task.model_copy(update=end) if task.state not in ENDED else task for task in tasks]
    lines = [
        headline(status.id, state_text(status), status.reason),
        ", ".join(times),
        *([submission] if submission else []),
    ]
    lines += _family(names.parent_id(status.id), children)
    return "\n".join([*lines, "", TASKS.table(tasks, now)])


def _ran_until(status: JobStatus, now: datetime) -> datetime:
    """Returns until when the job ran. If it waits for another attempt, its last attempt's end."""
    if status.finished_at is not None or any(task.state in LIVE for task in status.tasks):
        return status.finished_at or now
    return max(
        (task.finished_at for task in status.tasks if task.finished_at is not None), default=now
    )


def listed_text(row: JobRow, now: datetime) -> str:
    """Formats a job as lists show it, for people.

    The state may be older, because the control plane does not answer.
    """
    tasks = "unknown" if row.tasks is None else str(row.tasks)
    facts = {"command": row.command, "tasks": f"{tasks}; their states were not asked"}
    lines = [
        headline(row.id, state_text(row), row.reason),
        f"submitted {age(row.submitted_at, now)} ago",
    ]
    return "\n".join([*lines, *(f"{name:<10}{fact}" for name, fact in facts.items())])


def _family(parent: str | None, children: Sequence[JobRow]) -> list[str]:
    above = [f"{'parent':<10}{parent}"] if parent is not None else []
    return [*above, *([f"{'children':<10}{children_text(children)}"] if children else [])]


def usage_listing(requested: Resources) -> "Listing[InUse]":
    """Returns the listing of the resource use of running tasks.

    Args:
        requested: the resources that each task requested, which some columns show beside the use.
    """
    cores = format_cpu(requested.cpu_millis)
    return Listing(
        Column("TASK", "task"),
        Column("HOST", "host", shortens=True),
        Column(key="at"),
        Column("PID", "pid", optional=True, importance=1),
        Column("CORES", "cpu_percent", text=lambda percent: f"{percent / 100:.2f} of {cores}"),
        Column("MEMORY", "memory_bytes", text=format_bytes),
        Column("PEAK", "peak_memory_bytes", text=format_bytes),
        Column(
            "REQUESTED",
            value=lambda _: requested.memory_bytes or None,
            text=format_bytes,
            optional=True,
            importance=2,
        ),
        Column("PROCESSES", "processes", optional=True),
        Column("GPU", "gpu_percent", text=lambda percent: f"{percent:.0f}%", optional=True),
        Column("GPU MEMORY", "gpu_memory_bytes", text=format_bytes, optional=True),
        Column("PORTS", "ports", text=_ports, wraps=True),
        keys=(
            "task host at pid cpu_percent memory_bytes peak_memory_bytes processes ports"
            " gpu_percent gpu_memory_bytes"
        ),
        empty="no task is on a host now",
    )


def _ports(ports: Mapping[str, int]) -> str:
    return " ".join(f"{name}={port}" for name, port in sorted(ports.items()))


def print_end(status: JobStatus) -> None:
    """Prints that the job succeeded.

    Raises:
        JobFailed, JobCancelled: the job did not succeed. The error determines the exit code.
    """
    ran = _after(status)
    if status.state is JobState.SUCCEEDED:
        click.echo(
            f"{status.id} SUCCEEDED{ran}{f': {status.reason}' if status.reason else ''}", err=True
        )
        return
    kind = JobCancelled if status.state is JobState.KILLED else JobFailed
    raise kind(f"{status.id} {status.state}{ran}: {status.reason}", status)


def _after(status: JobStatus) -> str:
    """Returns ` after 44s (ran 220ms)`: the time from the submission, and from the start."""
    if status.finished_at is None:
        return ""
    whole = format_duration(max(timedelta(0), status.finished_at - status.submitted_at))
    if status.started_at is None:
        return f" after {whole}"
    ran = format_duration(max(timedelta(0), status.finished_at - status.started_at))
    return f" after {whole}" if ran == whole else f" after {whole} (ran {ran})"


class TaskPage(NamedTuple):
    """One page of the list of a job's tasks."""

    tasks: tuple[TaskStatus, ...]
    #: A text with the number of the job's tasks in each state. Empty if the page contains all
    #: tasks.
    counts: str
    #: A text with the page's number and its number of tasks. Empty if the page contains all tasks.
    rest: str


def page_of_tasks(tasks: Sequence[TaskStatus], text: str, limit: int, page: int) -> TaskPage:
    """Returns a page of the tasks that have the text in their state, host or reason.

    If there are several pages, failed tasks come first, then running, waiting and succeeded ones.
    """
    found = [
        task
        for task in tasks
        if text.lower()
        in f"{task.state} {state_text(task)} {task.host or ''} {task.reason}".lower()
    ]
    if len(found) > limit:
        found.sort(key=_rank)
    shown = tuple(found[(page - 1) * limit : page * limit])
    if len(shown) == len(tasks):
        return TaskPage(shown, "", "")
    counts = ", ".join(
        f"{count:,} {state}" for state, count in Counter(task.state for task in tasks).most_common()
    )
    pages = max(1, -(-len(found) // limit))
    rest = f"page {page} of {pages}: {len(shown):,} of {len(found):,} tasks" + (
        f" with {text!r}" if text else ""
    )
    return TaskPage(
        shown,
        counts,
        rest + ("; see others with --page, --limit and --filter" if pages > 1 else ""),
    )


def _rank(task: TaskStatus) -> int:
    """Returns the place of a task in the order of `page_of_tasks`."""
    if task.state in ENDED:
        return 3 if task.state is TaskState.SUCCEEDED else 0
    return 1 if task.state in LIVE else 2
