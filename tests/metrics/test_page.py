"""A process with a port for metrics serves them over HTTP; one without a port stores nothing."""

import http.client
import subprocess
import sys
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from iris.metrics.declared import EVICTIONS, EXCHANGE_DURATION, GANGS_WAITING, LOG_BACKLOG
from iris.metrics.kinds import Part
from iris.metrics.serve import Listen, serving_metrics
from iris.processes.process import free_ports


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a page of a control plane."""
    port = free_ports()[0]
    with serving_metrics(Part.CONTROL_PLANE, Listen(port)):
        yield port


def get(port: int, path: str = "/metrics", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def samples(port: int) -> dict[tuple[str, tuple[str, ...]], float]:
    """The values on the page by name and values of labels."""
    return {
        (each.name, tuple(each.labels.values())): each.value
        for family in text_string_to_metric_families(get(port).read().decode())
        for each in family.samples
    }


def test_counters_and_histograms_add_up(port: int) -> None:
    """From zero when the process began to serve them."""
    assert samples(port)["iris_evictions_total", ()] == 0

    EVICTIONS.add()
    EVICTIONS.add(amount=2)
    EXCHANGE_DURATION.add(0.02)

    found = samples(port)
    assert found["iris_evictions_total", ()] == 3
    assert found["iris_exchange_duration_seconds_bucket", ("0.01",)] == 0
    assert found["iris_exchange_duration_seconds_bucket", ("0.03",)] == 1
    assert found["iris_exchange_duration_seconds_sum", ()] == 0.02
    assert not any(name.endswith("_created") for name, _ in found)


def test_a_gauge_shows_only_what_was_found_last(port: int) -> None:
    """A gang that waits no more must not stay on the page."""
    GANGS_WAITING.show({("batch", "BUSY"): 4, ("batch", "PAUSED"): 1})
    GANGS_WAITING.show({("batch", "BUSY"): 3})

    found = samples(port)
    assert found["iris_gangs_waiting", ("batch", "BUSY")] == 3
    assert ("iris_gangs_waiting", ("batch", "PAUSED")) not in found


def test_a_page_has_the_metrics_of_its_part_and_of_its_process(port: int) -> None:
    """A host's gauges would stay at nothing on the page of a control plane."""
    LOG_BACKLOG.show_one(1)

    names = {name for name, _ in samples(port)}
    assert "process_resident_memory_bytes" in names
    assert not any(name.startswith(("iris_log", "iris_attempt")) for name in names)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", ""])
def test_a_web_page_of_another_site_reads_nothing(port: int, host: str) -> None:
    """Its name may resolve to this machine (DNS rebinding)."""
    assert get(port, Host=host).status == 403


def test_prometheus_reads_the_only_path_as_text(port: int) -> None:
    """Under each name that this machine has for its users."""
    assert get(port, "/").status == 404
    for host in ("localhost:9", "127.0.0.1", "[::1]:9"):
        answer = get(port, Host=host)
        assert (answer.status, answer.headers["Content-Type"]) == (
            200,
            "text/plain; version=0.0.4; charset=utf-8",
        )


def test_after_the_end_nothing_is_stored_or_served(port: int) -> None:
    """So a second page of the same process begins at zero."""
    other = free_ports()[0]
    with serving_metrics(Part.CONTROL_PLANE, Listen(other)):
        EVICTIONS.add()
    with pytest.raises(ConnectionRefusedError):
        get(other)
    assert EVICTIONS.stored is None


def test_a_port_in_use_does_not_stop_the_process(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A host runs its tasks, and Prometheus sees that the target is down."""
    with serving_metrics(Part.AGENT, Listen(port)) as sdk:
        assert sdk == ""
        LOG_BACKLOG.show_one(1)
    assert f"no metrics are served: port {port} of 127.0.0.1 cannot be used" in caplog.text


def test_an_option_overrides_the_configuration() -> None:
    """Also with zero, which serves none."""
    configured = Listen(9464, "10.0.0.5")
    assert configured.with_options(None, None) == configured
    assert configured.with_options(0, None) == Listen(0, "10.0.0.5")
    assert Listen().with_options(9000, "::1") == Listen(9000, "::1")


def test_a_process_without_a_port_does_not_load_the_library() -> None:
    """It costs 0.06 s of every start, and memory on every host."""
    script = """
import sys
import iris.cli.processes.agent, iris.cli.processes.controller
import iris.worker_agents.control_plane.serve
from iris.metrics.declared import EVICTIONS
from iris.metrics.kinds import Part
from iris.metrics.serve import Listen, serving_metrics
with serving_metrics(Part.CONTROL_PLANE, Listen()) as sdk:
    EVICTIONS.add()
sys.exit(f"{sdk}{ {'prometheus_client', 'http.server'} & set(sys.modules) or ''}" or 0)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, "")
