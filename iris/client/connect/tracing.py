"""Sends the trace of a job with its submission, and exports the span of the submission.

It is loaded only if tracing is on here, or in a job that has a trace.
"""

import os
import secrets
from datetime import UTC, datetime
from typing import Any

from temporalio.client import Interceptor, OutboundInterceptor, StartWorkflowInput, WorkflowHandle

from iris.model import names
from iris.tracing import spans
from iris.tracing.context import HEADER, Span, TraceContext, header


class SubmissionTracing(Interceptor):
    """A client's interceptor that starts a trace for each job that the client starts.

    If the environment variable `TRACEPARENT` is set, the job joins that trace instead. A program of
        a job or a CI pipeline sets it.
    """

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """See base class."""
        return _Outbound(next)


class _Outbound(OutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        parent = TraceContext.parse(os.environ.get(names.ENV_TRACEPARENT))
        if input.workflow != names.WORKFLOW_TYPES[names.KIND_JOB] or not (parent or spans.wanted()):
            return await super().start_workflow(input)
        context = parent
        if spans.wanted():
            spans.start("iris-client")
            trace_id = parent.trace_id if parent is not None else secrets.token_hex(16)
            sampled = parent is None or parent.sampled
            context = TraceContext(trace_id, secrets.token_hex(8), sampled)
        input.headers = {**input.headers, HEADER: header({"traceparent": str(context)})}
        began, error = datetime.now(UTC), ""
        try:
            return await super().start_workflow(input)
        except BaseException as failed:
            error = type(failed).__name__
            raise
        finally:
            if context is not None and context is not parent:
                attributes = {"iris.job": names.job_of_workflow(input.id)}
                spans.emit(
                    Span("submit", context, parent, began, datetime.now(UTC), attributes, error)
                )
