"""A collector of OpenTelemetry: an HTTP server that takes spans by OTLP and keeps them."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collected(NamedTuple):
    """A span that was received."""

    name: str
    trace: str
    id: str
    #: The id of the parent; empty for the first span of a trace.
    parent: str
    service: str
    start: int
    end: int
    attributes: dict[str, str | int]
    error: str


class Collector:
    """The spans that were received so far."""

    def __init__(self, endpoint: str) -> None:
        #: The variables with which a process exports to this collector, soon.
        self.variables = {
            "IRIS_TRACING": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }
        self._spans: dict[str, Collected] = {}

    def add(self, data: bytes) -> None:
        """Takes the body of a request. A span that comes again replaces the first one."""
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            service = next(
                each.value.string_value
                for each in resource.resource.attributes
                if each.key == "service.name"
            )
            for span in (each for scope in resource.scope_spans for each in scope.spans):
                self._spans[span.span_id.hex()] = Collected(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    service,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    {
                        each.key: each.value.string_value or each.value.int_value
                        for each in span.attributes
                    },
                    span.status.message,
                )

    def spans(self, job: str = "") -> list[Collected]:
        """The spans in the order of their starts.

        Args:
            job: only those of this job.
        """
        found = [
            each for each in [*self._spans.values()] if job in ("", each.attributes["iris.job"])
        ]
        return sorted(found, key=lambda span: (span.start, -span.end))


@contextmanager
def a_collector() -> Iterator[Collector]:
    """A collector that listens at a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            packed = self.headers.get("Content-Encoding") == "gzip"
            collector.add(gzip.decompress(body) if packed else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield collector
        server.shutdown()
        thread.join()
