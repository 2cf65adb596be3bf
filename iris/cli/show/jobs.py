"""Formats jobs, tasks, attempts and hosts for people and for programs.

The keys of the JSON are a public contract (tests/cli).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from iris.cli.show.columns import Column, age, several
from iris.cli.show.listing import Listing, coloured
from iris.client.views import Explanation, JobRow
from iris.model import names
from iris.model.host.constraints import written
from iris.model.host.resources import Resources, format_amounts
from iris.model.job.attempts import Account, AttemptRecord
from iris.model.job.cancelling import state_text
from iris.model.job.spec import JobSpec, JobStatus, TaskStatus
from iris.model.job.tags import format_tags
from iris.model.states import ENDED, LIVE, TaskState
from iris.model.units import format_bytes, format_cpu, format_duration
from iris.scheduling.placement.refusals import Refusal, RefusalCode

if TYPE_CHECKING:  # most commands do not need these; some import the scheduler's state
    from iris.client.jobs.usage import InUse
    from iris.messages.scheduler import HostView
    from iris.scheduling.reasons.forecast import Fit, Forecast

#: The highest number of characters that a list shows of a job's command.
MAX_COMMAND = 60


def amounts_json(amounts: dict[str, int]) -> dict[str, float | int]:
    """Returns the amounts with units in their names: `cpu` in cores, `memory_bytes`."""
    units = {"cpu": "cpu", "memory": "memory_bytes", "disk": "disk_bytes", "device": "devices"}
    return {
        units[name]: amount / 1000 if name == "cpu" else amount for name, amount in amounts.items()
    }


def resources_json(resources: Resources) -> dict[str, Any]:
    device = resources.device.model_dump(mode="json") if resources.device else None
    amounts = amounts_json(resources.amounts())
    return {
        **{name: amount for name, amount in amounts.items() if name != "devices"},
        "device": device,
    }


# -- jobs and tasks
# --------------------------------------------------------------------------------------------------

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


def children_text(rows: Sequence[JobRow], most: int = 5) -> str:
    """Returns the number of child jobs, their number by state, and the ids of the first live ones.

    Args:
        rows: the child jobs.
        most: the highest number of ids.
    """
    counts = Counter(state_text(row) for row in sorted(rows, key=lambda row: row.state.ended))
    live = [f"{row.id} {state_text(row)}" for row in rows if not row.state.ended]
    numbers = ", ".join(f"{count} {state}" for state, count in counts.items())
    return f"{len(rows)}: {numbers}" + (f" ({several(live, most)})" if live else "")


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
        _headline(status.id, state_text(status), status.reason),
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
        _headline(row.id, state_text(row), row.reason),
        f"submitted {age(row.submitted_at, now)} ago",
    ]
    return "\n".join([*lines, *(f"{name:<10}{fact}" for name, fact in facts.items())])


def _family(parent: str | None, children: Sequence[JobRow]) -> list[str]:
    above = [f"{'parent':<10}{parent}"] if parent is not None else []
    return [*above, *([f"{'children':<10}{children_text(children)}"] if children else [])]


def uses(requested: Resources) -> "Listing[InUse]":
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
        Column("PORTS", "ports", text=_ports, wraps=True),
        empty="no task is on a host now",
    )


def _ports(ports: Mapping[str, int]) -> str:
    return " ".join(f"{name}={port}" for name, port in sorted(ports.items()))


# -- explanations and forecasts
# ------------------------------------------------------------------------------------------------

ATTEMPTS: Listing[AttemptRecord] = Listing(
    Column("ATTEMPT", "number"),
    Column(
        "PLACED (UTC)", "placed_at", text=lambda time: f"{time:%Y-%m-%d %H:%M:%S}", optional=True
    ),
    Column(
        "RAN",
        value=lambda each: each.started_at and each.ended_at - each.started_at,
        absent="never started",
    ),
    Column(key="started_at"),
    Column(key="ended_at"),
    Column(
        "HOSTS", "hosts", text=lambda hosts: several(list(dict.fromkeys(hosts)), 1), shortens=True
    ),  # tasks may share a host
    Column(
        "COUNTED AS", "account", text=lambda account: None if account is Account.NONE else account
    ),
    Column("OUTCOME", "reason", absent="succeeded", wraps=True),
    Column(key="ends"),
    keys="number hosts placed_at started_at ended_at account reason ends",
)
FITS: "Listing[Fit]" = Listing(
    Column("GROUP", "group", shortens=True),
    Column("HOSTS", "hosts"),
    Column("FITS", "fits"),
    Column("REASON", "why", absent="", wraps=True),
    Column(
        "HOST IDS",
        value=lambda fit: ", ".join(fit.named) + (" …" if fit.hosts > len(fit.named) else ""),
        absent="",
        wraps=True,
    ),
    Column(key="named"),
    keys="group fits why hosts named",
)


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """Returns an explanation as JSON, with the same keys for every job.

    For a job that does not wait, the code is the job's state, and the numbers are empty.
    """
    refusal = explanation.refusal or Refusal(code=RefusalCode.UNKNOWN, message="")
    numbers = refusal.model_dump(mode="json")
    keys = (
        "hosts",
        "ahead",
        "ahead_first",
        "excluded",
        "remedy",
        "scaling",
        "since",
        "group_needs",
        "group_has",
    )
    attempts = [
        {"task": task, **ATTEMPTS.json(record)}
        for task, records in explanation.attempts.items()
        for record in records
    ]
    return {
        "id": explanation.id,
        "state": explanation.state,
        "cancelling": (
            explanation.cancelling.model_dump(mode="json")
            if explanation.cancelling is not None
            else None
        ),
        "code": explanation.code,
        "message": explanation.message,
        **{key: numbers[key] for key in keys},
        "needed": amounts_json(refusal.needed),
        "free": amounts_json(refusal.free),
        "attempts": attempts,
        "parent": explanation.parent,
        "children": [{"id": row.id, "state": row.state} for row in explanation.children],
    }


def explanation_text(explanation: Explanation, now: datetime, submission: str = "") -> str:
    """Formats the explanation of a job's state, for people.

    Args:
        submission: the text about its submission (`submission_text`).
    """
    refusal = explanation.refusal
    lines = [
        _headline(explanation.id, state_text(explanation), refusal.code if refusal else ""),
        explanation.message,
    ]
    if refusal is not None:
        if refusal.since is not None:
            lines.append(f"requested: {age(refusal.since, now)} ago")
        if refusal.needed:
            lines.append(f"needed: {format_amounts(refusal.needed)}")
        if refusal.free:
            lines.append(f"available: {format_amounts(refusal.free)}")
        if len(refusal.excluded) > 1:
            lines.append(
                "excluded: "
                + ", ".join(f"{count} by {text}" for text, count in refusal.excluded.items())
            )
        if refusal.ahead_first:
            more = refusal.ahead - len(refusal.ahead_first)
            lines.append(
                f"ahead: {', '.join(refusal.ahead_first)}{f' and {more} more' if more > 0 else ''}"
            )
        if refusal.remedy:
            lines.append(f"remedy: {refusal.remedy}")
    if explanation.parent is not None:
        lines.append(f"parent: {explanation.parent}")
    if explanation.children:
        lines.append(f"children: {children_text(explanation.children)}")
    for task, records in explanation.attempts.items():
        if records:
            label = f"task {task}, " if len(explanation.attempts) > 1 else ""
            ended = "attempts have ended" if len(records) > 1 else "attempt has ended"
            lines += ["", f"{label}{len(records)} {ended}:", ATTEMPTS.table(records, now)]
    return "\n".join([*lines, *(["", submission] if submission else [])])


def forecast_json(found: "Forecast") -> dict[str, Any]:
    refusal = found.refusal and found.refusal.model_dump(
        mode="json", include={"code", "message", "remedy"}
    )
    return {
        "starts": bool(found.hosts),
        "hosts": list(found.hosts),
        "feasible": found.infeasible is None,
        "refusal": refusal,
        "verdicts": [FITS.json(fit) for fit in found.fits],
    }


def forecast_text(spec: JobSpec, found: "Forecast") -> str:
    """Formats the forecast for a job, for people: whether it would start now."""
    what = (
        "the job"
        if spec.replicas == 1 or spec.coscheduling
        else f"each of its {spec.replicas} tasks"
    )
    if found.hosts:
        lines = [f"{what} would start now on {', '.join(found.hosts)}"]
    elif (refusal := found.infeasible or found.refusal) is not None:
        lead = (
            "no host can ever run the job" if found.infeasible is not None else f"{what} would wait"
        )
        lines = [f"{lead}: {refusal.code}  {refusal.message}"]
        if refusal.remedy:
            lines.append(f"remedy: {refusal.remedy}")
    else:
        lines = [f"{what} would wait"]
    return "\n".join([*lines, *(["", FITS.table(found.fits)] if found.fits else [])])


# -- hosts
# --------------------------------------------------------------------------------------------------


def _host_state(view: "HostView") -> str:
    """Returns READY, or why the host takes no tasks: CORDONED, DRAINED, QUARANTINED, PAUSED."""
    if not view.closed:
        return "READY"
    by = view.closed.partition(":")[0]
    from iris.model.host.hosts import ClosedBy  # only lists of hosts need it

    return by.upper() if by in list(ClosedBy) else "PAUSED"


def free_text(view: "HostView") -> str:
    """Formats the free resources of a host, its accelerators first."""
    device, count = view.host.resources.device, view.free.get("device", 0)
    if device is None or not count:
        return format_amounts(view.free)
    rest = format_amounts({**view.free, "device": 0})
    return ", ".join(
        [str(device.model_copy(update={"count": count})), *([] if rest == "nothing" else [rest])]
    )


HOSTS: "Listing[HostView]" = Listing(
    Column("ID", "id", lambda view: view.host.id, shortens=True),
    Column("STATE", "state", _host_state),
    Column("SLICE", "slice", lambda view: view.host.slice_id, shortens=True, optional=True),
    Column(
        "OFFERS",
        "resources",
        lambda view: view.host.resources,
        json=resources_json,
        wraps=True,
        optional=True,
        importance=2,
    ),
    Column(
        "FREE",
        value=lambda view: free_text(view),
        wraps=True,
        optional=True,
        importance=3,
        least=16,
    ),
    Column(key="free", json=amounts_json),
    Column(
        "ADDRESS", "address", lambda view: view.host.address or None, optional=True, importance=1
    ),
    Column("RUNNING", "running", text=several, shortens=True),
    Column(
        "REASON",
        "reason",
        lambda view: view.closed,
        absent="",
        wraps=True,
        optional=True,
        importance=4,
        least=16,
    ),
    Column(key="attributes", value=lambda view: view.host.attributes),
    keys="id state reason slice resources free attributes running address",
    empty="no hosts",
)


def host_text(view: "HostView") -> str:
    """Formats one host with its attributes and all its tasks, for people."""
    lines = [
        _headline(view.host.id, _host_state(view), view.closed or ""),
        f"slice    {view.host.slice_id}",
        *([f"address  {view.host.address}"] if view.host.address else []),
        f"offers   {view.host.resources}",
        f"free     {free_text(view)}",
        *(
            f"{'tasks' if number == 0 else '':<8} {task}"
            for number, task in enumerate(view.running or ("none",))
        ),
    ]
    attributes = {name: written(value) for name, value in sorted(view.host.attributes.items())}
    width = max(map(len, attributes), default=0)
    if attributes:
        lines += [
            "",
            "attributes",
            *(f"  {name:<{width}}  {value}" for name, value in attributes.items()),
        ]
    return "\n".join(lines)


def _headline(name: str, state: str, text: str) -> str:
    return f"{name}  {coloured(state)}  {text}".rstrip()


class TaskPage(NamedTuple):
    """A page of a job's tasks."""

    tasks: tuple[TaskStatus, ...]
    #: The number of all tasks of the job by state. It is empty if the page has all tasks.
    counts: str
    #: The number of the page and of its tasks. It is empty if the page has all tasks.
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
