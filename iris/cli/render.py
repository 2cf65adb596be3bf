"""Values as tables for people and as JSON for programs. The JSON's keys are a promise (tests/cli)."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from iris.client.views import Explanation, JobRow
from iris.jobs import JobStatus
from iris.resources import Resources, format_amounts
from iris.units import format_duration
from iris.workflows.messages import HostView

_COLOURS = {
    "SUCCEEDED": "green",
    "READY": "green",
    "RUNNING": "cyan",
    "PENDING": "yellow",
    "FAILED": "red",
    "WORKER_FAILED": "red",
    "UNSCHEDULABLE": "red",
    "KILLED": "magenta",
}


def amounts_json(amounts: dict[str, int]) -> dict[str, float | int]:
    """Amounts under names that carry their units: `cpu` in cores, sizes in bytes."""
    units = {"cpu": "cpu", "memory": "memory_bytes", "disk": "disk_bytes", "device": "devices"}
    return {units[name]: amount / 1000 if name == "cpu" else amount for name, amount in amounts.items()}


def resources_json(resources: Resources) -> dict[str, Any]:
    device = resources.device.model_dump(mode="json") if resources.device else None
    amounts = amounts_json(resources.amounts())
    return {**{name: amount for name, amount in amounts.items() if name != "devices"}, "device": device}


def status_json(status: JobStatus) -> dict[str, Any]:
    fields = {"id", "state", "reason", "user", "submitted_at", "started_at", "finished_at"}
    tasks = [
        task.model_dump(mode="json", include={"index", "state", "host", "attempt", "exit_code", "reason"})
        for task in status.tasks
    ]
    return {**status.model_dump(mode="json", include=fields), "tasks": tasks}


def row_json(row: JobRow) -> dict[str, Any]:
    return row.model_dump(mode="json", include={"id", "state", "user", "submitted_at"})


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    shown = explanation.model_dump(mode="json", include={"id", "state", "code", "message"})
    return {**shown, "needed": amounts_json(explanation.needed), "free": amounts_json(explanation.free)}


def host_json(view: HostView) -> dict[str, Any]:
    return {
        "id": view.host.id,
        "state": "READY",
        "slice": view.host.slice_id,
        "resources": resources_json(view.host.resources),
        "free": amounts_json(view.free),
        "attributes": view.host.attributes,
        "running": list(view.running),
    }


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two spaces apart; the last is not padded."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    shown = []
    for number, line in enumerate(lines):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        if number:
            cells = [_coloured(cell) for cell in cells]
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown)


def jobs_table(rows: Sequence[JobRow], now: datetime) -> str:
    if not rows:
        return "no jobs"
    cells = [(row.id, row.state, row.user, age(row.submitted_at, now), _short(row.command, 60)) for row in rows]
    return table(("ID", "STATE", "USER", "AGE", "COMMAND"), cells)


def status_text(status: JobStatus, now: datetime) -> str:
    """A job and its tasks, for people."""
    lines = [f"{status.id}  {_coloured(status.state)}  {status.reason}".rstrip()]
    times = [f"submitted {age(status.submitted_at, now)} ago"]
    if status.started_at:
        times.append(f"ran {format_duration((status.finished_at or now) - status.started_at)}")
    lines += [", ".join(times), ""]
    rows = [
        (
            str(task.index),
            task.state,
            task.host or "-",
            str(task.attempt) if task.attempt else "-",
            "-" if task.exit_code is None else str(task.exit_code),
            task.reason,
        )
        for task in status.tasks
    ]
    return "\n".join([*lines, table(("TASK", "STATE", "HOST", "ATTEMPT", "EXIT", "REASON"), rows)])


def explanation_text(explanation: Explanation) -> str:
    lines = [f"{explanation.id}  {_coloured(explanation.state)}  {explanation.code}", explanation.message]
    if explanation.needed:
        lines.append(f"needed: {format_amounts(explanation.needed)}")
    if explanation.free:
        lines.append(f"there is: {format_amounts(explanation.free)}")
    return "\n".join(lines)


def hosts_table(views: Sequence[HostView]) -> str:
    if not views:
        return "no hosts"
    rows = [
        (
            view.host.id,
            "READY",
            view.host.slice_id,
            str(view.host.resources),
            format_amounts(view.free),
            ", ".join(view.running[:3]) + (f" and {len(view.running) - 3} more" if len(view.running) > 3 else ""),
        )
        for view in views
    ]
    return table(("ID", "STATE", "SLICE", "OFFERS", "FREE", "RUNNING"), rows)


def age(then: datetime, now: datetime) -> str:
    return format_duration(max(timedelta(0), now - then))


def _coloured(text: str) -> str:
    return click.style(text, fg=_COLOURS[text.strip()]) if text.strip() in _COLOURS else text


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
