"""The configuration gives the machines that Iris creates on Google Cloud their ports for metrics."""

import pytest

from tests.e2e.cluster import a_home, eventually, free_port
from tests.e2e.google.cluster import GcpCluster, stopped_at_last
from tests.e2e.operate.test_metrics import Page
from tests.fakes.google.client import FakeGoogle

pytestmark = pytest.mark.long


def test_created_machines_serve_metrics_and_the_calls_for_them_count(google: FakeGoogle) -> None:
    """The control plane's and a host's, each at the port of the configuration."""
    control, host = Page(free_port()), Page(free_port())
    with a_home() as home:
        cluster = GcpCluster(home, google, "metrics")
        ports = f"metrics: {{controller_port: {control.port}, host_port: {host.port}}}\n"
        cluster.config.write_text(cluster.text + ports)
        with stopped_at_last(cluster):
            cluster.start()
            cluster.iris("submit", "-n", "one", "--cpu", "1", "--", "true", within=240)

            assert host.value("iris_attempts_ended_total", outcome="SUCCEEDED", fault="") == 1
            assert control.value("iris_platform_calls_total", call="create", outcome="ok") == 1
            assert control.value("iris_google_calls_total", urgency="create", answer="ok") == 1
            ready = {"group": "cpu", "zone": "europe-west4-b", "state": "READY"}
            eventually(lambda: control.value("iris_slices", **ready) == 1, every=0.5)
