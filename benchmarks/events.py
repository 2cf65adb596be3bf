"""Counts history events, which Temporal stores and Temporal Cloud charges for."""

import asyncio

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from iris.model import names

#: The most concurrent describe calls.
AT_ONCE = 32
FLOOR = "WorkflowType = 'FloorWorkflow'"


def of_cluster(cluster: str) -> str:
    """Returns a query for all workflows of the cluster, of every kind and state."""
    return f"{names.SA_CLUSTER} = '{cluster}'"


async def count_events(client: Client, query: str) -> dict[str, int]:
    """Returns the number of events in all histories that the query finds, by workflow type."""
    found: dict[str, int] = {}
    for kind, events in await _lengths(client, query):
        found[kind] = found.get(kind, 0) + events
    return found


async def longest_histories(client: Client, query: str) -> dict[str, int]:
    """Returns the number of events in the longest history that the query finds, by workflow type,
    the longest first.
    """
    return dict(
        sorted(dict(sorted(await _lengths(client, query))).items(), key=lambda entry: -entry[1])
    )


async def _lengths(client: Client, query: str) -> list[tuple[str, int]]:
    """Returns the type and the number of events of each workflow that the query finds."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def length(execution: WorkflowExecution) -> int:
        if execution.status is not WorkflowExecutionStatus.RUNNING:
            return execution.history_length
        async with at_once:
            described = await client.get_workflow_handle(
                execution.id, run_id=execution.run_id
            ).describe()
        return described.history_length

    executions = [execution async for execution in client.list_workflows(query)]
    lengths = await asyncio.gather(*(length(execution) for execution in executions))
    return [
        (execution.workflow_type, length)
        for execution, length in zip(executions, lengths, strict=True)
    ]


def added(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Returns the new events by workflow type, the highest count first, without types that have
    none.
    """
    grown = {kind: after[kind] - before.get(kind, 0) for kind in after}
    return {
        kind: count for kind, count in sorted(grown.items(), key=lambda entry: -entry[1]) if count
    }
