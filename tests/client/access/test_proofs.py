"""Messages with proofs, between clients and workers with keys, on a real Temporal server."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import StartWorkflowExecutionRequest
from temporalio.client import (
    ActivityFailureError,
    Client,
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleSpec,
    WorkflowContinuedAsNewError,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer, Worker

from iris.client.access.proof_checks import ProofChecks
from iris.client.access.proofs import Proofs
from iris.client.connect.connection import COMPRESS_ABOVE, SharedConverter
from iris.client.connect.encryption import PayloadKeys
from iris.client.connect.plugin import IrisPlugin
from iris.model.message_keys import MessageKey

KEY = MessageKey(b"k" * 32)
OTHER = MessageKey(b"o" * 32)
QUEUE = "c/control"
PAYLOAD_KEYS = PayloadKeys("a file", {"first": bytes(32)})
SOON = timedelta(seconds=10)


@activity.defn
async def act(text: str) -> str:
    return text.upper()


@workflow.defn
class Parent:
    """Sends and gets one of each kind of message, with and without arguments."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    @workflow.run
    async def run(self, left: int) -> list[str]:
        if left == 0:
            return self.heard
        if left == 2:
            workflow.continue_as_new(1)
        if left == 1:
            child_id = f"{workflow.info().workflow_id}/child"
            child = await workflow.start_child_workflow(Parent.run, 3, id=child_id)
            await child.signal("say", "from the parent")
            own = workflow.get_external_workflow_handle(child.id)
            await own.signal("stop")
            self.heard += [text.upper() for text in await child]
            self.heard.append(
                await workflow.execute_activity(
                    act, "done", start_to_close_timeout=timedelta(seconds=10)
                )
            )
        await workflow.wait_condition(lambda: "stop" in self.heard)
        return self.heard

    @workflow.signal
    def say(self, text: str) -> None:
        self.heard.append(text)

    @workflow.signal
    def stop(self) -> None:
        self.heard.append("stop")

    @workflow.query
    def words(self) -> list[str]:
        return self.heard

    @workflow.update
    async def hears(self, text: str) -> None:
        await workflow.wait_condition(lambda: text in self.heard)

    @workflow.update
    def add(self, text: str) -> int:
        self.heard.append(text)
        return len(self.heard)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    environment = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(Path(sys.executable).with_name("temporal"))
    )
    async with environment:
        yield environment.client.service_client.config.target_host


async def a_client(
    address: str, key: MessageKey | None, payload_keys: PayloadKeys | None = None
) -> Client:
    return await Client.connect(
        address,
        plugins=[IrisPlugin(payload_keys, tolerant=True)],
        interceptors=[] if key is None else [Proofs(SharedConverter(), key)],
    )


def a_worker(client: Client) -> Worker:
    """A worker of the cluster."""
    return Worker(
        client,
        task_queue=QUEUE,
        workflows=[Parent],
        activities=[act],
        interceptors=[ProofChecks(KEY)],
    )


async def until_continued(handle: WorkflowHandle[Any, Any]) -> None:
    with pytest.raises(WorkflowContinuedAsNewError):
        await handle.result(follow_runs=False)


@pytest.mark.parametrize("keys", [None, PAYLOAD_KEYS], ids=["plain", "encrypted"])
async def test_workflows_of_a_cluster_with_a_key_replay_with_and_without_it(
    address: str, keys: PayloadKeys | None
) -> None:
    """Their messages arrive, with arguments and without, compressed, and across continue-as-new: a
    proof covers what comes before compression and encryption.
    """
    client, long = await a_client(address, KEY, keys), "x" * 2 * COMPRESS_ABOVE
    async with a_worker(client):
        handle = await client.start_workflow(Parent.run, 2, id="c/parent", task_queue=QUEUE)
        await until_continued(handle)
        await handle.execute_update(Parent.hears, "DONE")
        assert await handle.execute_update(Parent.add, long) == 4
        await handle.signal(Parent.stop)
        heard = await handle.result()
    assert heard == ["FROM THE PARENT", "STOP", "DONE", long, "stop"]

    histories = [
        await client.get_workflow_handle(each, run_id=run).fetch_history()
        for each, run in (
            ("c/parent", handle.first_execution_run_id),
            ("c/parent", None),
            ("c/parent/child", None),
        )
    ]
    for checks in ([ProofChecks(KEY)], []):
        for history in histories:
            replayer = Replayer(workflows=[Parent], plugins=[IrisPlugin(keys)], interceptors=checks)
            await replayer.replay_workflow(history)


async def test_a_workflow_starts_that_gets_messages_with_its_start(address: str) -> None:
    """The start and each message are checked with their own proofs. One of the messages is in the
    request that starts the workflow.
    """
    client = await a_client(address, KEY)
    handle = await client.start_workflow(
        Parent.run, 3, id="c/own", task_queue=QUEUE, start_signal="say", start_signal_args=["first"]
    )
    stranger = (await a_client(address, OTHER)).get_workflow_handle("c/own")
    await handle.signal(Parent.say, "hello")
    await stranger.signal("say", "planted")
    await handle.signal(Parent.stop)
    async with a_worker(client):
        assert await handle.result() == ["first", "hello", "stop"]


@pytest.mark.parametrize("key", [None, OTHER], ids=["none", "another"])
async def test_a_message_without_the_key_changes_nothing(
    address: str, key: MessageKey | None
) -> None:
    """Signals are ignored, updates fail, and a start fails its workflow alone. Questions have
    answers: they change nothing.
    """
    client, stranger = await a_client(address, KEY), await a_client(address, key)
    async with a_worker(client):
        await client.start_workflow(Parent.run, 3, id="c/own", task_queue=QUEUE)
        theirs = stranger.get_workflow_handle_for(Parent.run, "c/own")
        await theirs.signal(Parent.stop)
        await theirs.signal(Parent.say, "planted")
        with pytest.raises(WorkflowUpdateFailedError):
            await theirs.execute_update(Parent.add, "planted")
        assert await theirs.query(Parent.words) == []
        planted = await stranger.start_workflow(Parent.run, 0, id="c/planted", task_queue=QUEUE)
        with pytest.raises(WorkflowFailureError):
            await planted.result()
        assert await planted.query(Parent.words) == []
        with pytest.raises(ActivityFailureError):
            await stranger.execute_activity(
                act, "planted", id="c/act", task_queue=QUEUE, schedule_to_close_timeout=SOON
            )
        assert (
            await client.execute_activity(
                act, "own", id="c/act", task_queue=QUEUE, schedule_to_close_timeout=SOON
            )
            == "OWN"
        )


async def test_a_start_is_for_its_workflow_and_comes_from_the_run_that_sent_it(
    address: str,
) -> None:
    """The recorded start of a child or of a continued run starts nothing when a client sends it."""
    client, stranger = await a_client(address, KEY), await a_client(address, None)
    async with a_worker(client):
        handle = await client.start_workflow(Parent.run, 2, id="c/parent", task_queue=QUEUE)
        await until_continued(handle)
        await handle.execute_update(Parent.hears, "DONE")
        await handle.signal(Parent.stop)
        await handle.result()
        for recorded, target in (
            ("c/parent", "c/parent"),
            ("c/parent/child", "c/parent/child"),
            ("c/parent/child", "c/elsewhere"),
        ):
            history = await stranger.get_workflow_handle(recorded).fetch_history()
            assert await _started_again(stranger, history.events[0], target) == "Refused"


async def _started_again(client: Client, started: HistoryEvent, workflow_id: str) -> str:
    """Starts a workflow with a recorded message. Returns the type of its failure."""
    attributes = started.workflow_execution_started_event_attributes
    await client.workflow_service.start_workflow_execution(
        StartWorkflowExecutionRequest(
            namespace="default",
            workflow_id=workflow_id,
            workflow_type=attributes.workflow_type,
            task_queue=TaskQueue(name=QUEUE),
            input=attributes.input,
            header=attributes.header,
            request_id=uuid4().hex,
        )
    )
    with pytest.raises(WorkflowFailureError) as failed:
        await client.get_workflow_handle(workflow_id).result()
    assert isinstance(failed.value.cause, ApplicationError)
    return failed.value.cause.type or ""


async def test_a_schedule_starts_its_workflows(address: str) -> None:
    """Temporal appends the time of a run to the id that the schedule names, and sends the same
    message each time.
    """
    client = await a_client(address, KEY)
    action = ScheduleActionStartWorkflow(
        Parent.run, 0, id="c/schedule/ada/nightly", task_queue=QUEUE
    )
    schedule = await client.create_schedule(
        "c/schedule/ada/nightly", Schedule(action=action, spec=ScheduleSpec())
    )
    async with a_worker(client):
        await schedule.trigger()
        while not (done := (await schedule.describe()).info.recent_actions):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        started = done[0].action
        assert isinstance(started, ScheduleActionExecutionStartWorkflow)
        assert await client.get_workflow_handle(started.workflow_id).result() == []
