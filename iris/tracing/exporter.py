"""Exports spans with OpenTelemetry. Only a process that exports some imports this module."""

import atexit
import logging
import os
import threading
from datetime import datetime, timedelta

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from iris.tracing.context import Span, TraceContext

#: How long a process that ends waits for the collector of spans to answer.
FLUSH_TIMEOUT = timedelta(seconds=2)
#: The minimum time between two log messages of the same kind from the exporter, which would
#: otherwise log each failed attempt.
SILENCE = timedelta(minutes=10)


class _Seldom(logging.Filter):
    """A log filter that passes each kind of message at most once in `SILENCE`."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See base class."""
        kind = str(record.msg)  # without the arguments
        last = self._passed.get(kind)
        if last is not None and record.created - last < SILENCE.total_seconds():
            return False
        self._passed[kind] = record.created
        return True


class Exporter:
    """Converts Iris's spans to OpenTelemetry spans, and exports them in batches.

    Args:
        service: the name of this kind of process in traces.
    """

    def __init__(self, service: str) -> None:
        name = os.environ.get("OTEL_SERVICE_NAME") or service
        self._resource = Resource.create({"service.name": name})
        self._scope = InstrumentationScope("iris")
        logging.getLogger(OTLPSpanExporter.__module__).addFilter(_Seldom())
        self._processor = BatchSpanProcessor(OTLPSpanExporter())
        self._asked, self._flushed = threading.Event(), threading.Event()
        # From Python 3.12 on, no thread can be started at the end of a process.
        threading.Thread(target=self._flush_when_asked, daemon=True).start()
        atexit.register(self.flush)

    def emit(self, span: Span) -> None:
        """Exports a span soon. Never blocks."""
        self._processor.on_end(self._converted(span))

    def flush(self) -> None:
        """Exports all spans, or gives up after `FLUSH_TIMEOUT`."""
        self._flushed.clear()
        self._asked.set()
        self._flushed.wait(FLUSH_TIMEOUT.total_seconds())

    def _flush_when_asked(self) -> None:
        """Flushes in a thread of its own: OpenTelemetry's method has no time limit."""
        while True:
            self._asked.wait()
            self._asked.clear()
            self._processor.force_flush()
            self._flushed.set()

    def _converted(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_span_context(span.context),
            parent=_span_context(span.parent) if span.parent is not None else None,
            resource=self._resource,
            attributes=dict(span.attributes),
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(max(span.start, span.end)),  # clocks of hosts may differ
            instrumentation_scope=self._scope,
        )


def _span_context(context: TraceContext) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT),
    )


def _nanoseconds(time: datetime) -> int:
    return max(0, round(time.timestamp() * 1e6)) * 1_000
