"""One slice: its state with the reason, its history and its hosts."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from iris.dashboard import hosts, scaling
from iris.dashboard.content import Address, Content
from iris.dashboard.problems import silent_hosts
from iris.dashboard.reader import Reader, part
from iris.model.slice.status import SliceState, SliceStatus


class Step(NamedTuple):
    """A state change or an action in a slice's history."""

    at: datetime
    #: The time since the first step of the history.
    after: timedelta
    state: SliceState
    reason: str


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page."""
    status = await reader.slice(address.path["slice"])
    now = datetime.now(UTC)
    views, reports, scaler, holdings = await asyncio.gather(
        part(reader.hosts()),
        part(reader.reports()),
        part(reader.autoscaler()),
        part(reader.holdings()),
    )
    here = [view for view in views.value or () if view.host.slice_id == status.id]
    known = reports.value or {}
    silent = silent_hosts(here, known, now)
    rows = [
        hosts.row_of(view, known.get((view.host.id, view.host.incarnation)), silent)
        for view in here
    ]
    idle = holdings.value.idle if holdings.value else {}
    due = [
        each
        for each in (scaling.returns(scaler.value, idle) if scaler.value else ())
        if each.slice_id == status.id
    ]
    return Content(
        status.id,
        {
            "status": status,
            "steps": steps_of(status),
            "rows": hosts.in_order(rows, "id"),
            "absent": absent_hosts(status, rows) if views.value is not None else [],
            "hosts": views,
            "due": due[0] if due else None,
            "job_of": hosts.job_of,
        },
        above="/fleet",
    )


def steps_of(status: SliceStatus) -> list[Step]:
    """Returns the history of a slice, the oldest step first."""
    return [
        Step(step.at, step.at - status.steps[0].at, step.state, step.reason)
        for step in status.steps
    ]


def absent_hosts(status: SliceStatus, rows: list[hosts.HostRow]) -> list[str]:
    """Returns the hosts of a READY slice that the scheduler does not have."""
    present = {row.id for row in rows}
    return (
        [host.id for host in status.hosts if host.id not in present]
        if status.state is SliceState.READY
        else []
    )
