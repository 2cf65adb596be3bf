"""Formats the results of `iris debug` for people and for programs. The JSON's keys are a public
contract.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.client.operate.debugging import Check, WorkerRow
from iris.client.operate.discovery import Discovery

CHECKS: Listing[Check] = Listing(
    Column("CHECK", "name"),
    Column("RESULT", "ok", text=lambda ok: "ok" if ok else "FAILED"),
    Column(
        "TOOK",
        "took_seconds",
        lambda check: check.took,
        lambda took: timedelta(seconds=took),
        lambda took: round(took, 3),
    ),
    Column("DETAILS", "said", absent="", wraps=True),
)
WORKERS: Listing[WorkerRow] = Listing(
    Column("HOST", "host"),
    Column("STATE", "state"),
    Column("SLICE", "slice"),
    Column("REPORTED", "reported_at", absent="never"),
    Column("UP", "started_at"),
    Column("RUNNING", "running", text=len, absent="0"),
    Column("REASON", "reason", absent="", wraps=True),
    keys="host slice state reason reported_at started_at running",
    empty="no hosts and no agents",
)
_CONTAINERS: Listing[Mapping[str, str]] = Listing(
    Column("CONTAINER", value=lambda found: found["name"]),
    Column("IMAGE", value=lambda found: found["image"]),
    Column("STATUS", value=lambda found: found["status"], wraps=True),
    empty="no containers",
)


def discovery_text(found: Discovery) -> str:
    """Formats the location of a cluster, for people."""
    runs = {None: "is known by its address", True: "runs", False: "does not run"}[found.running]
    answers = "answers" if found.healthy else "does not answer"
    lines = [
        f"cluster {found.cluster} ({found.platform}) {runs}"
        + ("" if found.running is False else f", and {answers}")
    ]
    if (where := found.machine) is not None:
        lines.append(
            f"  machine   {where.name} in {where.zone}, project {where.project}: {where.status}"
        )
    shown = {
        "Temporal": f"{found.address}, namespace {found.namespace}" if found.address else "",
        "Web UI": found.ui,
        "store": found.store,
    }
    return "\n".join([*lines, *(f"  {name:<8}  {text}" for name, text in shown.items() if text)])


def machine_text(found: Mapping[str, Any]) -> str:
    """Formats the state of a machine, found by a login, for people."""
    lines = [f"{found['machine']} in {found['zone']}"]
    labels = ("hostname", "up", "load", "disk", "startup")
    lines += [f"  {label:<8}  {found[label]}" for label in labels if found.get(label)]
    return "\n".join([*lines, "", _CONTAINERS.table(found["containers"])])
