"""Formats the results of `iris debug` as tables for people and as JSON for programs."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from iris.cli.render import age, table
from iris.client.operate.debugging import Check, WorkerRow
from iris.client.operate.discovery import Discovery
from iris.model.units import format_duration


def discovery_text(found: Discovery) -> str:
    """Formats where a cluster is, for people."""
    runs = {None: "is known by its address", True: "runs", False: "does not run"}[found.running]
    answers = "answers" if found.healthy else "does not answer"
    lines = [f"cluster {found.cluster} ({found.platform}) {runs}" + ("" if found.running is False else f", and {answers}")]
    if (where := found.machine) is not None:
        lines.append(f"  machine   {where.name} in {where.zone}, project {where.project}: {where.status}")
    shown = {
        "Temporal": f"{found.address}, namespace {found.namespace}" if found.address else "",
        "Web UI": found.ui,
        "store": found.store,
    }
    return "\n".join([*lines, *(f"  {name:<8}  {text}" for name, text in shown.items() if text)])


def check_json(check: Check) -> dict[str, Any]:
    return {"name": check.name, "ok": check.ok, "took_seconds": round(check.took, 3), "said": check.said}


def checks_table(checks: Sequence[Check]) -> str:
    rows = [
        (each.name, "ok" if each.ok else "WRONG", format_duration(timedelta(seconds=each.took)), each.said) for each in checks
    ]
    return table(("CHECK", "RESULT", "TOOK", "WHAT"), rows)


def workers_table(rows: Sequence[WorkerRow], now: datetime) -> str:
    if not rows:
        return "no hosts, and no agents"
    cells = [
        (
            row.host,
            row.state,
            row.slice or "-",
            age(row.reported_at, now) if row.reported_at else "never",
            age(row.started_at, now) if row.started_at else "-",
            str(len(row.running)),
            row.reason,
        )
        for row in rows
    ]
    return table(("HOST", "STATE", "SLICE", "REPORTED", "UP", "RUNNING", "REASON"), cells)


def machine_text(found: Mapping[str, Any]) -> str:
    """Formats what a login on a machine showed, for people."""
    lines = [f"{found['machine']} in {found['zone']}"]
    words = ("hostname", "up", "load", "disk", "startup")
    lines += [f"  {word:<8}  {found[word]}" for word in words if found.get(word)]
    rows = [(each["name"], each["image"], each["status"]) for each in found["containers"]]
    return "\n".join([*lines, "", table(("CONTAINER", "IMAGE", "STATUS"), rows) if rows else "no containers"])
