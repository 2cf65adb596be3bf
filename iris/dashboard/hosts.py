"""Hosts and slices as rows of a table and as cells of a grid."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from iris.client.operate.worker_reports import AgentReport
from iris.messages.scheduler import HostView
from iris.model.host.constraints import SCALE_GROUP
from iris.model.host.hosts import ClosedBy
from iris.model.slice.status import SliceFacts, SliceState
from iris.model.units import format_bytes, format_cpu

#: The states of a host that accepts work and has no tasks, of a host that accepts work and has
#: tasks, and of a host whose agent has stopped reporting.
FREE, BUSY, SILENT = "FREE", "BUSY", "SILENT"
#: The possible states of a host, the most urgent one first. A host is `PAUSED` if its scale group
#: is paused.
STATES = (
    SILENT,
    *(by.upper() for by in (ClosedBy.QUARANTINE, ClosedBy.DRAIN, ClosedBy.CORDON)),
    ClosedBy.LEAVING.upper(),
    "PAUSED",
    BUSY,
    FREE,
)
#: The number of steps in which a cell of the grid shows how much of a host is used.
STEPS = 8
#: The limit on tasks that a cell of the grid or a row of the table names.
NAMED = 2


class HostRow(NamedTuple):
    """A host in the grid or the table of hosts."""

    id: str
    slice_id: str
    #: The scale group; empty for a host that joined by itself.
    group: str
    state: str
    #: Why the host accepts no new work; empty if it accepts work.
    reason: str
    #: The used share of the host's accelerators, from 0 to 1. For a host without accelerators, the
    #: used share of its cores or of its memory, whichever is larger.
    used: float
    #: The used amounts as text: `4 of 4 chips, 2 of 8 cores`.
    use: str
    tasks: tuple[str, ...]
    report: AgentReport | None

    @property
    def step(self) -> int:
        """The used part in steps; a host on which something runs has at least one."""
        return max(round(STEPS * self.used), 1 if self.tasks else 0)

    @property
    def label(self) -> str:
        """The host as a text, for a cell."""
        tasks = ", ".join(self.tasks[:NAMED])
        more = f" and {len(self.tasks) - NAMED} more" if len(self.tasks) > NAMED else ""
        return "; ".join(
            filter(None, (f"{self.id}: {self.state}", self.reason, self.use, f"{tasks}{more}"))
        )


def row_of(
    view: HostView, report: AgentReport | None = None, silent: Mapping[str, datetime] = {}
) -> HostRow:
    """Returns the row of a host.

    Args:
        silent: the hosts whose agents have stopped reporting.
    """
    host, free = view.host, view.free
    offers = host.resources.amounts()
    taken = {name: max(0, offers[name] - free.get(name, 0)) for name in offers}
    parts = {name: taken[name] / offers[name] if offers[name] else 0.0 for name in offers}
    device = host.resources.device
    use = [f"{format_cpu(taken['cpu'])} of {format_cpu(offers['cpu'])} cores"]
    if device is not None:
        noun = "GPUs" if device.kind == "gpu" else "chips"
        use.insert(0, f"{taken['device']} of {device.count} {noun}")
    else:
        use.append(f"{format_bytes(taken['memory'])} of {format_bytes(offers['memory'])}")
    return HostRow(
        id=host.id,
        slice_id=host.slice_id,
        group=str(host.attributes.get(SCALE_GROUP, "")),
        state=_state(view, host.id in silent),
        reason=view.closed,
        used=min(
            1.0, parts["device"] if device is not None else max(parts["cpu"], parts["memory"])
        ),
        use=", ".join(use),
        tasks=view.running,
        report=report,
    )


def _state(view: HostView, is_silent: bool) -> str:
    if is_silent:
        return SILENT
    if view.closed:
        by = view.closed.partition(":")[0]
        return by.upper() if by in list(ClosedBy) else "PAUSED"
    return BUSY if view.running else FREE


def matching(
    rows: Iterable[HostRow], group: str | None = None, state: str = "", text: str = ""
) -> list[HostRow]:
    """Returns the rows that the filter takes.

    Args:
        group: the scale group; empty for hosts that joined by themselves, None for all.
        state: one of `STATES`; empty for all.
        text: a part of an id, of a reason or of a running task, in any case.
    """
    wanted = text.lower()
    return [
        row
        for row in rows
        if group in (None, row.group)
        and state in ("", row.state)
        and (
            not wanted
            or wanted in row.id.lower()
            or wanted in row.slice_id.lower()
            or wanted in row.reason.lower()
            or any(wanted in task.lower() for task in row.tasks)
        )
    ]


def in_order(rows: Iterable[HostRow], sort: str) -> list[HostRow]:
    """Returns the rows in the order of a column of the table, and equal ones in the order of their
    ids. A minus before the column reverses its order. Any other text is the order of ids.
    """
    urgency = {state: place for place, state in enumerate(STATES)}
    values: dict[str, Callable[[HostRow], Any]] = {
        "id": lambda row: row.id,
        "state": lambda row: urgency[row.state],
        "group": lambda row: row.group,
        "slice": lambda row: row.slice_id,
        "used": lambda row: row.used,
        "tasks": lambda row: len(row.tasks),
    }
    by_id = sorted(rows, key=values["id"])
    value = values.get(sort.removeprefix("-"), values["id"])
    return sorted(by_id, key=value, reverse=sort.startswith("-"))


class SliceCells(NamedTuple):
    """The hosts of one slice in the grid."""

    id: str
    hosts: Sequence[HostRow]
    #: The state of the slice, if it is not READY; empty otherwise.
    state: str = ""
    #: The number of the slice's hosts that have not joined yet.
    missing: int = 0

    @property
    def short(self) -> str:
        """The last part of the id, which differs between the slices of a group."""
        return self.id.rpartition("-")[2]


class GroupCells(NamedTuple):
    """The slices of one scale group in the grid."""

    group: str
    slices: Sequence[SliceCells]
    counts: Mapping[str, int]
    hosts: int


def grid(
    rows: Iterable[HostRow], coming: Iterable[tuple[SliceFacts, int]] = ()
) -> list[GroupCells]:
    """Returns the hosts by group and slice.

    Args:
        coming: the slices that are not READY, each with its number of hosts.
    """
    by_slice: dict[tuple[str, str], list[HostRow]] = {}
    for row in rows:
        by_slice.setdefault((row.group, row.slice_id), []).append(row)
    facts = {(each.group, each.id): (each, size) for each, size in coming}
    groups: dict[str, list[SliceCells]] = {}
    for group, slice_id in sorted({*by_slice, *facts}):
        hosts = sorted(by_slice.get((group, slice_id), ()), key=_by_number)
        known, size = facts.get((group, slice_id), (None, 0))
        cells = SliceCells(
            slice_id,
            hosts,
            state=known.state if known is not None and known.state != SliceState.READY else "",
            missing=max(0, size - len(hosts)),
        )
        groups.setdefault(group, []).append(cells)
    return [
        GroupCells(
            group,
            slices,
            Counter(row.state for cells in slices for row in cells.hosts),
            sum(len(cells.hosts) for cells in slices),
        )
        for group, slices in groups.items()
    ]


def _by_number(row: HostRow) -> tuple[int, str]:
    """Orders the hosts of a slice by their worker ids: 2 before 10."""
    end = row.id.rpartition("-")[2]
    return (int(end) if end.isdecimal() else 0, row.id)


def job_of(task: str) -> str:
    """Returns the job that a task's id names."""
    job, colon, index = task.rpartition(":")
    return job if colon and index.isdecimal() else task
