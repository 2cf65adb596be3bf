"""Adds proofs to the messages of a client: each has a header that proves that its sender has the
cluster's key. Arguments are not changed, and stay readable in the Web UI.

Workers check the proofs (`iris.client.access.proof_checks`).
"""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from temporalio.api.common.v1 import Payload
from temporalio.client import (
    ActivityHandle,
    Client,
    CreateScheduleInput,
    Interceptor,
    OutboundInterceptor,
    ScheduleActionStartWorkflow,
    ScheduleHandle,
    SignalWorkflowInput,
    StartActivityInput,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
    WorkflowHandle,
    WorkflowUpdateHandle,
)
from temporalio.common import RawValue
from temporalio.converter import PayloadConverter

from iris.model.errors import Rejected
from iris.model.message_keys import Kind, Message, MessageKey, Proof, may_send

#: Matches the time that Temporal appends to the id of a workflow that a schedule starts.
_TIME_OF_A_RUN = re.compile(r"-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
#: The length in bytes of a nonce, the random number that distinguishes a message from all others.
_NONCE_BYTES = 8


class Arguments(list[Any]):
    """The arguments of a message, with the payloads that they were converted from."""

    payloads: Sequence[Payload] = ()


class Sent(Protocol):
    """The fields that the interceptors of the Temporal SDK get for messages of every kind."""

    args: Sequence[Any]
    headers: Mapping[str, Payload]


def header_of(kind: Kind) -> str:
    """Returns the key of the header for the proof of a message. One request may start a workflow
    and signal it, and has the proofs of both.
    """
    return f"iris-{kind}"


def schedule_of_run(workflow_id: str) -> str:
    """Returns the id that a schedule names for its workflows, if this may be one of them; else the
    id itself.
    """
    is_scheduled = workflow_id.partition("/")[2].startswith("schedule/")
    return _TIME_OF_A_RUN.sub("", workflow_id) if is_scheduled else workflow_id


def to_workflow(kind: Kind, name: str, workflow_id: str, content: Sequence[Payload]) -> Message:
    """Returns the message to a workflow, or to an activity that a workflow starts."""
    return Message(kind, name, schedule_of_run(workflow_id), _bytes_of(content))


def to_activity(name: str, queue: str, activity_id: str, content: Sequence[Payload]) -> Message:
    """Returns the message that starts an activity without a workflow."""
    return Message(Kind.ACTIVITY, name, f"{queue} {activity_id}", _bytes_of(content))


def _bytes_of(payloads: Sequence[Payload]) -> list[bytes]:
    parts: list[bytes] = []
    for payload in payloads:
        # The number first, so that metadata cannot be taken for data.
        parts.append(len(payload.metadata).to_bytes(4, "big"))
        for name in sorted(payload.metadata):
            parts += [name.encode(), payload.metadata[name]]
        parts.append(payload.data)
    return parts


def payloads_of(values: Sequence[Any], converter: PayloadConverter) -> list[Payload]:
    """Returns the arguments of a message as payloads, before compression and encryption."""
    return converter.to_payloads(values) if values else []


def raw(payloads: Sequence[Payload]) -> list[Any]:
    """Returns arguments that the SDK converts to these payloads."""
    return [RawValue(payload) for payload in payloads]


def with_proof(
    headers: Mapping[str, Payload] | None, kind: Kind, proof: Proof
) -> dict[str, Payload]:
    """Returns the headers with a proof."""
    return {**(headers or {}), header_of(kind): Payload(data=proof.encoded())}


def proof_in(headers: Mapping[str, Payload], kind: Kind) -> Proof | None:
    """Returns the proof in the headers of a message; None if it has none."""
    header = headers.get(header_of(kind))
    return None if header is None else Proof.decoded(header.data)


def key_of(client: Client) -> MessageKey | None:
    """Returns the key that a client of `connect` uses; None if it uses none."""
    for each in client.config(active_config=True)["interceptors"]:
        if isinstance(each, Proofs):
            return each.key
    return None


class Proofs(Interceptor):
    """The interceptor of a client that adds to each message the proof that its sender has the
    cluster's key.

    Args:
        converter: the client's converter, because a proof covers the arguments as they are sent.
    """

    def __init__(self, converter: PayloadConverter, key: MessageKey) -> None:
        self._converter = converter
        self.key = key

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """See base class."""
        return _Outbound(next, self._converter, self.key)


class _Outbound(OutboundInterceptor):
    def __init__(
        self, next: OutboundInterceptor, converter: PayloadConverter, key: MessageKey
    ) -> None:
        super().__init__(next)
        self._converter = converter
        self._key = key

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        if input.start_signal is not None:
            payloads = payloads_of(input.start_signal_args, self._converter)
            signal = to_workflow(Kind.SIGNAL, input.start_signal, input.id, payloads)
            input.headers = with_proof(input.headers, Kind.SIGNAL, self._proof(signal))
            input.start_signal_args = raw(payloads)
        self._prove(input, Kind.START, input.workflow, input.id)
        return await super().start_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        self._prove(input, Kind.SIGNAL, input.signal, input.id)
        await super().signal_workflow(input)

    async def start_workflow_update(
        self, input: StartWorkflowUpdateInput
    ) -> WorkflowUpdateHandle[Any]:
        self._prove(input, Kind.UPDATE, input.update, input.id)
        return await super().start_workflow_update(input)

    async def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
        payloads = payloads_of(input.args, self._converter)
        message = to_activity(input.activity_type, input.task_queue, input.id, payloads)
        proof = self._proof(message, input.start_delay or timedelta(0))
        input.args, input.headers = raw(payloads), with_proof(input.headers, Kind.ACTIVITY, proof)
        return await super().start_activity(input)

    async def create_schedule(self, input: CreateScheduleInput) -> ScheduleHandle:
        action = input.schedule.action
        assert isinstance(action, ScheduleActionStartWorkflow)
        payloads = payloads_of(action.args, self._converter)
        message = to_workflow(Kind.START, action.workflow, action.id, payloads)
        action.args = raw(payloads)
        action.headers = with_proof(action.headers, Kind.START, self._proof(message))
        return await super().create_schedule(input)

    def _prove(self, sent: Sent, kind: Kind, name: str, workflow_id: str) -> None:
        payloads = payloads_of(sent.args, self._converter)
        proof = self._proof(to_workflow(kind, name, workflow_id, payloads))
        sent.args, sent.headers = raw(payloads), with_proof(sent.headers, kind, proof)

    def _proof(self, message: Message, delay: timedelta = timedelta(0)) -> Proof:
        """Returns the proof of a message.

        Args:
            delay: how long the service waits before it hands the message out.

        Raises:
            Rejected: the cluster would refuse the message: the key of this job is not for it.
        """
        if not may_send(self._key.job, message):
            raise Rejected(
                f"a program of job {self._key.job} may start child jobs, and act on them and on"
                f" itself; it may not send {message.kind} {message.name} to {message.receiver}"
            )
        nonce = os.urandom(_NONCE_BYTES).hex()
        return self._key.prove(message, datetime.now(UTC) + delay, nonce)
