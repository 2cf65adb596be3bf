"""Queries all slices and gangs for a scheduler that starts with an empty ledger.

The workflow of the previous scheduler was terminated, and its ledger is lost. But each slice knows
its hosts, and each gang knows its request or its placement.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.notifier import PATIENT_ATTEMPTS
from iris.activities.control.observe import made_slices
from iris.concurrency import for_each
from iris.messages.autoscaler import SliceList
from iris.messages.wire import ClusterName
from iris.model import names
from iris.model.job.demand_limits import MESSAGE_BYTES, size_of
from iris.model.slice.status import SliceState, SliceStatus
from iris.scheduling.ledger.recovery import GangReport, RecoveryCursor, RecoveryPage

#: The server's status codes while it is away or refuses every request. They say nothing about a
#: single workflow, so the recovery skips no workflow because of them.
OUTAGES = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.ABORTED,
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
)
T = TypeVar("T")
logger = logging.getLogger(__name__)

#: The maximum number of queries of workflows that one activity runs at the same time.
AT_ONCE = 32
#: The maximum number of workflows that one activity queries. `PAGE_BYTES` may allow fewer.
PAGE = 1_000
#: The maximum number of bytes of the workflows' answers that one activity returns. The answers of a
#: thousand ordinary gangs have half of this size.
PAGE_BYTES = MESSAGE_BYTES
#: The states of a slice in which the scheduler knows the slice's hosts.
SERVING = (SliceState.READY, SliceState.DRAINING)


class RecoveryQueries:
    """Activities that query every slice and every gang, so that a scheduler with an empty ledger
    can restore it. They change nothing.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def query_page(self, cursor: RecoveryCursor) -> RecoveryPage:
        """Queries a page of the cluster's slices, jobs and tasks. Returns their answers, and the
        token of the next page.

        If the answers are too large for one result, queries fewer workflows.
        """
        most = PAGE
        while size_of(page := await self._page(cursor, most)) > PAGE_BYTES and most > 1:
            most //= 4
        return page

    async def _page(self, cursor: RecoveryCursor, most: int) -> RecoveryPage:
        """Queries at most `most` workflows, from the cursor on."""
        ours = names.own_workflows(
            cursor.cluster, names.KIND_SLICE, names.KIND_JOB, names.KIND_TASK
        )
        listed = self._client.list_workflows(
            f"{ours} AND ExecutionStatus = 'Running'",
            page_size=most,
            next_page_token=bytes.fromhex(cursor.token) or None,
        )
        await listed.fetch_next_page(page_size=most)
        slice_id = names.slice_workflow(cursor.cluster, "")

        async def query(execution: WorkflowExecution) -> SliceStatus | GangReport | None:
            if execution.id.startswith(slice_id):
                return await self._query(execution, "status", SliceStatus)
            return await self._query(execution, "claim", GangReport)

        answers = await _some_at_once(query, listed.current_page or ())
        slices = [
            answer
            for answer in answers
            if isinstance(answer, SliceStatus) and answer.state in SERVING
        ]
        return RecoveryPage(
            hosts=tuple(host for status in slices for host in status.hosts),
            draining={
                host.id: status.reason
                for status in slices
                if status.state is SliceState.DRAINING
                for host in status.hosts
            },
            claims=tuple(answer for answer in answers if isinstance(answer, GangReport)),
            token=(listed.next_page_token or b"").hex(),
        )

    @activity.defn
    async def list_slices(self, ref: ClusterName) -> SliceList:
        """Returns the facts of all created slices that have a workflow."""
        running = [
            execution
            async for execution in self._client.list_workflows(
                made_slices(ref.cluster), page_size=PAGE
            )
        ]
        answers = await _some_at_once(
            lambda execution: self._query(execution, "status", SliceStatus), running
        )
        return SliceList(
            slices=tuple(
                each.facts for each in answers if each is not None and each.facts is not None
            )
        )

    async def _query(self, execution: WorkflowExecution, name: str, result: type[T]) -> T | None:
        """Returns a workflow's answer; None if it has just ended or cannot answer at all, because a
        stuck workflow must not block the recovery. Fails if a later attempt may get an answer.
        """
        handle = self._client.get_workflow_handle(execution.id, run_id=execution.run_id)
        try:
            answer: T = await handle.query(name, result_type=result)
            return answer
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
            logger.warning("workflow %s did not answer the recovery query: %s", execution.id, error)
        except RPCError as error:
            stuck = error.status not in OUTAGES and activity.info().attempt > PATIENT_ATTEMPTS
            if (
                error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION)
                and not stuck
            ):
                raise
            logger.warning("workflow %s did not answer the recovery query: %s", execution.id, error)
        except (ValueError, TypeError) as error:
            logger.error(
                "workflow %s answered the recovery query with what this version cannot read: %s",
                execution.id,
                error,
            )
        return None


async def _some_at_once(
    query: Callable[[WorkflowExecution], Awaitable[T]], executions: Iterable[WorkflowExecution]
) -> list[T]:
    """Returns the answers of all workflows, with at most `AT_ONCE` queries at the same time."""

    async def alive(execution: WorkflowExecution) -> T:
        activity.heartbeat()
        return await query(execution)

    return await for_each(executions, alive, at_once=AT_ONCE)
