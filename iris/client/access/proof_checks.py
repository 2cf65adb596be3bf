"""Refuses messages that do not prove that their sender has the cluster's key, and messages that
were sent before. Clients do not import this module, because `temporalio.worker` takes a tenth of a
second to import.

The checks of a workflow depend on its history and on the key alone, so a replay has their results
again.
"""

import logging
from datetime import datetime, timedelta
from typing import Any, ClassVar, NoReturn

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ContinueAsNewInput,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    SignalChildWorkflowInput,
    SignalExternalWorkflowInput,
    StartActivityInput,
    StartChildWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from iris.client.access.proofs import (
    Arguments,
    Sent,
    key_of,
    payloads_of,
    proof_in,
    raw,
    schedule_of_run,
    to_activity,
    to_workflow,
    with_proof,
)
from iris.model.message_keys import Kind, Message, MessageKey, Proof

logger = logging.getLogger(__name__)

#: A signal, an update or a client's start is refused if it was made more than this time before the
#: start of the workflow or activity that gets it. The time allows for different clocks and retries.
#: Within this time, a copy of a message to an earlier run of the workflow is accepted.
SKEW = timedelta(minutes=1)
#: Why a message is refused that was accepted before.
_COPY = "a message with the same proof was received before, so this one is a copy"


class ProofChecks(Interceptor):
    """A worker's interceptor that refuses messages without a valid proof that their sender has the
    cluster's key. It adds such proofs to the messages that workflows send.

    It must be the first interceptor of the worker. The other interceptors then do not see refused
    messages, and get the arguments of sent messages as values, not as payloads.
    """

    def __init__(self, key: MessageKey) -> None:
        self._key = key
        self._seen = _Seen()

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor]:
        """See base class."""
        return type("_Keyed", (_Inbound,), {"key": self._key})

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See base class."""
        return _Activities(next, self._key, self._seen)


def proof_checks(client: Client) -> list[Interceptor]:
    """Returns the interceptors of a worker with this client: none if the client has no key."""
    key = key_of(client)
    return [] if key is None else [ProofChecks(key)]


def _too_old(proof: Proof, earliest: datetime) -> str:
    """Returns why a message is refused that was sent long before the start of its receiver; empty:
    it was not.
    """
    if proof.at >= earliest - SKEW:
        return ""
    return (
        f"it was sent at {proof.at:%Y-%m-%d %H:%M:%S} UTC, before the start of its receiver: it is"
        " a copy, or the clock of the sender is slow"
    )


def _refused(what: str, problem: str) -> ApplicationError:
    return ApplicationError(f"{what} is refused: {problem}", type="Refused", non_retryable=True)


def _taken(received: Sent) -> Arguments:
    """Returns the arguments of a message, and drops their payloads from the message."""
    arguments = received.args
    if not isinstance(arguments, Arguments):  # no arguments
        return Arguments()
    received.args = [*arguments]
    return arguments


class _Inbound(WorkflowInboundInterceptor):
    """Checks the messages that a workflow gets. It refuses messages without a valid proof that
    their sender has the cluster's key, and copies of signals and updates that the same run has
    received before.
    """

    key: ClassVar[MessageKey]

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self._nonces: set[str] = set()
        super().init(_Outbound(outbound, self.key))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        info = workflow.info()
        proof = proof_in(input.headers, Kind.START)
        problem = self._problem(Kind.START, info.workflow_type, input, proof)
        if proof is not None and not problem:
            problem = _problem_of_start(proof, info)
        if problem:
            raise _refused(f"the start of {info.workflow_id}", problem)
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        if problem := self._problem_once(Kind.SIGNAL, input.signal, input):
            # An error would fail the workflow.
            if not workflow.unsafe.is_replaying():
                logger.warning("%s is ignored: %s", _described(Kind.SIGNAL, input.signal), problem)
            return
        await super().handle_signal(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        if problem := self._problem_once(Kind.UPDATE, input.update, input):
            raise _refused(_described(Kind.UPDATE, input.update), problem)
        return await super().handle_update_handler(input)

    def _problem_once(self, kind: Kind, name: str, received: Sent) -> str:
        """Returns why a message that may come once is refused; empty: it is not."""
        proof = proof_in(received.headers, kind)
        problem = self._problem(kind, name, received, proof)
        if proof is None or problem:
            return problem
        if problem := _too_old(proof, workflow.info().workflow_start_time):
            return problem
        if proof.nonce in self._nonces:
            return _COPY
        self._nonces.add(proof.nonce)
        return ""

    def _problem(self, kind: Kind, name: str, received: Sent, proof: Proof | None) -> str:
        content = _taken(received).payloads
        message = to_workflow(kind, name, workflow.info().workflow_id, content)
        return self.key.problem(message, proof)


def _problem_of_start(proof: Proof, info: workflow.Info) -> str:
    """Returns why an authentic start is refused in the place where it is now; empty: it is not."""
    if proof.run:
        # A workflow's start counts once, whenever the service carries it out.
        parent = info.parent.run_id if info.parent is not None else None
        ours = proof.run in (info.continued_run_id, parent)
        problem = (
            "its proof was made by a workflow run that is neither the parent nor the previous run"
            " of this workflow"
        )
        return "" if ours else problem
    if schedule_of_run(info.workflow_id) != info.workflow_id:
        return ""  # as old as the schedule
    return _too_old(proof, info.workflow_start_time)


def _described(kind: Kind, name: str) -> str:
    return f"{kind} {name} to {workflow.info().workflow_id}"


class _Outbound(WorkflowOutboundInterceptor):
    """Adds the proof that the sender has the cluster's key to the signals that a workflow sends,
    and to the starts of activities and workflows that it requests.
    """

    def __init__(self, next: WorkflowOutboundInterceptor, key: MessageKey) -> None:
        super().__init__(next)
        self._key = key
        self._sent = 0

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        self._prove(input, Kind.ACTIVITY, input.activity, workflow.info().workflow_id)
        return super().start_activity(input)

    async def start_child_workflow(
        self, input: StartChildWorkflowInput
    ) -> workflow.ChildWorkflowHandle[Any, Any]:
        self._prove(input, Kind.START, input.workflow, input.id)
        return await super().start_child_workflow(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        info = workflow.info()
        self._prove(input, Kind.START, input.workflow or info.workflow_type, info.workflow_id)
        super().continue_as_new(input)

    async def signal_child_workflow(self, input: SignalChildWorkflowInput) -> None:
        self._prove(input, Kind.SIGNAL, input.signal, input.child_workflow_id)
        await super().signal_child_workflow(input)

    async def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> None:
        self._prove(input, Kind.SIGNAL, input.signal, input.workflow_id)
        await super().signal_external_workflow(input)

    def _prove(self, sent: Sent, kind: Kind, name: str, receiver: str) -> None:
        payloads = payloads_of(sent.args, workflow.payload_converter())
        message = to_workflow(kind, name, receiver, payloads)
        # No random number: the nonce must not depend on whether a replay has the key.
        self._sent += 1
        nonce = f"{workflow.info().run_id}/{self._sent}"
        proof = self._key.prove(message, workflow.now(), nonce)
        sent.args, sent.headers = raw(payloads), with_proof(sent.headers, kind, proof)


class _Seen:
    """The activities that clients, not workflows, started on this worker in the last minutes. A
    second start with a copy of the same message is refused.
    """

    def __init__(self) -> None:
        self._runs: dict[str, tuple[datetime, str | None]] = {}

    def is_repeated(self, proof: Proof, run: str | None, now: datetime) -> bool:
        """Returns whether another run of an activity began with the same message."""
        # A message that is older than this is refused anyway.
        self._runs = {
            nonce: begun for nonce, begun in self._runs.items() if begun[0] > now - 2 * SKEW
        }
        return self._runs.setdefault(proof.nonce, (max(now, proof.at), run))[1] != run


class _Activities(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, key: MessageKey, seen: _Seen) -> None:
        super().__init__(next)
        self._key = key
        self._seen = seen

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        # A local activity never leaves this process.
        if not info.is_local and (problem := self._problem(input, info)):
            what = f"activity {info.activity_type} {info.activity_id}"
            logger.warning("%s is refused: %s", what, problem)
            raise _refused(what, problem)
        return await super().execute_activity(input)

    def _problem(self, received: Sent, info: activity.Info) -> str:
        """Returns why the start of an activity is refused; empty: it is not."""
        proof, content = proof_in(received.headers, Kind.ACTIVITY), _taken(received).payloads
        problem = self._key.problem(_message(info, content), proof)
        if proof is None or problem:
            return problem
        if info.workflow_run_id is not None:
            ours = proof.run == info.workflow_run_id
            problem = "its proof was not made by the workflow run that the activity belongs to"
            return "" if ours else problem
        if problem := _too_old(proof, info.scheduled_time):
            return problem
        repeated = self._seen.is_repeated(proof, info.activity_run_id, info.started_time)
        return _COPY if repeated else ""


def _message(info: activity.Info, content: Any) -> Message:
    if info.workflow_id is not None:
        return to_workflow(Kind.ACTIVITY, info.activity_type, info.workflow_id, content)
    return to_activity(info.activity_type, info.task_queue, info.activity_id, content)
