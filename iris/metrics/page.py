"""Stores the values of metrics with `prometheus_client`, and serves them at `/metrics` in
Prometheus' text format.

Only a process that serves metrics imports this module: the libraries take 0.08 s.
"""

import contextlib
import http.client
import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import prometheus_client
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from iris.metrics.kinds import Counter, Gauge, Histogram, Metric
from iris.model.ip_address import host_of

logger = logging.getLogger(__name__)
# Without the time of creation beside each counter, which Prometheus would store as a metric.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

#: The path of the page with the metrics. The server has no other page.
PATH = "/metrics"
#: How long a client may take to send its request, in seconds. Temporal's SDK has the same time to
#: answer a request for its own metrics.
TIMEOUT = 5.0
#: The maximum time until the server notices that it must end, in seconds.
STOP_DELAY = 0.1


class _Gauges(Collector):
    """Gives the Prometheus library the present values of the gauges."""

    def __init__(self, gauges: Sequence[Gauge]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """See base class."""
        for gauge in self._gauges:
            family = GaugeMetricFamily(gauge.name, gauge.help, labels=gauge.labels)
            for labels, value in gauge.values.items():
                family.add_metric(labels, value)
            yield family


@contextlib.contextmanager
def storing(metrics: Sequence[Metric]) -> Iterator[prometheus_client.CollectorRegistry]:
    """Stores the values of these metrics, from zero on, for as long as the block lasts."""
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.ProcessCollector(registry=registry)
    registry.register(_Gauges([each for each in metrics if isinstance(each, Gauge)]))
    for each in metrics:
        if isinstance(each, Counter):
            each.stored = prometheus_client.Counter(
                each.name, each.help, each.labels, registry=registry
            )
        elif isinstance(each, Histogram):
            each.stored = prometheus_client.Histogram(
                each.name, each.help, each.labels, registry=registry, buckets=each.buckets
            )
    try:
        yield registry
    finally:
        for each in metrics:
            if isinstance(each, Counter | Histogram):
                each.stored = None
            elif isinstance(each, Gauge):
                each.clear()


@contextlib.contextmanager
def serving(
    registry: prometheus_client.CollectorRegistry, address: str, port: int, sdk: str
) -> Iterator[None]:
    """Serves the metrics of the registry for as long as the block lasts.

    Args:
        sdk: the `host:port` at which Temporal's SDK serves its metrics, which the page copies.

    Raises:
        OSError: the address or the port cannot be used.
    """
    server = _Server(
        address, port, lambda: prometheus_client.generate_latest(registry) + _read(sdk)
    )
    thread = threading.Thread(target=server.serve_forever, args=(STOP_DELAY,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    """The HTTP server of the page. It answers each request in a thread of its own, so that a slow
    client does not delay others.
    """

    daemon_threads = True

    def __init__(self, address: str, port: int, content: Callable[[], bytes]) -> None:
        own = ipaddress.ip_address(address)
        self.address_family = socket.AF_INET6 if own.version == 6 else socket.AF_INET
        self.local_only = own.is_loopback
        self.content = content
        super().__init__((address, port), _Handler)

    def server_bind(self) -> None:
        """Binds the port, and does not look up the machine's name as the base class does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "iris", ""
    timeout = TIMEOUT

    def do_GET(self) -> None:
        """Answers with the metrics."""
        if self.server.local_only and not _is_local(self.headers.get("Host", "")):
            # A web page of another site whose name resolves to this machine (DNS rebinding).
            self.send_error(403, "use 127.0.0.1 or localhost")
        elif self.path.partition("?")[0] != PATH:
            self.send_error(404, f"the only path is {PATH}")
        else:
            content = self.server.content()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Logs a request only for a person who debugs the page."""
        logger.debug(format, *args)


def _is_local(header: str) -> bool:
    """Returns whether a `Host` header names this machine by its loopback address or localhost."""
    name = host_of(header)
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _read(address: str) -> bytes:
    """Returns the metrics of Temporal's SDK; nothing if it does not answer."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT)
    try:
        connection.request("GET", PATH)
        answer = connection.getresponse()
        return answer.read() if answer.status == http.HTTPStatus.OK else b""
    except (OSError, http.client.HTTPException) as error:
        logger.warning("the metrics of Temporal's SDK are missing: %s", error)
        return b""
    finally:
        connection.close()
