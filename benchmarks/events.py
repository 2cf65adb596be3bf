"""Counting events in histories: what Temporal stores, and what its Cloud is paid for."""

import asyncio

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from iris import names

#: Descriptions asked for at once.
AT_ONCE = 32
FLOOR = "WorkflowType = 'FloorWorkflow'"


def of_cluster(cluster: str) -> str:
    """A query for every workflow of the cluster, whatever its kind and state."""
    return f"{names.SA_CLUSTER} = '{cluster}'"


async def count_events(client: Client, query: str) -> dict[str, int]:
    """The events in all histories that the query finds, by type of workflow."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def length(execution: WorkflowExecution) -> int:
        if execution.status is not WorkflowExecutionStatus.RUNNING:
            return execution.history_length
        async with at_once:
            described = await client.get_workflow_handle(execution.id, run_id=execution.run_id).describe()
        return described.history_length

    executions = [execution async for execution in client.list_workflows(query)]
    lengths = await asyncio.gather(*(length(execution) for execution in executions))
    found: dict[str, int] = {}
    for execution, events in zip(executions, lengths, strict=True):
        found[execution.workflow_type] = found.get(execution.workflow_type, 0) + events
    return found


def added(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What came in between, the most first, without the types that stayed as they were."""
    grown = {kind: after[kind] - before.get(kind, 0) for kind in after}
    return {kind: count for kind, count in sorted(grown.items(), key=lambda entry: -entry[1]) if count}
