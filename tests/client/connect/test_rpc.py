"""A cluster whose service answers and whose workflows do not."""

import asyncio
import time
from typing import cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from iris.client.connect.clusters import ClusterRecord, ControllerVm
from iris.client.connect.rpc import Connection
from iris.model import names
from iris.model.errors import Rejected, Unreachable
from iris.worker_agents.local.temporal_server import temporal_binary
from iris.workflows.search_attributes import keywords

LOCAL = ClusterRecord(name="lab", address="127.0.0.1:7233", store="file:///nowhere")
VM = ControllerVm(project="p", zone="z", machine="m", port=10000)


@pytest.mark.parametrize(
    ("record", "link"),
    [
        (LOCAL, None),
        (
            LOCAL.model_copy(update={"dashboard": "http://127.0.0.1:7002"}),
            "[This job in the dashboard](http://127.0.0.1:7002/jobs/ada/train)",
        ),
        (
            LOCAL.model_copy(
                update={
                    "dashboard": "http://127.0.0.1:40001",
                    "vm": VM.model_copy(update={"dashboard_port": 10002}),
                }
            ),
            None,
        ),
        (
            LOCAL.model_copy(update={"dashboard": "https://iris.example", "vm": VM}),
            "[This job in the dashboard](https://iris.example/jobs/ada/train)",
        ),
    ],
    ids=["none", "on this machine", "through a tunnel", "behind a proxy"],
)
def test_the_web_ui_links_to_a_dashboard_that_others_reach_too(
    record: ClusterRecord, link: str | None
) -> None:
    """The end of a tunnel is a port of one user's machine, and everybody reads the Web UI."""
    assert Connection(cast(Client, None), record).dashboard_link("ada/train") == link


@pytest.mark.long
async def test_questions_that_wait_for_a_control_plane_are_told_that_it_is_silent_or_busy() -> None:
    """The service keeps one query of a workflow that no worker runs, and refuses the others: not a
    fault of the one who asks, nor of a control plane that is only busy.

    Long: the client repeats a refused query for ten seconds.
    """
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_binary()
    ) as server:
        address = server.client.service_client.config.target_host
        connection = Connection(
            server.client, ClusterRecord(name="silent", address=address, store="file:///nowhere")
        )
        await server.client.start_workflow(
            "Scheduler", id=connection.scheduler, task_queue="nobody"
        )
        asked = [connection.query(connection.scheduler, "snapshot", str) for _ in range(3)]
        answers = await asyncio.gather(*asked, return_exceptions=True)

    assert [type(answer) for answer in answers] == [Unreachable] * 3, answers
    told = (
        "the control plane of cluster silent has not answered within 10 s",
        "the control plane of cluster silent is busy: too many queries wait for its answer; try"
        " again, and if this lasts for minutes, run",
    )
    assert all(str(answer).startswith(told) for answer in answers), answers


async def test_a_job_that_ends_while_it_is_signalled_has_just_ended() -> None:
    """Of many jobs that are held together some always end meanwhile, and the others must be held
    nevertheless.
    """
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_binary()
    ) as server:
        address = server.client.service_client.config.target_host
        connection = Connection(
            server.client, ClusterRecord(name="busy", address=address, store="file:///nowhere")
        )
        handle = await server.client.start_workflow("Job", id="job", task_queue="nobody")
        await handle.terminate()
        with (
            pytest.raises(Rejected, match=r"^job ada/train has just ended$"),
            connection.signal_errors("job ada/train"),
        ):
            await handle.signal("hold")


async def test_a_cluster_of_an_older_version_is_named_with_the_remedy() -> None:
    """Its service does not know the search attributes of new options, such as `--tag`, and answers
    INVALID_ARGUMENT.
    """
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_binary()
    ) as server:
        address = server.client.service_client.config.target_host
        connection = Connection(
            server.client, ClusterRecord(name="old", address=address, store="file:///nowhere")
        )
        attributes = keywords({names.SA_TAGS: ["sweep=lr"]})
        with (
            pytest.raises(
                Rejected,
                match=(
                    r"cluster old has an older version of Iris.*IrisTags.*`iris cluster restart"
                    r" old`"
                ),
            ),
            connection.rpc_errors(),
        ):
            await server.client.start_workflow(
                "Job", id="job", task_queue="nobody", search_attributes=attributes
            )


@pytest.mark.parametrize("status", [RPCStatusCode.UNKNOWN, RPCStatusCode.INTERNAL])
def test_a_connection_that_breaks_during_a_call_is_a_service_that_does_not_answer(
    status: RPCStatusCode,
) -> None:
    """Found by `make chaos`: the pool of a program took the end of the server for a lost call,
    because gRPC has no status of its own for a broken connection.
    """
    connection = a_connection()
    with pytest.raises(Unreachable, match=r"transport error$"), connection.rpc_errors():
        raise RPCError("transport error", status, b"")


async def test_a_wait_for_a_result_whose_connection_ends_is_not_cancelled() -> None:
    """Found by `make chaos`: for a closed connection gRPC has the status CANCELLED, for which the
    SDK raises `CancelledError`. A pool ended its sender for it, and lost the calls.
    """
    with pytest.raises(Unreachable, match="operation was canceled"), a_connection().rpc_errors():
        raise asyncio.CancelledError from RPCError(
            "operation was canceled", RPCStatusCode.CANCELLED, b""
        )
    waits = asyncio.create_task(a_wait(a_connection()))
    await asyncio.sleep(0)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits


def a_connection() -> Connection:
    """A connection that is not used."""
    client = Client.__new__(Client)
    return Connection(client, ClusterRecord(name="a", address="a:1", store="file:///nowhere"))


async def a_wait(connection: Connection) -> None:
    with connection.rpc_errors():
        await asyncio.Event().wait()


def test_a_machine_that_sleeps_twice_waits_for_a_new_token_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first refusal after a sleep is that of the expired token, which is about to be renewed."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    connection = Connection(cast(Client, None), LOCAL)
    expired = RPCError("the token has expired", RPCStatusCode.UNAUTHENTICATED, b"")
    evening, morning = 0.0, 10 * 3600.0
    for begin in (evening, morning):
        for after in (0, 10, 30):
            clock[0] = begin + after
            assert connection.lasting_refusal(expired) is None
    clock[0] = morning + 50
    assert isinstance(connection.lasting_refusal(expired), Rejected)
