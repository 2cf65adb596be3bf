"""Queries, updates and signals of a cluster's workflows, and the conversion of RPC errors to errors
for users.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from iris.client.access.selection import CHECK_INTERVAL
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.connection import RPC_TIMEOUT
from iris.client.connect.encryption import payload_keys
from iris.client.connect.refusals import refused
from iris.model import names
from iris.model.errors import Rejected, Unreachable
from iris.scheduling.placement.refusals import Refusal

if TYPE_CHECKING:
    from iris.messages.scheduler import Message

logger = logging.getLogger(__name__)
T = TypeVar("T")
#: The status codes of a service that does not answer. RESOURCE_EXHAUSTED means too many requests,
#: or a second query of a workflow before its worker has answered the first. If the connection
#: breaks during a call, gRPC reports UNKNOWN, INTERNAL or CANCELLED.
_GONE = (
    RPCStatusCode.UNKNOWN,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.RESOURCE_EXHAUSTED,
)


def outdated(error: RPCError, record: ClusterRecord) -> Rejected | None:
    """Returns the error for the user if the cluster does not know a search attribute of this
    version; None for any other RPC error.
    """
    if (
        error.status is not RPCStatusCode.INVALID_ARGUMENT
        or "search attribute" not in error.message
    ):
        return None
    remedy = (
        f"update its control plane with `iris cluster restart {record.name}`, or leave the options"
        " out that are new"
    )
    return Rejected(
        f"cluster {record.name} has an older version of Iris than this client: {error.message};"
        f" {remedy}"
    )


#: Stands for a memo that this client cannot read, because the client does not have the encryption
#: key, or because another program wrote the memo.
UNREADABLE_MEMO: Mapping[str, Any] = MappingProxyType({})


async def memo_of(execution: WorkflowExecution) -> Mapping[str, Any]:
    """Returns the workflow's memo. Returns `UNREADABLE_MEMO` if this client cannot read it, so that
    a list continues with the next workflow.
    """
    try:
        return await execution.memo()
    except Exception as error:  # a codec may raise anything
        logger.debug("the memo of workflow %s cannot be read: %s", execution.id, error)
        return UNREADABLE_MEMO


#: A refusal that comes later than this after the last one begins a new series (`lasting_refusal`).
#: A call that is repeated every second is refused again sooner, as long as the cause lasts.
_SOON_AGAIN = timedelta(minutes=1)


class NotStarted(Unreachable):
    """The workflow to which a query, an update or a signal was sent does not exist."""


class Connection:
    """A Temporal client and its cluster. All parts of an `AsyncIrisClient` share one connection."""

    def __init__(self, client: Client, record: ClusterRecord) -> None:
        self.client = client
        self.record = record
        self._keys_checked = False
        #: The times of the first and of the last refusal in the present series of refusals of this
        #: client by the service, in seconds of the monotonic clock; None if there is no series. A
        #: pause longer than `_SOON_AGAIN`, or another error, ends a series (`lasting_refusal`).
        self._refused: tuple[float, float] | None = None
        #: For each query of a list of jobs, the start of the first time window that was read. The
        #: next list with the same query begins with this window (`iris.client.jobs.lists`), unless
        #: the window now contains too few or too many jobs.
        self.windows: dict[str, datetime] = {}
        self.scheduler = names.scheduler_workflow(record.name)
        self.autoscaler = names.autoscaler_workflow(record.name)

    def page(self, workflow_id: str, run_id: str | None = None) -> str:
        """Returns the address of the workflow's page in Temporal's Web UI: of this run, or of the
        latest run. Returns an empty text if the cluster has no Web UI.
        """
        if not self.record.ui:
            return ""
        run = f"/{run_id}" if run_id else ""
        workflow = f"workflows/{quote(workflow_id, safe='')}{run}"
        return f"{self.record.ui}/namespaces/{self.record.namespace}/{workflow}"

    def dashboard_page(self, job: str) -> str:
        """Returns the address of the job's page in the dashboard. Returns an empty text if the
        cluster has no dashboard that this machine reaches.
        """
        address = self.record.dashboard
        return f"{address}/jobs/{quote(job)}" if address else ""

    def dashboard_link(self, job: str) -> str | None:
        """Returns the details of the job's workflow for Temporal's Web UI, as Markdown: a link to
        the job's page in the dashboard. Returns None if the cluster has no dashboard, or one that
        only a tunnel of this machine reaches: others could not follow the link.
        """
        end = self.record.end
        if not self.record.dashboard or (end is not None and end.dashboard_port):
            return None
        return f"[This job in the dashboard]({self.dashboard_page(job)})"

    def workflow(self, workflow_id: str, run_id: str | None = None) -> WorkflowHandle[Any, Any]:
        """Returns a handle of the workflow's latest run, or of the run with this id."""
        return self.client.get_workflow_handle(workflow_id, run_id=run_id)

    def list_query(self, kind: str) -> str:
        """Returns the visibility query that lists the cluster's own workflows of this kind. Other
        workflows may have the same search attributes.
        """
        return names.own_workflows(self.record.name, kind)

    @contextlib.contextmanager
    def rpc_errors(self) -> Iterator[None]:
        """Converts RPC errors: to `Unreachable` if the service does not answer, and to `Rejected`
        if it refuses this client.
        """
        try:
            yield
        except RPCError as error:
            if (refusal := refused(error, self.record.address)) is not None:
                raise refusal from None
            if (outdating := outdated(error, self.record)) is not None:
                raise outdating from None
            if error.status in _GONE:
                raise self._unreachable(error) from None
            raise
        except asyncio.CancelledError as error:
            # The SDK raises it, too, if a wait for the result of an activity ends with an RPC error
            # of the status CANCELLED. That is a closed connection: nobody has cancelled the wait.
            if not isinstance(error.__cause__, RPCError):
                raise
            raise self._unreachable(error.__cause__) from None

    def lasting_refusal(self, error: RPCError) -> Rejected | None:
        """Returns the error for the user if the service refuses this client, for a call that is
        repeated while the service does not answer; None to repeat it.

        On a machine that was asleep, the token may have expired: it is renewed within
        `CHECK_INTERVAL`. A call that succeeds is not noticed here, so a refusal long after the last
        one is the first again.
        """
        refusal = refused(error, self.record.address)
        if refusal is None:
            self._refused = None
            return None
        now = time.monotonic()
        patience = 2 * CHECK_INTERVAL.total_seconds()
        first, last = self._refused or (now, now)
        if now - last > _SOON_AGAIN.total_seconds():
            first = now
        self._refused = first, now
        return refusal if now - first > patience else None

    def _unreachable(self, error: RPCError) -> Unreachable:
        cluster = self.record
        return Unreachable(
            f"cluster {cluster.name} at {cluster.address} does not answer: {error.message}"
        )

    def signal_errors(self, receiver: str) -> AbstractContextManager[None]:
        """Converts RPC errors of a signal to a workflow that ran a moment ago.

        Raises:
            Rejected: the workflow has ended meanwhile.
            Unreachable: the service does not answer.
        """
        return self._rejected(RPCStatusCode.NOT_FOUND, f"{receiver} has just ended")

    def activity_start(self) -> AbstractContextManager[None]:
        """Converts RPC errors of the start of an activity without a workflow.

        Raises:
            Rejected: the service cannot start activities without a workflow.
            Unreachable: the service does not answer.
        """
        return self._rejected(
            RPCStatusCode.UNIMPLEMENTED,
            f"the Temporal service at {self.record.address} cannot start an activity without a"
            " workflow; use version 1.32 or later, or enable its setting"
            " activity.enableStandalone",
        )

    @contextlib.contextmanager
    def _rejected(self, status: RPCStatusCode, reason: str) -> Iterator[None]:
        """Converts RPC errors with this status to `Rejected` with the reason, and other RPC errors
        as `rpc_errors` does.
        """
        with self.rpc_errors():
            try:
                yield
            except RPCError as error:
                if error.status is not status:
                    raise
                raise Rejected(reason) from None

    async def check_keys(self) -> None:
        """Checks that the control plane can decrypt what this client encrypts. Does nothing without
        payload keys.

        Clients call it before they start or signal a workflow, because the control plane ignores
        unreadable messages, and a signal has no answer. If no control plane answers, the check
        passes: messages then wait for the control plane.

        Raises:
            Rejected: the control plane cannot read what this client encrypts.
        """
        if self._keys_checked or (keys := payload_keys()) is None:
            return
        with contextlib.suppress(RPCError):
            try:
                await self.workflow(self.scheduler).query(
                    "explain", args=[""], result_type=Refusal, rpc_timeout=RPC_TIMEOUT
                )
            except (WorkflowQueryFailedError, WorkflowQueryRejectedError):
                raise Rejected(
                    f"the control plane of cluster {self.record.name} cannot decrypt with the key"
                    f" {keys.current!r} of {keys.source}; start the control plane with this"
                    f" file, or unset {names.ENV_PAYLOAD_KEYS} for a cluster without keys"
                ) from None
        self._keys_checked = True

    async def query(
        self,
        handle: WorkflowHandle[Any, Any] | str,
        query: str,
        result: type[T],
        argument: Any = None,
    ) -> T:
        """Queries a workflow.

        Args:
            handle: the workflow, or its id.

        Raises:
            NotStarted: there is no such workflow.
            Unreachable: no control plane answers.
        """
        handle = self.workflow(handle) if isinstance(handle, str) else handle
        arguments = [] if argument is None else [argument]
        with self.rpc_errors():
            try:
                answer: T = await handle.query(
                    query, args=arguments, result_type=result, rpc_timeout=RPC_TIMEOUT
                )
                return answer
            except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
                raise self._silent("could not answer", str(error)) from None
            except RPCError as error:
                # The service answers, but the control plane has not answered in time. The service
                # reports DEADLINE_EXCEEDED, and the client's own gRPC reports CANCELLED.
                if error.status in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
                    raise self._silent(
                        f"has not answered within {RPC_TIMEOUT.total_seconds():.0f} s"
                    ) from None
                # The control plane has not polled lately, or fails.
                if error.status is RPCStatusCode.FAILED_PRECONDITION:
                    raise self._silent("cannot answer queries", error.message) from None
                # As many queries wait for it as the service keeps.
                if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
                    problem = "too many queries wait for its answer"
                    raise self._silent("is busy", problem, lasts=" for minutes") from None
                raise self._not_started(error) from None

    async def signal_autoscaler(self, signal: str, *arguments: Any) -> None:
        """Signals the autoscaler.

        Raises:
            Unreachable: the service does not answer, or the cluster has no autoscaler.
        """
        await self.check_keys()
        with self.rpc_errors():
            try:
                await self.workflow(self.autoscaler).signal(signal, args=arguments)
            except RPCError as error:
                raise self._not_started(error) from None

    async def update_scheduler(self, message: "Message") -> None:
        """Sends one message to the scheduler and waits for its answer.

        Raises:
            Rejected: the scheduler refuses the message; the error has its reason.
            Unreachable: no control plane answers.
        """
        # Imported here, because it imports the scheduler's state, which few commands need.
        from iris.messages.scheduler import Answers, Batch

        update = self.workflow(self.scheduler).execute_update(
            "exchange", Batch(messages=(message,)), result_type=Answers
        )
        with self.rpc_errors():
            try:
                reply = await asyncio.wait_for(update, RPC_TIMEOUT.total_seconds())
            except (
                TimeoutError,
                WorkflowUpdateFailedError,
                WorkflowUpdateRPCTimeoutOrCancelledError,
            ) as error:
                raise self._silent("does not answer", str(error)) from None
            except RPCError as error:
                raise self._not_started(error) from None
        if reply.answers[0].problem:
            raise Rejected(reply.answers[0].problem)

    async def is_running(self, workflow_id: str) -> bool:
        """Returns whether the workflow exists and has not ended. The answer is current; lists of
        the service are some seconds old.

        Raises:
            Unreachable: the service does not answer.
        """
        with self.rpc_errors():
            try:
                return (
                    await self.workflow(workflow_id).describe()
                ).status is WorkflowExecutionStatus.RUNNING
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return False
                raise

    async def pollers(self, queue: str, *, activities: bool = False) -> set[str]:
        """Returns the identities of the workers that poll the task queue for workflow tasks, or for
        activities.

        Raises:
            Unreachable: the service does not answer.
        """
        kind = (
            TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
            if activities
            else TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
        )
        request = DescribeTaskQueueRequest(
            namespace=self.client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
        )
        with self.rpc_errors():
            described = await self.client.workflow_service.describe_task_queue(
                request, timeout=RPC_TIMEOUT
            )
        return {poller.identity for poller in described.pollers}

    def _not_started(self, error: RPCError) -> Unreachable | RPCError:
        """Converts NOT_FOUND to `NotStarted`. Returns any other error unchanged."""
        if error.status is not RPCStatusCode.NOT_FOUND:
            return error
        return NotStarted(self._silence("has not started", error.message))

    def _silent(self, problem: str, details: str = "", lasts: str = "") -> Unreachable:
        """Returns the error about a control plane that does not answer."""
        return Unreachable(self._silence(problem, details, lasts))

    def _silence(self, problem: str, details: str, lasts: str = "") -> str:
        """Returns the message that the control plane does not answer, with the remedy."""
        record = self.record
        remedy = f"try again, and if this lasts{lasts}, run `iris cluster restart {record.name}`"
        remedy += "" if record.in_use() else " where the cluster was started"
        return (
            f"the control plane of cluster {record.name} {problem}{details and f': {details}'};"
            f" {remedy}"
        )
