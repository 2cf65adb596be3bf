"""Exports finished spans by OTLP, if the variable `IRIS_TRACING` is 1.

OpenTelemetry's own variables say where to: `OTEL_EXPORTER_OTLP_ENDPOINT` and so on.
"""

import atexit
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from iris.model import names
from iris.model.errors import Rejected
from iris.tracing.context import TraceContext

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

logger = logging.getLogger(__name__)

#: How long the end of a process waits for a collector that does not answer.
FLUSH_TIMEOUT = timedelta(seconds=2)
#: How long the log is silent after a message of the exporter. It logs each of its tries.
SILENCE = timedelta(minutes=10)


@dataclass(frozen=True)
class Span:
    """A finished span."""

    name: str
    context: TraceContext
    parent: TraceContext | None
    start: datetime
    end: datetime
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    #: Why what the span shows has failed; empty if it has not.
    error: str = ""


class _Seldom(logging.Filter):
    """Passes each kind of message once in `SILENCE`."""

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


class _Exporter:
    """Converts spans to those of OpenTelemetry, and exports them in batches.

    Args:
        service: the name of this kind of process in traces.
    """

    def __init__(self, service: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

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

    def _converted(self, span: Span) -> "ReadableSpan":
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace.status import Status, StatusCode

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


def _span_context(context: TraceContext) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT),
    )


def _nanoseconds(time: datetime) -> int:
    return max(0, round(time.timestamp() * 1e6)) * 1_000


_exporter: _Exporter | None = None


def wanted() -> bool:
    """Returns whether this process is to export spans."""
    return os.environ.get(names.ENV_TRACING) == "1"


def start(service: str) -> None:
    """Starts the export of spans, if it is wanted and has not been started.

    Args:
        service: the name of this kind of process in traces.

    Raises:
        Rejected: OpenTelemetry is not installed, or refuses the value of one of its variables.
    """
    global _exporter
    if _exporter is not None or not wanted():
        return
    try:
        _exporter = _Exporter(service)
    except ImportError:
        raise Rejected(
            f"{names.ENV_TRACING}=1 needs OpenTelemetry; install it with: pip install"
            " 'iris-temporal[tracing]', or unset the variable"
        ) from None
    except ValueError as error:
        raise Rejected(f"a variable OTEL_… has a wrong value: {error}") from None


def emit(span: Span) -> None:
    """Exports a span soon, if the export has been started. Never raises: workflows call it."""
    if _exporter is None:
        return
    try:
        _exporter.emit(span)
    except Exception:
        logger.warning("a span cannot be exported", exc_info=True)


def flush() -> None:
    """Exports the spans that were emitted, for a process that ends at once."""
    if _exporter is not None:
        _exporter.flush()
