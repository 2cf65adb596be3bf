"""Reads the trace of an attempt from its header, for the program's variable `TRACEPARENT`."""

from typing import Any

from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from iris.tracing.context import HEADER, TraceContext, decode, received


class TraceHeader(Interceptor):
    """The interceptor of an agent's worker. Without a header, it changes nothing."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See base class."""
        return _Inbound(next)


class _Inbound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        if (header := input.headers.get(HEADER)) is not None:
            received.set(str(TraceContext.parse(decode(header.data).get("traceparent")) or ""))
        return await super().execute_activity(input)
