"""The export of spans: off by default, by OTLP, and never in the way."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

from iris.model.errors import Rejected
from iris.tracing import spans
from iris.tracing.context import Span, TraceContext
from iris.tracing.exporter import FLUSH_TIMEOUT
from tests.builders import at
from tests.e2e.cluster import free_port
from tests.fakes.collector import Collector, a_collector

PARENT = TraceContext.root("job")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector, and a process that exports nothing yet."""
    monkeypatch.setattr(spans, "_exporter", None)
    with a_collector() as collector:
        for name, value in collector.variables.items():
            monkeypatch.setenv(name, value)
        yield collector


def run(script: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=env
    )


def a_span(name: str, *, sampled: bool = True, error: str = "", end: float = 60) -> Span:
    context = PARENT.child(name)._replace(sampled=sampled)
    return Span(name, context, PARENT, at(0), at(end), {"iris.job": "ada/a", "iris.task": 3}, error)


def test_a_span_has_its_ids_times_attributes_and_failure(collector: Collector) -> None:
    """What a span lacks, nobody can look for."""
    spans.start("iris-test")
    spans.emit(a_span("good"))
    spans.emit(a_span("bad", error="exited with code 3"))
    spans.emit(a_span("not sampled", sampled=False))
    spans.flush()
    good, bad = sorted(collector.spans(), key=lambda span: span.error)
    assert good[:5] == (
        "good",
        PARENT.trace_id,
        PARENT.child("good").span_id,
        PARENT.span_id,
        "iris-test",
    )
    assert (good.start, good.end) == (at(0).timestamp() * 1e9, at(60).timestamp() * 1e9)
    assert good.attributes == {"iris.job": "ada/a", "iris.task": 3}
    assert (bad.name, bad.error) == ("bad", "exited with code 3")


def test_a_span_does_not_end_before_it_begins(collector: Collector) -> None:
    """A host's clock may be behind the server's, and collectors refuse such spans."""
    spans.start("iris-test")
    spans.emit(a_span("behind", end=-5))
    spans.flush()
    (span,) = collector.spans()
    assert span.end == span.start


def test_without_the_variable_nothing_is_exported(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine may have a collector's address for the programs of its users."""
    monkeypatch.delenv("IRIS_TRACING")
    spans.start("iris-test")
    spans.emit(a_span("x"))
    spans.flush()
    assert collector.spans() == []


def test_a_collector_that_is_down_delays_the_end_of_a_process_by_seconds_and_is_logged_once(
    collector: Collector,
) -> None:
    """A trace is never worth a job, nor a minute of its user, nor a log full of retries. The process
    is another one, because its exporter goes on trying.
    """
    script = """
import os, time
from iris.tracing import spans
from tests.tracing.test_spans import a_span
spans.start("iris-test")
spans.emit(a_span("lost"))
began = time.monotonic()
spans.flush()
print(time.monotonic() - began, flush=True)
os._exit(0)
"""
    nowhere = f"http://127.0.0.1:{free_port()}"
    ran = run(script, {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": nowhere})
    assert float(ran.stdout) < 5 * FLUSH_TIMEOUT.total_seconds()
    assert ran.stderr.count("\n") == 1, ran.stderr  # it has tried twice


def test_a_variable_that_opentelemetry_refuses_is_an_error_of_its_user(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission and a control plane's start end with a message, not with a traceback."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
    with pytest.raises(Rejected, match="max_queue_size"):
        spans.start("iris-test")


@pytest.mark.long
def test_a_program_that_ends_has_exported_its_spans(collector: Collector) -> None:
    """A short one ends before the first batch is due."""
    script = """
from iris.tracing import spans
from tests.tracing.test_spans import a_span
spans.start("iris-test")
spans.emit(a_span("last"))
"""
    env = {**os.environ, "OTEL_BSP_SCHEDULE_DELAY": "60000"}
    ran = run(script, env)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [span.name for span in collector.spans()] == ["last"]


@pytest.mark.long
def test_a_process_without_traces_loads_no_library_for_them() -> None:
    """It would cost every command, every control plane and every host its time and memory."""
    script = """
import sys
import iris.worker_agents.control_plane.serve, iris.worker_agents.host.agent
import iris.cli.submit.command, iris.client.jobs.submit.start
from iris.tracing import spans
spans.start("x")
sys.exit(repr([name for name in sys.modules if name.startswith("opentelemetry")] or None))
"""
    env = {"PATH": "/usr/bin:/bin"}
    ran = run(script, env)
    assert ran.stderr == "None\n"


def test_without_the_library_the_message_has_the_remedy() -> None:
    """The extra is not part of every installation."""
    script = """
import sys
sys.modules["opentelemetry"] = None
from iris.tracing import spans
spans.start("x")
"""
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env={"IRIS_TRACING": "1"},
    )
    assert "pip install 'iris-temporal[tracing]'" in ran.stderr
