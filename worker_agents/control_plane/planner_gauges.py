"""Gathers what the scheduler and the autoscaler know, for the metrics of the control plane.

Both are queried, which adds nothing to their histories. If one does not answer, its gauges become
absent: old values would look like present ones.
"""

from collections import Counter
from datetime import timedelta
from typing import TypeVar

from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError

from iris.client.connect.connection import RPC_TIMEOUT
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import Totals
from iris.metrics import declared
from iris.metrics.kinds import Gauge
from iris.model import names

#: The interval at which the scheduler and the autoscaler are queried for the metrics.
INTERVAL = timedelta(seconds=15)
#: The label for waiting gangs for which the scheduler has not computed why they wait.
NOT_COMPUTED = "NOT_COMPUTED"
#: The label for hosts without a scale group. These are machines that users brought.
NO_GROUP = "none"
_OF_SCHEDULER: tuple[Gauge, ...] = (
    declared.GANGS_WAITING,
    declared.GANGS_RUNNING,
    declared.GANGS_HELD,
    declared.HOSTS,
    declared.SCHEDULER_PAUSED,
    declared.SCHEDULER_REPLAY,
    declared.SCHEDULER_REPLAY_LIMIT,
    declared.LEDGER_SIZE,
    declared.LEDGER_LIMIT,
)
_OF_AUTOSCALER: tuple[Gauge, ...] = (
    declared.SLICES,
    declared.GROUP_DEMAND,
    declared.GROUP_TARGET,
    declared.GROUP_AVAILABILITY,
    declared.ZONES_UNREACHABLE,
    declared.UNOWNED_SLICES,
    declared.HELD_HOSTS,
    declared.AUTOSCALER_PAUSED,
)
T = TypeVar("T")


async def gather(client: Client, cluster: str) -> None:
    """Shows the present values."""
    scheduler = await _answer(client, names.scheduler_workflow(cluster), "totals", Totals)
    if scheduler is not None:
        show_totals(scheduler)
    else:
        _clear(_OF_SCHEDULER)
    autoscaler = await _answer(
        client, names.autoscaler_workflow(cluster), "status", AutoscalerStatus
    )
    if autoscaler is not None:
        show_status(autoscaler)
    else:
        _clear(_OF_AUTOSCALER)
    declared.PLANNER_ANSWERS.show(
        {("scheduler",): scheduler is not None, ("autoscaler",): autoscaler is not None}
    )


async def _answer(client: Client, workflow: str, query: str, result: type[T]) -> T | None:
    """Returns the answer of a planner; None if it does not answer."""
    try:
        answer: T = await client.get_workflow_handle(workflow).query(
            query, result_type=result, rpc_timeout=RPC_TIMEOUT
        )
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return None
    return answer


def show_totals(totals: Totals) -> None:
    """Shows the scheduler's answer."""
    declared.GANGS_WAITING.show(
        {(each.band, each.reason or NOT_COMPUTED): each.gangs for each in totals.waiting}
    )
    declared.GANGS_RUNNING.show({(band,): count for band, count in totals.running.items()})
    declared.GANGS_HELD.show({(band,): count for band, count in totals.held.items()})
    declared.HOSTS.show(
        {(each.group or NO_GROUP, each.closed or "open"): each.hosts for each in totals.hosts}
    )
    declared.SCHEDULER_PAUSED.show_one(totals.paused)
    declared.SCHEDULER_REPLAY.show_one(totals.looks)
    declared.SCHEDULER_REPLAY_LIMIT.show_one(totals.most_looks)
    declared.LEDGER_SIZE.show_one(totals.ledger_bytes)
    declared.LEDGER_LIMIT.show_one(totals.full_ledger_bytes)
    declared.USES_WAITING.show_one(totals.unstored_uses)
    declared.USES_DROPPED.show_one(totals.dropped_uses)


def show_status(status: AutoscalerStatus) -> None:
    """Shows the autoscaler's answer."""
    slices: Counter[tuple[str, ...]] = Counter(
        (each.group, each.zone, each.state) for each in status.slices
    )
    declared.SLICES.show(slices)
    groups = status.groups
    declared.GROUP_DEMAND.show({(each.group,): each.demand for each in groups})
    declared.GROUP_TARGET.show({(each.group,): each.target for each in groups})
    declared.GROUP_AVAILABILITY.show({(each.group, each.availability): 1 for each in groups})
    declared.ZONES_UNREACHABLE.show({(zone,): 1 for zone in status.unreachable})
    declared.UNOWNED_SLICES.show_one(len(status.unowned))
    declared.HELD_HOSTS.show_one(status.held_hosts)
    declared.AUTOSCALER_PAUSED.show_one(status.paused is not None)


def _clear(gauges: tuple[Gauge, ...]) -> None:
    for gauge in gauges:
        gauge.clear()
