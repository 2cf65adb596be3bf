"""Formats values as tables for people and as JSON for programs. The JSON's keys are a public contract (tests/cli)."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from iris.client.usage import InUse
from iris.client.views import Explanation, JobRow
from iris.messages.scheduler import HostView
from iris.model.attempts import Account, AttemptRecord
from iris.model.hosts import ClosedBy
from iris.model.jobs import JobSpec, JobStatus
from iris.model.resources import Resources, format_amounts
from iris.model.units import format_bytes, format_cpu, format_duration
from iris.scheduling.forecast import Forecast
from iris.scheduling.refusals import Refusal, RefusalCode

_COLOURS = {
    "SUCCEEDED": "green",
    "READY": "green",
    "RUNNING": "cyan",
    "PENDING": "yellow",
    "HELD": "yellow",
    "CORDONED": "yellow",
    "DRAINED": "yellow",
    "PAUSED": "yellow",
    "QUARANTINED": "red",
    "FAILED": "red",
    "WORKER_FAILED": "red",
    "UNSCHEDULABLE": "red",
    "KILLED": "magenta",
}


def amounts_json(amounts: dict[str, int]) -> dict[str, float | int]:
    """Returns the amounts under names that carry their units: `cpu` in cores, sizes in bytes."""
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


def in_use_json(in_use: Sequence[InUse], asked: Resources) -> dict[str, Any]:
    """Returns what running tasks use, and what each of them requested."""
    return {"asked": resources_json(asked), "tasks": [each.model_dump(mode="json") for each in in_use]}


def row_json(row: JobRow) -> dict[str, Any]:
    return row.model_dump(mode="json", include={"id", "state", "user", "submitted_at"})


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """Returns the same keys for every job. The code of a job that does not wait is its state, and its numbers are empty."""
    refusal = explanation.refusal or Refusal(code=RefusalCode.UNKNOWN, message="")
    fields = {"hosts", "ahead", "group_needs", "group_has", "excluded", "remedy", "scaling", "since"}
    attempts = [
        {"task": task, **record.model_dump(mode="json")} for task, records in explanation.attempts.items() for record in records
    ]
    return {
        **explanation.model_dump(mode="json", include={"id", "state", "message"}),
        **refusal.model_dump(mode="json", include=fields),
        "code": explanation.code,
        "needed": amounts_json(refusal.needed),
        "free": amounts_json(refusal.free),
        "attempts": attempts,
    }


def forecast_json(found: Forecast) -> dict[str, Any]:
    def refusal(of: Refusal | None) -> dict[str, Any] | None:
        return of.model_dump(mode="json", include={"code", "message", "remedy"}) if of else None

    return {
        "starts": bool(found.hosts),
        "hosts": list(found.hosts),
        "feasible": found.infeasible is None,
        "refusal": refusal(found.refusal),
        "verdicts": [fit.model_dump(mode="json") for fit in found.fits],
    }


def host_json(view: HostView) -> dict[str, Any]:
    return {
        "id": view.host.id,
        "state": _host_state(view),
        "reason": view.closed,
        "slice": view.host.slice_id,
        "resources": resources_json(view.host.resources),
        "free": amounts_json(view.free),
        "attributes": view.host.attributes,
        "running": list(view.running),
    }


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Formats a table. Columns are as wide as their widest cell, two spaces apart; the last one is not padded."""
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
    """Formats a job and its tasks, for people."""
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
            # The reason of the whole job is not repeated for each task.
            "" if len(status.tasks) > 1 and task.reason == status.reason else task.reason,
        )
        for task in status.tasks
    ]
    return "\n".join([*lines, table(("TASK", "STATE", "HOST", "ATTEMPT", "EXIT", "REASON"), rows)])


def in_use_table(in_use: Sequence[InUse], asked: Resources) -> str:
    """Formats what running tasks use, beside what they requested where the two can be compared."""
    if not in_use:
        return "no task is on a host now"

    def size(amount: int | None) -> str:
        return "-" if amount is None else format_bytes(amount)

    cores, memory = format_cpu(asked.cpu_millis), format_bytes(asked.memory_bytes) if asked.memory_bytes else "-"
    rows = [
        (
            str(each.task),
            each.host,
            str(each.pid or "-"),
            "-" if each.cpu_percent is None else f"{each.cpu_percent / 100:.2f} of {cores}",
            size(each.memory_bytes),
            size(each.peak_memory_bytes),
            memory,
            str(each.processes or "-"),
            " ".join(f"{name}={port}" for name, port in sorted(each.ports.items())) or "-",
        )
        for each in in_use
    ]
    return table(("TASK", "HOST", "PID", "CORES", "MEMORY", "PEAK", "ASKED", "PROCESSES", "PORTS"), rows)


def explanation_text(explanation: Explanation, now: datetime) -> str:
    refusal = explanation.refusal
    code = f"  {refusal.code}" if refusal else ""
    lines = [f"{explanation.id}  {_coloured(explanation.state)}{code}", explanation.message]
    if refusal is not None:
        if refusal.since is not None:
            lines.append(f"requested: {age(refusal.since, now)} ago")
        if refusal.needed:
            lines.append(f"needed: {format_amounts(refusal.needed)}")
        if refusal.free:
            lines.append(f"available: {format_amounts(refusal.free)}")
        if len(refusal.excluded) > 1:
            lines.append("excluded: " + ", ".join(f"{count} by {text}" for text, count in refusal.excluded.items()))
        if refusal.remedy:
            lines.append(f"remedy: {refusal.remedy}")
    for task, records in explanation.attempts.items():
        if records:
            whose = f"task {task}, " if len(explanation.attempts) > 1 else ""
            lines += ["", f"{whose}{len(records)} attempt{'s' if len(records) > 1 else ''} so far:", _attempts_table(records)]
    return "\n".join(lines)


def _attempts_table(records: Sequence[AttemptRecord]) -> str:
    rows = []
    for record in records:
        ran = format_duration(record.ended_at - record.started_at) if record.started_at else "never started"
        where = record.hosts[0] + (f" and {len(record.hosts) - 1} more" if len(record.hosts) > 1 else "")
        paid = "-" if record.account is Account.NOBODY else record.account
        rows.append((str(record.number), f"{record.placed_at:%Y-%m-%d %H:%M:%S}", ran, where, paid, record.reason or "succeeded"))
    return table(("ATTEMPT", "PLACED (UTC)", "RAN", "HOSTS", "CHARGED TO", "RESULT"), rows)


def forecast_text(spec: JobSpec, found: Forecast) -> str:
    """Formats what would happen to a job, for people."""
    what = "the job" if spec.replicas == 1 or spec.coscheduling else f"each of its {spec.replicas} tasks"
    if found.hosts:
        lines = [f"{what} would start now on {', '.join(found.hosts)}"]
    elif found.refusal is not None:
        lines = [f"{what} would wait: {found.refusal.code}  {found.refusal.message}"]
        if found.refusal.remedy:
            lines.append(f"remedy: {found.refusal.remedy}")
        if found.infeasible is not None:
            lines.append("no host can ever run it")
    else:
        lines = [f"{what} would wait"]
    rows = [
        (
            fit.group or "-",
            str(fit.hosts),
            "yes" if fit.fits else "no",
            fit.why,
            ", ".join(fit.named) + (" …" if fit.hosts > len(fit.named) else ""),
        )
        for fit in found.fits
    ]
    if rows:
        lines += ["", table(("GROUP", "HOSTS", "FITS", "REASON", "NAMES"), rows)]
    return "\n".join(lines)


def hosts_table(views: Sequence[HostView]) -> str:
    if not views:
        return "no hosts"
    rows = [
        (
            view.host.id,
            _host_state(view),
            view.host.slice_id,
            str(view.host.resources),
            format_amounts(view.free),
            ", ".join(view.running[:3]) + (f" and {len(view.running) - 3} more" if len(view.running) > 3 else ""),
            view.closed,
        )
        for view in views
    ]
    return table(("ID", "STATE", "SLICE", "OFFERS", "FREE", "RUNNING", "REASON"), rows)


def _host_state(view: HostView) -> str:
    """Returns READY, or how the host is closed: CORDONED, DRAINED, QUARANTINED, PAUSED."""
    if not view.closed:
        return "READY"
    by = view.closed.partition(":")[0]
    return by.upper() if by in list(ClosedBy) else "PAUSED"


def age(then: datetime, now: datetime) -> str:
    return format_duration(max(timedelta(0), now - then))


def _coloured(text: str) -> str:
    return click.style(text, fg=_COLOURS[text.strip()]) if text.strip() in _COLOURS else text


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
