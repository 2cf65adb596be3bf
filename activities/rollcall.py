"""The roll call: what a scheduler that starts with an empty book has to know before it may place anything.

Its predecessor's workflow was terminated, and the book with it. But nobody else has forgotten anything: slices know their hosts,
and every gang knows what it waits for or holds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from temporalio import activity
from temporalio.client import Client, WorkflowExecution, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError, RPCStatusCode

from iris import names
from iris.activities.fleet import made_slices
from iris.roll import Claim, Roll, RollPage
from iris.slices import SliceState, SliceStatus
from iris.workflows.fleet_messages import SliceList
from iris.workflows.messages import ClusterRef

#: So often a workflow that does not answer in time is asked again; then it counts as wedged.
PATIENT_ATTEMPTS = 3
T = TypeVar("T")
logger = logging.getLogger(__name__)

#: Questions under way at once.
AT_ONCE = 32
#: Workflows asked in one activity: its result stays below the 2 MiB of a payload.
PAGE = 1_000
#: In these a slice's hosts are the scheduler's.
TAKING = (SliceState.READY, SliceState.DRAINING)


class RollCall:
    """Activities that ask every slice and every gang; they change nothing."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def call_roll(self, page: RollPage) -> Roll:
        """What some of the cluster's slices, jobs and tasks say; and where to go on, if there are more."""
        kinds = ", ".join(f"'{kind}'" for kind in (names.KIND_SLICE, names.KIND_JOB, names.KIND_TASK))
        listed = self._client.list_workflows(
            f"{names.SA_CLUSTER} = '{page.cluster}' AND {names.SA_KIND} IN ({kinds}) AND ExecutionStatus = 'Running'",
            page_size=PAGE,
            next_page_token=bytes.fromhex(page.token) or None,
        )
        await listed.fetch_next_page(page_size=PAGE)
        slice_id = names.slice_workflow(page.cluster, "")

        async def ask(execution: WorkflowExecution) -> SliceStatus | Claim | None:
            if execution.id.startswith(slice_id):
                return await self._ask(execution, "status", SliceStatus)
            return await self._ask(execution, "claim", Claim)

        answers = await _some_at_once(ask, listed.current_page or ())
        slices = [answer for answer in answers if isinstance(answer, SliceStatus) and answer.state in TAKING]
        return Roll(
            hosts=tuple(host for status in slices for host in status.hosts),
            draining={
                host.id: status.reason for status in slices if status.state is SliceState.DRAINING for host in status.hosts
            },
            claims=tuple(answer for answer in answers if isinstance(answer, Claim)),
            token=(listed.next_page_token or b"").hex(),
        )

    @activity.defn
    async def list_slices(self, ref: ClusterRef) -> SliceList:
        """Where the slices are that were made and have a workflow, as they say themselves."""
        running = [execution async for execution in self._client.list_workflows(made_slices(ref.cluster), page_size=PAGE)]
        answers = await _some_at_once(lambda execution: self._ask(execution, "status", SliceStatus), running)
        return SliceList(slices=tuple(each.facts for each in answers if each is not None and each.facts is not None))

    async def _ask(self, execution: WorkflowExecution, query: str, result: type[T]) -> T | None:
        """Its answer; None from one that has just ended, or that cannot answer at all: a wedged workflow must not hold up all."""
        handle = self._client.get_workflow_handle(execution.id, run_id=execution.run_id)
        try:
            answer: T = await handle.query(query, result_type=result)
            return answer
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
            logger.warning("%s does not say what it holds: %s", execution.id, error)
        except RPCError as error:
            wedged = error.status is RPCStatusCode.DEADLINE_EXCEEDED and activity.info().attempt > PATIENT_ATTEMPTS
            if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION) and not wedged:
                raise
            logger.warning("%s does not say what it holds: %s", execution.id, error)
        return None


async def _some_at_once(ask: Callable[[WorkflowExecution], Awaitable[T]], executions: Iterable[WorkflowExecution]) -> list[T]:
    """What each of them answers."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def in_turn(execution: WorkflowExecution) -> T:
        async with at_once:
            activity.heartbeat()
            return await ask(execution)

    return await asyncio.gather(*(in_turn(execution) for execution in executions))
