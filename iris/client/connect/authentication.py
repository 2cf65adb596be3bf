"""Authenticates the payloads of messages, and binds each to the workflow or the activity that it is
for. Payloads stay readable in the Web UI.

The last payload of a message carries the code, which covers all of them. Its claim says what the
message asks for: senders add it, and workers compare it with what they are asked
(`iris.client.connect.claim_checks`).
"""

import contextlib
import os
import re
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, Self

from temporalio.api.common.v1 import Payload
from temporalio.client import (
    ActivityHandle,
    CreateScheduleInput,
    Interceptor,
    OutboundInterceptor,
    QueryWorkflowInput,
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
from temporalio.converter import (
    ActivitySerializationContext,
    PayloadCodec,
    PayloadConverter,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from iris.messages.compression import BZIP2, ZLIB
from iris.model.errors import Rejected
from iris.model.message_keys import ACTIVITY, START, Claim, MessageKey, may_send, named

#: The metadata keys for the code, for the claim, and for the job with whose key the code is made.
CODE, CLAIM, JOB = "iris-code", "iris-claim", "iris-job"
ENCODING = "encoding"
#: The encoding that replaces that of a payload which is not authentic, so that it cannot be read.
#: The payload's data is then the reason.
REFUSED = b"iris/refused"
#: The encodings of payloads that were not decoded, because a key is missing or they are damaged.
#: Nothing can read them, and the workflow waits for the key.
_UNREAD = (b"binary/encrypted", ZLIB, BZIP2)
#: The claim of the message whose arguments the converter has read last, in this task.
_last_claim: ContextVar[Claim | None] = ContextVar("last_claim", default=None)
#: What Temporal appends to the id of a workflow that a schedule starts.
_TIME_OF_A_RUN = re.compile(r"-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
#: The length of a nonce in bytes.
_NONCE_BYTES = 8
_WORKFLOW = "workflow"


class Message(Protocol):
    """What the inputs of the SDK's interceptors for messages have in common."""

    args: Sequence[Any]
    headers: Mapping[str, Payload]


def schedule_of_run(workflow_id: str) -> str:
    """Returns the id that a schedule names for its workflows, if this may be one of them; else the
    id itself.
    """
    is_scheduled = workflow_id.partition("/")[2].startswith("schedule/")
    return _TIME_OF_A_RUN.sub("", workflow_id) if is_scheduled else workflow_id


def receiver_of_workflow(workflow_id: str) -> str:
    """Returns the name of a workflow for codes."""
    return f"{_WORKFLOW} {workflow_id}"


def receiver_of_activity(
    workflow_id: str, activity_id: str | None, activity_type: str | None, queue: str | None
) -> str:
    """Returns the name of an activity for codes.

    Two activities of one workflow have the same name if they have the same type: their ids are not
    known when their arguments are encoded.

    Args:
        workflow_id: the workflow that starts the activity; empty if a client does.
    """
    if workflow_id:
        return f"activity {activity_type} {workflow_id}"
    return f"activity {activity_type} by a client: {queue} {activity_id}"


class AuthenticatingCodec(PayloadCodec, WithSerializationContext):
    """A codec that authenticates what it encodes, and refuses what is not authentic.

    It encodes before another codec compresses and encrypts. It does nothing without a key, and to
    payloads that are for nobody in particular.

    Args:
        strict: whether it refuses what is not authentic, for workers. Clients read everything: they
            may have the key of a job, which cannot check the codes of others.
    """

    def __init__(
        self,
        inner: PayloadCodec,
        key: MessageKey | None,
        *,
        strict: bool,
        receivers: tuple[str, ...] = (),
    ) -> None:
        self._inner = inner
        self._key = key
        self._strict = strict
        #: The receiver, and for the run of a schedule the id that the schedule names.
        self._receivers = receivers

    def with_context(self, context: SerializationContext) -> Self:
        """See base class."""
        receivers = _receivers(context)
        return type(self)(self._inner, self._key, strict=self._strict, receivers=receivers)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        if self._key is not None and self._receivers and payloads:
            payloads = authenticated(payloads, self._key, self._receivers[0])
        return await self._inner.encode(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        decoded = await self._inner.decode(payloads)
        if self._key is None or not (self._strict and self._receivers and decoded):
            return decoded
        if any(each.metadata.get(ENCODING) in _UNREAD for each in decoded):
            return decoded
        if reason := _refusal(decoded, self._key, self._receivers):
            refused = Payload(metadata={ENCODING: REFUSED}, data=reason.encode())
            return [refused for _ in decoded]
        return decoded


def _receivers(context: SerializationContext) -> tuple[str, ...]:
    match context:
        case WorkflowSerializationContext(workflow_id=workflow_id):
            ids = dict.fromkeys((workflow_id, schedule_of_run(workflow_id)))
            return tuple(map(receiver_of_workflow, ids))
        case ActivitySerializationContext():
            receiver = receiver_of_activity(
                context.workflow_id or "",
                context.activity_id,
                context.activity_type,
                context.activity_task_queue,
            )
            return (receiver,)
        case _:
            return ()


def authenticated(payloads: Sequence[Payload], key: MessageKey, receiver: str) -> list[Payload]:
    """Returns the payloads, the last one with their code."""
    last = Payload()
    last.CopyFrom(payloads[-1])
    if key.job:
        last.metadata[JOB] = key.job.encode()
    signed = [*payloads[:-1], last]
    last.metadata[CODE] = key.code(receiver, _content(signed))
    return signed


def _refusal(payloads: Sequence[Payload], key: MessageKey, receivers: Sequence[str]) -> str:
    """Returns why payloads are not accepted; empty: they are."""
    metadata = payloads[-1].metadata
    code = metadata.get(CODE)
    if code is None:
        return "it is not authenticated with the cluster's key"
    job = metadata[JOB].decode(errors="replace") if JOB in metadata else ""
    using = key.of_job(job) if job else key
    content = _content(payloads)
    receiver = next((each for each in receivers if using.is_code(code, each, content)), None)
    if receiver is None:
        return "its code is wrong: another key has made it, or it is for something else"
    if job:
        action = Claim.decoded(metadata[CLAIM]).action if CLAIM in metadata else ""
        kind, _, workflow_id = receiver.partition(" ")
        if kind != _WORKFLOW or not may_send(job, action, workflow_id):
            return f"the key of job {job} is not for it"
    return ""


def _content(payloads: Iterable[Payload]) -> list[bytes]:
    """Returns what the code of payloads covers."""
    parts: list[bytes] = []
    for payload in payloads:
        metadata = {name: payload.metadata[name] for name in payload.metadata if name != CODE}
        # The number first, so that metadata cannot be taken for data.
        parts.append(len(metadata).to_bytes(4, "big"))
        for name in sorted(metadata):
            parts += [name.encode(), metadata[name]]
        parts.append(payload.data)
    return parts


class Sender:
    """Adds claims to messages.

    The last argument of a message carries its claim. A message without arguments has it in a
    header.

    Args:
        converter: converts the arguments of messages.
    """

    def __init__(self, converter: PayloadConverter, key: MessageKey) -> None:
        self._converter = converter
        self.key = key

    def claim(self, message: Message, claim: Claim, receiver: str) -> None:
        """Adds the claim to a message.

        Args:
            receiver: as `receiver_of_workflow` returns it.
        """
        if message.args:
            payloads = self._converter.to_payloads(message.args)
            payloads[-1].metadata[CLAIM] = claim.encoded()
            message.args = [RawValue(payload) for payload in payloads]
        else:
            header = Payload(metadata={CLAIM: claim.encoded()})
            (header,) = authenticated([header], self.key, receiver)
            message.headers = {**message.headers, CLAIM: header}


class _Starts(threading.local):
    """The last arguments of starts that this thread has read, with their claims.

    Between the reading of a start and its check, the SDK reads the signals and updates that arrived
    with it. So the start is found by its argument, which is an object of its own.
    """

    def __init__(self) -> None:
        # The check removes it. Only starts that fail before their check stay.
        self.read: deque[tuple[Any, Claim]] = deque(maxlen=4)


_starts = _Starts()


def note_claim(payloads: Sequence[Payload], values: Sequence[Any]) -> None:
    """Keeps the claim of a message for the check that follows.

    Args:
        values: the arguments that the payloads were converted to.
    """
    claim = None
    if payloads and (encoded := payloads[-1].metadata.get(CLAIM)) is not None:
        with contextlib.suppress(ValueError):  # where nothing is authentic, it may be anything
            claim = Claim.decoded(encoded)
    _last_claim.set(claim)
    if claim is not None and values and claim.action == START:
        _starts.read.append((values[-1], claim))


def claim_of_start(message: Message) -> Claim | None:
    """Returns the claim with which the workflow was started that runs now; None if it has none."""
    for read in _starts.read:
        if message.args and read[0] is message.args[-1]:
            _starts.read.remove(read)
            return read[1]
    return None


def claim_of(message: Message, key: MessageKey, receiver: str) -> Claim | None:
    """Returns the claim of a message that this task has just received; None if it has none."""
    if message.args:
        # The codec has checked it, and the converter has read it with the arguments.
        return _last_claim.get()
    header = message.headers.get(CLAIM)
    if header is None or CLAIM not in header.metadata or _refusal([header], key, (receiver,)):
        return None
    return Claim.decoded(header.metadata[CLAIM])


class Claims(Interceptor):
    """A client's interceptor that adds claims to messages."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """See base class."""
        return _Outbound(next, self._sender)


class _Outbound(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, sender: Sender) -> None:
        super().__init__(next)
        self._sender = sender

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        self._claim(input, START, input.id)
        return await super().start_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        self._claim(input, named("signal", input.signal), input.id)
        await super().signal_workflow(input)

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:
        self._claim(input, named("query", input.query), input.id)
        return await super().query_workflow(input)

    async def start_workflow_update(
        self, input: StartWorkflowUpdateInput
    ) -> WorkflowUpdateHandle[Any]:
        self._claim(input, named("update", input.update), input.id)
        return await super().start_workflow_update(input)

    async def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
        self._check(ACTIVITY, input.id)
        receiver = receiver_of_activity("", input.id, input.activity_type, input.task_queue)
        at = datetime.now(UTC) + (input.start_delay or timedelta(0))
        self._sender.claim(input, Claim(ACTIVITY, at, _nonce()), receiver)
        return await super().start_activity(input)

    async def create_schedule(self, input: CreateScheduleInput) -> ScheduleHandle:
        action = input.schedule.action
        assert isinstance(action, ScheduleActionStartWorkflow)
        message = _Scheduled(action.args)
        self._claim(message, START, action.id)
        action.args = message.args
        return await super().create_schedule(input)

    def _claim(self, message: Message, action: str, workflow_id: str) -> None:
        self._check(action, workflow_id)
        claim = Claim(action, datetime.now(UTC), _nonce())
        self._sender.claim(message, claim, receiver_of_workflow(workflow_id))

    def _check(self, action: str, receiver: str) -> None:
        """Raises what the user is told if the receiver would ignore the message.

        Raises:
            Rejected: the key of this job is not for it.
        """
        job = self._sender.key.job
        if not may_send(job, action, receiver):
            raise Rejected(
                f"a program of job {job} may start child jobs and act on them; it may not send"
                f" {action!r} to {receiver}"
            )


class _Scheduled:
    """The arguments of what a schedule starts, which is a message like others."""

    def __init__(self, args: Sequence[Any]) -> None:
        self.args = args
        self.headers: Mapping[str, Payload] = {}


def _nonce() -> str:
    return os.urandom(_NONCE_BYTES).hex()
