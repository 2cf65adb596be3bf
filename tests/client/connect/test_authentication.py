"""The codec that authenticates payloads, and workers that compare what messages are for.

The workflow below runs on a real Temporal server.
"""

import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    WorkflowContinuedAsNewError,
    WorkflowFailureError,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
)
from temporalio.converter import (
    ActivitySerializationContext,
    DataConverter,
    SerializationContext,
    WorkflowSerializationContext,
)
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer, Worker

from iris.client.connect.authentication import CODE, Claims, Sender
from iris.client.connect.connection import COMPRESS_ABOVE, SharedConverter, data_converter
from iris.client.connect.encryption import PayloadKeys
from iris.client.connect.plugin import IrisPlugin
from iris.model.message_keys import MessageKey

KEY = MessageKey(b"k" * 32)
OTHER = MessageKey(b"o" * 32)
QUEUE = "c/control"
PAYLOAD_KEYS = PayloadKeys("a file", {"first": bytes(32)})


def to(workflow_id: str) -> SerializationContext:
    return WorkflowSerializationContext(namespace="default", workflow_id=workflow_id)


def of_activity(**changes: Any) -> SerializationContext:
    known = {
        "activity_id": "1",
        "activity_type": "act",
        "activity_task_queue": QUEUE,
        "workflow_id": "c/job/ada/train",
        "workflow_type": "W",
    }
    return ActivitySerializationContext(namespace="default", is_local=False, **{**known, **changes})


async def read(
    payloads: list[Payload], context: SerializationContext, key: MessageKey = KEY, **settings: Any
) -> list[Any]:
    """What a worker reads."""
    worker = data_converter(settings.get("keys"), key, strict=True)
    return await worker.with_context(context).decode(payloads)


def converter(key: MessageKey | None = KEY, keys: PayloadKeys | None = None) -> DataConverter:
    return data_converter(keys, key)


@pytest.mark.parametrize("keys", [None, PAYLOAD_KEYS], ids=["plain", "encrypted"])
async def test_payloads_are_read_at_their_receiver_only(keys: PayloadKeys | None) -> None:
    """Also compressed and encrypted ones, and several of one message."""
    values = [["one", 2], "x" * 2 * COMPRESS_ABOVE, None]
    sent = await converter(keys=keys).with_context(to("c/a")).encode(values)

    assert await read(sent, to("c/a"), keys=keys) == values
    for context in (to("c/b"), of_activity(workflow_id="c/a")):
        with pytest.raises(ApplicationError, match="refused"):
            await read(sent, context, keys=keys)
    for part in (sent[:2], sent[1:], [sent[1], sent[0], sent[2]]):
        with pytest.raises(ApplicationError, match="refused"):
            await read(part, to("c/a"), keys=keys)
    with pytest.raises(ApplicationError, match="refused"):
        await read(sent, to("c/a"), OTHER, keys=keys)


async def test_small_payloads_stay_readable_and_grow_by_a_code() -> None:
    """The Web UI shows them. The code costs 31 bytes."""
    (plain,) = await converter(None).with_context(to("c/a")).encode([{"a": 1}])
    (sent,) = await converter().with_context(to("c/a")).encode([{"a": 1}])

    assert sent.data == plain.data
    assert sent.metadata["encoding"] == plain.metadata["encoding"]
    assert sent.ByteSize() - plain.ByteSize() == 31
    assert await converter(None).decode([sent]) == [{"a": 1}]


async def test_a_changed_or_plain_payload_is_refused() -> None:
    """Its data and its metadata are covered."""
    (sent,) = await converter().with_context(to("c/a")).encode(["hello"])
    changed, marked, plain = Payload(), Payload(), Payload()
    for copy in (changed, marked, plain):
        copy.CopyFrom(sent)
    changed.data = b'"other"'
    marked.metadata["messageType"] = b"x"
    del plain.metadata[CODE]

    for payload in (changed, marked, plain):
        with pytest.raises(ApplicationError, match="refused"):
            await read([payload], to("c/a"))


@pytest.mark.parametrize(
    "other",
    [
        {"workflow_id": "c/job/ada/other"},
        {"activity_type": "another"},
        {"workflow_id": None},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_arguments_of_an_activity_are_for_its_workflow_and_type(
    other: dict[str, Any],
) -> None:
    """The recorded input of a task starts nothing without a workflow."""
    sent = await converter().with_context(of_activity()).encode(["hello"])

    assert await read(sent, of_activity(activity_id=None)) == ["hello"]
    with pytest.raises(ApplicationError, match="refused"):
        await read(sent, of_activity(**other))


async def test_payloads_of_a_schedule_are_for_its_runs() -> None:
    """Temporal appends the time of a run to the id of its workflow."""
    schedule = "c/schedule/ada/nightly"
    sent = await converter().with_context(to(schedule)).encode(["hello"])

    assert await read(sent, to(f"{schedule}-2026-11-28T03:00:00Z")) == ["hello"]
    for workflow_id in (f"{schedule}-other", "c/job/ada/nightly-2026-11-28T03:00:00Z"):
        with pytest.raises(ApplicationError, match="refused"):
            await read(sent, to(workflow_id))


async def test_the_key_of_a_job_is_for_its_children() -> None:
    """Its program has no other key."""
    own = converter(KEY.of_job("ada/train"))
    sent = {
        each: await own.with_context(to(each)).encode(["hello"])
        for each in ("c/job/ada/train/child", "c/job/ada/other")
    }

    assert await read(sent["c/job/ada/train/child"], to("c/job/ada/train/child")) == ["hello"]
    with pytest.raises(ApplicationError, match="not for it"):
        await read(sent["c/job/ada/other"], to("c/job/ada/other"))
    result = await own.with_context(of_activity()).encode(["hello"])
    with pytest.raises(ApplicationError, match="not for it"):
        await read(result, of_activity())


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


async def a_client(address: str, key: MessageKey) -> Client:
    return await Client.connect(
        address,
        plugins=[IrisPlugin(None, key, tolerant=True)],
        interceptors=[Claims(Sender(SharedConverter(), key))],
    )


async def test_workflows_of_a_cluster_with_a_key_replay_with_and_without_it(address: str) -> None:
    """Their messages arrive, with arguments and without, also across continue-as-new."""
    client = await a_client(address, KEY)
    async with Worker(client, task_queue=QUEUE, workflows=[Parent], activities=[act]):
        handle = await client.start_workflow(Parent.run, 2, id="c/parent", task_queue=QUEUE)
        with pytest.raises(WorkflowContinuedAsNewError):  # its next run gets the update
            await handle.result(follow_runs=False)
        await handle.execute_update(Parent.hears, "DONE")
        assert await handle.execute_update(Parent.add, "updated") == 4
        await handle.signal(Parent.stop)
        heard = await handle.result()
    assert heard == ["FROM THE PARENT", "STOP", "DONE", "updated", "stop"]

    histories = [
        await client.get_workflow_handle(each, run_id=run).fetch_history()
        for each, run in (
            ("c/parent", handle.first_execution_run_id),
            ("c/parent", None),
            ("c/parent/child", None),
        )
    ]
    for key in (KEY, None):
        for history in histories:
            plugins = [IrisPlugin(None, key)]
            await Replayer(workflows=[Parent], plugins=plugins).replay_workflow(history)


async def test_a_workflow_starts_that_gets_messages_with_its_start(address: str) -> None:
    """The worker reads their arguments between those of the start and its check. Such a workflow
    was refused.
    """
    client = await a_client(address, KEY)
    handle = await client.start_workflow(Parent.run, 3, id="c/own", task_queue=QUEUE)
    stranger = (await a_client(address, OTHER)).get_workflow_handle("c/own")
    await handle.signal(Parent.say, "hello")
    await stranger.signal("say", "planted")
    await handle.signal(Parent.stop)
    async with Worker(client, task_queue=QUEUE, workflows=[Parent], activities=[act]):
        assert await handle.result() == ["hello", "stop"]


async def test_a_message_of_another_key_changes_nothing(address: str) -> None:
    """Signals are ignored, questions and updates fail, and a start fails its workflow alone."""
    client, stranger = await a_client(address, KEY), await a_client(address, OTHER)
    async with Worker(client, task_queue=QUEUE, workflows=[Parent], activities=[act]):
        handle = await client.start_workflow(Parent.run, 3, id="c/own", task_queue=QUEUE)
        theirs = stranger.get_workflow_handle_for(Parent.run, "c/own")
        await theirs.signal(Parent.stop)
        await theirs.signal(Parent.say, "planted")
        with pytest.raises(WorkflowUpdateFailedError):
            await theirs.execute_update(Parent.add, "planted")
        with pytest.raises(WorkflowQueryFailedError):
            await theirs.query(Parent.words)
        assert await handle.query(Parent.words) == []
        planted = await stranger.start_workflow(Parent.run, 0, id="c/planted", task_queue=QUEUE)
        with pytest.raises(WorkflowFailureError):
            await planted.result()
