"""Compares what messages claim to be for with what they ask of a worker. Clients do not import this
module, because `temporalio.worker` takes a tenth of a second to import.

Codes bind a message to its receiver (`iris.client.connect.authentication`). These checks also
refuse a message in the place of another one, and a message that was sent before.
"""

import logging
from datetime import datetime
from typing import Any, ClassVar, NoReturn

from temporalio import activity, workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ContinueAsNewInput,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    HandleQueryInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    SignalChildWorkflowInput,
    SignalExternalWorkflowInput,
    StartChildWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from iris.client.connect.authentication import (
    Message,
    Sender,
    claim_of,
    claim_of_start,
    receiver_of_activity,
    receiver_of_workflow,
    schedule_of_run,
)
from iris.client.connect.connection import SharedConverter
from iris.model.message_keys import ACTIVITY, SKEW, START, Claim, MessageKey, named

logger = logging.getLogger(__name__)

#: The prefix of the names of Temporal's own queries. They have no arguments, and the Web UI sends
#: them.
_OF_TEMPORAL = "__"


class ClaimChecks(Interceptor):
    """A worker's interceptor that refuses messages without a fitting claim, and adds claims to what
    workflows send.
    """

    def __init__(self, key: MessageKey) -> None:
        self._key = key
        self._starts = _Starts()

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor]:
        """See base class."""
        return type("_Keyed", (_Inbound,), {"key": self._key})

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See base class."""
        return _Activities(next, self._key, self._starts)


def claim_checks(key: MessageKey | None) -> list[Interceptor]:
    """Returns the interceptors of a worker with this key."""
    return [] if key is None else [ClaimChecks(key)]


def _problem(claim: Claim | None, action: str, earliest: datetime | None) -> str:
    """Returns why a message is refused; empty: it is not.

    Args:
        earliest: an earlier message was sent to another run; None: the time does not matter.
    """
    if claim is None:
        return "it is not authenticated with the cluster's key"
    if claim.action != action:
        return f"it was sent for something else ({claim.action})"
    if earliest is not None and claim.at < earliest - SKEW:
        return f"it was sent at {claim.at:%Y-%m-%d %H:%M:%S} UTC, before the start of its receiver"
    return ""


def _refused(action: str, problem: str) -> ApplicationError:
    return ApplicationError(f"{action} is refused: {problem}", type="Refused", non_retryable=True)


class _Inbound(WorkflowInboundInterceptor):
    """Refuses messages without a fitting claim, and messages that this run has had before."""

    key: ClassVar[MessageKey]

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self._nonces: set[str] = set()
        super().init(_Outbound(outbound, Sender(SharedConverter(), self.key)))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        info = workflow.info()
        # The arguments of a schedule are as old as the schedule.
        is_scheduled = schedule_of_run(info.workflow_id) != info.workflow_id
        earliest = None if is_scheduled else info.workflow_start_time
        if problem := _problem(claim_of_start(input), START, earliest):
            raise _refused(f"the start of {info.workflow_id}", problem)
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        action = named("signal", input.signal)
        if problem := self._problem_once(action, input):
            # An error would fail the workflow.
            if not workflow.unsafe.is_replaying():
                logger.warning("%s is ignored: %s", self._described(action), problem)
            return
        await super().handle_signal(input)

    async def handle_query(self, input: HandleQueryInput) -> Any:
        action = named("query", input.query)
        if not input.query.startswith(_OF_TEMPORAL) and (
            problem := _problem(self._claim_of(input), action, None)
        ):
            raise _refused(self._described(action), problem)
        return await super().handle_query(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        action = named("update", input.update)
        if problem := self._problem_once(action, input):
            raise _refused(self._described(action), problem)
        return await super().handle_update_handler(input)

    def _claim_of(self, message: Message) -> Claim | None:
        return claim_of(message, self.key, receiver_of_workflow(workflow.info().workflow_id))

    def _problem_once(self, action: str, message: Message) -> str:
        """Returns why a message that changes something is refused; empty: it is not."""
        claim = self._claim_of(message)
        problem = _problem(claim, action, workflow.info().workflow_start_time)
        if problem or claim is None:
            return problem
        if claim.nonce in self._nonces:
            return "it was sent before"
        self._nonces.add(claim.nonce)
        return ""

    def _described(self, action: str) -> str:
        return f"{action} to {workflow.info().workflow_id}"


class _Outbound(WorkflowOutboundInterceptor):
    """Adds claims to what a workflow sends to other workflows."""

    def __init__(self, next: WorkflowOutboundInterceptor, sender: Sender) -> None:
        super().__init__(next)
        self._sender = sender
        self._sent = 0

    async def start_child_workflow(
        self, input: StartChildWorkflowInput
    ) -> workflow.ChildWorkflowHandle[Any, Any]:
        self._claim(input, START, input.id)
        return await super().start_child_workflow(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        self._claim(input, START, workflow.info().workflow_id)
        super().continue_as_new(input)

    async def signal_child_workflow(self, input: SignalChildWorkflowInput) -> None:
        self._claim(input, named("signal", input.signal), input.child_workflow_id)
        await super().signal_child_workflow(input)

    async def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> None:
        self._claim(input, named("signal", input.signal), input.workflow_id)
        await super().signal_external_workflow(input)

    def _claim(self, message: Message, action: str, receiver: str) -> None:
        # No random number: a replay must find the same commands, also without a key.
        self._sent += 1
        claim = Claim(action, workflow.now(), f"{workflow.info().run_id}/{self._sent}")
        self._sender.claim(message, claim, receiver_of_workflow(receiver))


class _Starts:
    """The activities without a workflow that began here lately."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[datetime, str | None]] = {}

    def is_repeated(self, claim: Claim, run: str | None, now: datetime) -> bool:
        """Returns whether another run of an activity began with the same message."""
        # A message that is older than this is refused anyway.
        self._runs = {
            nonce: begun for nonce, begun in self._runs.items() if begun[0] > now - 2 * SKEW
        }
        return self._runs.setdefault(claim.nonce, (max(now, claim.at), run))[1] != run


class _Activities(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, key: MessageKey, starts: _Starts) -> None:
        super().__init__(next)
        self._key = key
        self._starts = starts

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        # The code of an activity that a workflow starts names the workflow.
        if info.workflow_id is None and (problem := self._problem(input, info)):
            logger.warning("activity %s is refused: %s", info.activity_id, problem)
            raise _refused(f"activity {info.activity_id}", problem)
        return await super().execute_activity(input)

    def _problem(self, input: ExecuteActivityInput, info: activity.Info) -> str:
        """Returns why the start of an activity is refused; empty: it is not."""
        receiver = receiver_of_activity("", info.activity_id, info.activity_type, info.task_queue)
        claim = claim_of(input, self._key, receiver)
        problem = _problem(claim, ACTIVITY, info.scheduled_time)
        if problem or claim is None:
            return problem
        repeated = self._starts.is_repeated(claim, info.activity_run_id, info.started_time)
        return "it was sent before" if repeated else ""
