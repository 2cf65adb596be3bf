"""Acts on all tasks of a job in one activity, so that the history of the job's workflow does not
grow with the number of tasks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.service import AT_ONCE, AWAY
from iris.concurrency import for_each
from iris.messages.array_part import PartRef
from iris.messages.task import TaskOverrides, TaskRefs
from iris.model import names
from iris.model.job.arrays import part_workflow

logger = logging.getLogger(__name__)

#: The pause between two requests to the service about the same workflow, while that workflow has
#: not ended or the service does not answer. A thousand workflows of tasks can end within seconds; a
#: workflow whose program still runs can take minutes.
AGAIN = timedelta(seconds=2)


class JobTasks:
    """Activities that signal the workflows of a job's independent tasks, or wait for their end."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def override_tasks(self, changed: TaskOverrides) -> None:
        """Signals the user's overrides to the tasks. Tasks that have ended are ignored."""

        async def send(workflow_id: str) -> bool:
            await self._client.get_workflow_handle(workflow_id).signal(
                "override", changed.overrides
            )
            return True

        await each_workflow(_ids(changed), send)

    @activity.defn
    async def await_earlier_tasks(self, tasks: TaskRefs) -> None:
        """Waits until these tasks of an earlier job of this name, a terminated one, have ended."""
        await self._await_earlier(_ids(tasks))

    @activity.defn
    async def await_earlier_part(self, part: PartRef) -> None:
        """Waits until this part of an earlier job of this name, a terminated one, has ended."""
        await self._await_earlier([part_workflow(part.cluster, part.job, part.number)])

    async def _await_earlier(self, ids: Iterable[str]) -> None:
        parent_run = activity.info().workflow_run_id

        async def has_ended(workflow_id: str) -> bool:
            described = await self._client.get_workflow_handle(workflow_id).describe()
            return (
                described.status is not WorkflowExecutionStatus.RUNNING
                or described.parent_run_id == parent_run
            )

        await each_workflow(ids, has_ended)


def _ids(tasks: TaskRefs) -> Iterable[str]:
    return (
        names.task_workflow(tasks.cluster, names.task_id(tasks.job, index))
        for index in tasks.indices
    )


async def each_workflow(ids: Iterable[str], is_done: Callable[[str], Awaitable[bool]]) -> None:
    """Calls a function for each workflow id, repeatedly until it returns True or the workflow does
    not exist. Sends heartbeats.
    """

    async def one(workflow_id: str) -> None:
        while True:
            activity.heartbeat()
            try:
                if await is_done(workflow_id):
                    return
            except RPCError as error:
                if error.status not in AWAY:
                    if error.status is not RPCStatusCode.NOT_FOUND:
                        logger.error("workflow %s is skipped: %s", workflow_id, error)
                    return
                logger.warning("workflow %s does not answer, trying again: %s", workflow_id, error)
            await asyncio.sleep(AGAIN.total_seconds())

    await for_each(ids, one, at_once=AT_ONCE)
