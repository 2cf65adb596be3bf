"""A cluster whose service answers and whose workflows do not."""

import asyncio

import pytest
from temporalio.testing import WorkflowEnvironment

from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.rpc import Connection
from iris.model.errors import Unreachable
from iris.worker_agents.local.temporal_server import temporal_binary


@pytest.mark.long
async def test_questions_that_wait_for_a_control_plane_are_told_that_it_does_not_answer() -> None:
    """The service keeps one query of a workflow that no worker runs, and refuses the others: not a fault of the one who asks.

    Long: the client repeats a refused query for ten seconds.
    """
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=temporal_binary()) as server:
        address = server.client.service_client.config.target_host
        connection = Connection(server.client, ClusterRecord(name="silent", address=address, store="file:///nowhere"))
        await server.client.start_workflow("Scheduler", id=connection.scheduler, task_queue="nobody")
        asked = [connection.query(connection.scheduler, "snapshot", str) for _ in range(3)]
        answers = await asyncio.gather(*asked, return_exceptions=True)

    assert [type(answer) for answer in answers] == [Unreachable] * 3, answers
    assert all("cluster silent at" in str(answer) and "does not answer" in str(answer) for answer in answers), answers
