"""Exports the spans of jobs: the job and its tasks, each wait for a placement, and each attempt
with its set-up and its program.

An interceptor of the control plane sees all of them: the outcome of an attempt has the times of its
program. So hosts export nothing. The interceptor adds headers to commands and nothing else: a
history replays with and without it. Spans are exported when they end, and not in replays.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, NoReturn

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.exceptions import FailureError
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    Interceptor,
    StartActivityInput,
    StartChildWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from iris.messages.task import RunTask
from iris.model import names
from iris.model.job.attempts import TaskOutcome
from iris.model.states import TaskState
from iris.tracing import spans
from iris.tracing.context import HEADER, Span, TraceContext, decode, header

#: The names of the spans of workflows, by the type of the workflow.
_WORKFLOWS = {
    names.WORKFLOW_TYPES[names.KIND_JOB]: "job",
    names.WORKFLOW_TYPES[names.KIND_TASK]: "task",
    "ArrayPartWorkflow": "array part",
}
_ATTEMPT = "run_task"


class JobTracing(Interceptor):
    """Makes the spans of jobs, tasks and attempts, as an interceptor of the worker that runs their
    workflows.
    """

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor]:
        """See base class."""
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self._trace = _Trace()
        super().init(_Outbound(outbound, self._trace))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        if workflow.info().workflow_type not in _WORKFLOWS:
            return await super().execute_workflow(input)
        self._trace.begin(input.headers)
        try:
            result = await super().execute_workflow(input)
        except FailureError as error:
            self._trace.end(str(error) or type(error).__name__)
            raise
        except asyncio.CancelledError:
            # Also raised when the SDK removes the workflow from its cache: that counts as a replay.
            self._trace.end("cancelled")
            raise
        self._trace.end("")
        return result


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, trace: "_Trace") -> None:
        super().__init__(next)
        self._trace = trace

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        if input.activity != _ATTEMPT or not self._trace.begun:
            return super().start_activity(input)
        attempt = self._trace.attempt(input.args[0], input.task_queue or "")
        input.headers = {**input.headers, HEADER: header({"traceparent": str(attempt.program)})}
        handle = super().start_activity(input)
        handle.add_done_callback(partial(self._trace.ended, attempt))
        return handle

    async def start_child_workflow(
        self, input: StartChildWorkflowInput
    ) -> workflow.ChildWorkflowHandle[Any, Any]:
        if input.workflow in _WORKFLOWS and self._trace.begun:
            own = header({"traceparent": str(self._trace.context)})
            input.headers = {**input.headers, HEADER: own}
        return await super().start_child_workflow(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        if self._trace.begun:
            input.headers = {**input.headers, HEADER: header(self._trace.carried())}
        super().continue_as_new(input)


class _Attempt:
    """The spans of an attempt that runs."""

    def __init__(self, parent: TraceContext, task: RunTask, queue: str) -> None:
        self.started = workflow.now()
        self.context = parent.child(f"attempt/{task.key}")
        self.program = self.context.child(f"program/{task.key}")
        self.set_up = self.context.child(f"set-up/{task.key}")
        self.attributes: dict[str, str | int] = {
            "iris.job": task.job,
            "iris.task": task.index,
            "iris.attempt": task.attempt,
            "iris.host": queue.rpartition("/")[2],
        }


class _Trace:
    """The trace of one run of a workflow."""

    def __init__(self) -> None:
        self.begun = False
        #: The span of the workflow. All runs of the workflow have the same span.
        self.context = TraceContext.root("")
        self._parent: TraceContext | None = None
        self._started = self._waits_since = datetime.min.replace(tzinfo=UTC)
        self._running = 0

    def begin(self, headers: Mapping[str, Payload]) -> None:
        """Reads the header of the submission, of the parent workflow, or of the previous run."""
        info, found = workflow.info(), decode(headers[HEADER].data) if HEADER in headers else {}
        run = info.first_execution_run_id
        self._parent = TraceContext.parse(found.get("traceparent"))
        self.context = (
            self._parent.child(f"workflow/{run}") if self._parent else TraceContext.root(run)
        )
        self._started = _time(found.get("started")) or info.workflow_start_time
        self._waits_since = _time(found.get("waits_since")) or self._started
        self.begun = True

    def carried(self) -> dict[str, str]:
        """Returns the header for the next run."""
        return {
            "traceparent": str(self._parent or ""),
            "started": self._started.isoformat(),
            "waits_since": self._waits_since.isoformat(),
        }

    def attempt(self, task: RunTask, queue: str) -> _Attempt:
        """Returns the spans of an attempt that begins now. The first task of a gang ends the gang's
        wait.
        """
        attempt = _Attempt(self.context, task, queue)
        if self._running == 0:
            wait = self.context.child(f"wait/{task.placement_key}")
            _emit(
                Span(
                    "wait for placement",
                    wait,
                    self.context,
                    self._waits_since,
                    attempt.started,
                    {"iris.job": task.job, "iris.attempt": task.attempt},
                )
            )
        self._running += 1
        return attempt

    def ended(self, attempt: _Attempt, handle: "asyncio.Task[Any]") -> None:
        """Exports the spans of an attempt that has ended now."""
        self._running -= 1
        now = self._waits_since = workflow.now()
        if handle.cancelled():  # the workflow leaves the cache
            return
        failed, outcome = handle.exception(), None
        if failed is None and isinstance(handle.result(), TaskOutcome):
            outcome = handle.result()
        cause = failed.cause if isinstance(failed, FailureError) else None
        error = str(cause or failed or "")
        attributes = attempt.attributes
        if outcome is not None:
            error = "" if outcome.state is TaskState.SUCCEEDED else outcome.reason or outcome.state
            attributes = {**attributes, "iris.state": str(outcome.state)}
            if outcome.exit_code is not None:
                attributes["iris.exit_code"] = outcome.exit_code
            self._export_program(attempt, outcome, attributes, error, now)
        span = Span(
            "attempt", attempt.context, self.context, attempt.started, now, attributes, error
        )
        _emit(span)

    def _export_program(
        self,
        attempt: _Attempt,
        outcome: TaskOutcome,
        attributes: Mapping[str, str | int],
        error: str,
        now: datetime,
    ) -> None:
        started, over = outcome.started_at, outcome.finished_at or now
        set_up_failed = error if started is None else ""
        _emit(
            Span(
                "set-up",
                attempt.set_up,
                attempt.context,
                attempt.started,
                started or over,
                attempt.attributes,
                set_up_failed,
            )
        )
        if started is not None:
            program = (attempt.program, attempt.context, started, over, attributes, error)
            _emit(Span("program", *program))

    def end(self, error: str) -> None:
        """Exports the span of the workflow, which ends now."""
        info = workflow.info()
        job = names.job_of_workflow(info.workflow_id)
        attributes = {"iris.job": job, "temporal.workflow_id": info.workflow_id}
        name = _WORKFLOWS[info.workflow_type]
        _emit(
            Span(name, self.context, self._parent, self._started, workflow.now(), attributes, error)
        )


def _emit(span: Span) -> None:
    if not workflow.unsafe.is_replaying():
        spans.emit(span)


def _time(text: object) -> datetime | None:
    """Returns the time in a header; None if the text is none."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None
