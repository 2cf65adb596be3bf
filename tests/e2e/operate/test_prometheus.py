"""A real Prometheus reads a real control plane, and evaluates the alert rules of the documentation.

`scripts/install-prometheus` installs Debian's, so these tests are in the tier that installs programs.
"""

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import eventually, free_port
from tests.e2e.operate.test_metrics import measured_cluster

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[3]
RULES = ROOT / "docs/grafana/alerts.yaml"


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    subprocess.run([ROOT / "scripts/install-prometheus"], check=True, timeout=600)


class Prometheus:
    """A server that runs."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    def get(self, path: str, **arguments: str) -> Any:
        url = f"{self._url}{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]

    def is_up(self) -> bool:
        try:
            return bool(self.get("status/buildinfo"))
        except OSError:
            return False

    def value(self, expression: str) -> float | None:
        """The value of an expression with one result; None if there is none."""
        result = self.get("query", query=expression)["result"]
        return float(result[0]["value"][1]) if result else None


@contextmanager
def prometheus(directory: Path, target: int) -> Iterator[Prometheus]:
    """A server that reads the page at this port each second, with the rules of the documentation."""
    config, port = directory / "prometheus.yml", free_port()
    scraped = {
        "job_name": "iris-control-plane",
        "static_configs": [{"targets": [f"127.0.0.1:{target}"]}],
    }
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config.write_text(
        yaml.safe_dump({"global": every, "rule_files": [str(RULES)], "scrape_configs": [scraped]})
    )
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        server = Prometheus(port)
        eventually(server.is_up)
        yield server
    finally:
        process.terminate()
        process.wait(60)


def test_promtool_accepts_the_rules() -> None:
    """Prometheus starts with none of them if one is wrong."""
    ran = subprocess.run(
        ["promtool", "check", "rules", RULES], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_prometheus_reads_a_control_plane_and_evaluates_the_rules(tmp_path: Path) -> None:
    """Each rule without an error; and the alert for jobs that cannot run sees one."""
    with measured_cluster(tmp_path) as (cluster, page), prometheus(tmp_path, page.port) as server:
        eventually(lambda: server.value('up{job="iris-control-plane"}') == 1)
        cluster.iris("host", "cordon", cluster.only_host())
        cluster.submit("closed-out", "--cpu", "2", "--", "true")
        eventually(lambda: server.value('iris_gangs_waiting{reason="CLOSED"}') == 1)
        eventually(lambda: server.value("iris_evictions_total") == 0)
        assert server.value("count(temporal_request_total)")

        def rules() -> list[dict[str, Any]]:
            return [rule for group in server.get("rules")["groups"] for rule in group["rules"]]

        eventually(lambda: {rule["health"] for rule in rules()} == {"ok"})
        eventually(lambda: [each["name"] for each in rules() if each["state"] == "pending"])
        pending = {each["name"] for each in rules() if each["state"] != "inactive"}
        assert pending == {"IrisGangsCannotRun"}
