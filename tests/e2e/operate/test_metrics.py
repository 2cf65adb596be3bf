"""The metrics of a cluster that runs, read over HTTP as Prometheus does."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.cluster import Cluster, a_cluster, eventually, free_port

pytestmark = pytest.mark.long

CONFIG = """
name: local
platform: {{local: }}
metrics: {{controller_port: {port}, host_port: {host_port}, address: {address}}}
scale_groups:
  cpu:
    type: local_vm
    min_slices: 1
    max_slices: 1
    zones: [here]
    resources: {{cpu: 2, memory: 2g}}
"""


class Page(NamedTuple):
    """The page of one process."""

    port: int

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return {
            (each.name, frozenset(each.labels.items())): each.value
            for family in text_string_to_metric_families(text)
            for each in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """The value with exactly these labels; None if there is none."""
        return self.samples().get((name, frozenset(labels.items())))

    def shows(self, wanted: float, name: str, **labels: str) -> None:
        """Waits until the value is the wanted one."""
        eventually(lambda: self.value(name, **labels) == wanted, every=0.5)


@contextmanager
def measured_cluster(directory: Path) -> Iterator[tuple[Cluster, Page]]:
    """A cluster of one host with two cores, and the page of its control plane."""
    page, config = Page(free_port()), directory / "cluster.yaml"
    config.write_text(CONFIG.format(port=page.port, host_port=1, address="0.0.0.0"))
    with a_cluster("--config", str(config), "--ephemeral") as cluster:
        yield cluster, page


def test_a_control_plane_shows_what_runs_and_why_others_wait(tmp_path: Path) -> None:
    """The values follow the jobs, and Temporal's own metrics are on the same page."""
    with measured_cluster(tmp_path) as (cluster, page):
        page.shows(1, "iris_hosts", group="cpu", state="open")
        page.shows(1, "iris_slices", group="cpu", zone="here", state="READY")
        page.shows(1, "iris_group_target_slices", group="cpu")
        assert page.value("iris_placements_total", delivery="answer") is None

        cluster.submit("runs", "--cpu", "2", "--", "sleep", "600")
        cluster.submit("waits", "--cpu", "2", "--priority", "batch", "--", "true")
        page.shows(1, "iris_gangs_running", band="interactive")
        page.shows(1, "iris_gangs_waiting", band="batch", reason="BUSY")
        page.shows(1, "iris_group_availability", group="cpu", availability="AT_MAX")
        assert page.value("iris_placements_total", delivery="answer") == 1

        cluster.iris("cancel", "runs")
        cluster.iris("wait", "waits")
        page.shows(1, "iris_placements_total", delivery="signal")
        eventually(
            lambda: page.value("iris_gangs_waiting", band="batch", reason="BUSY") is None, every=0.5
        )
        found = page.samples()
        values = {name: value for (name, labels), value in found.items() if not labels}
        assert values["iris_exchange_messages_sum"] >= values["iris_exchange_messages_count"] > 3
        assert 0 < values["iris_exchange_duration_seconds_sum"] < 60
        assert 0 < values["iris_scheduler_replay_looks"] < 10_000_000
        assert values["iris_scheduler_ledger_limit_bytes"] == 1.75 * 2**20
        assert (
            found[
                "iris_platform_calls_total", frozenset({"call": "create", "outcome": "ok"}.items())
            ]
            == 1
        )
        ended = [
            value
            for (name, labels), value in found.items()
            if name == "temporal_workflow_completed_total"
            and ("workflow_type", "JobWorkflow") in labels
        ]
        assert ended == [1]


def test_an_agent_shows_its_attempts_and_its_disk(cluster: Cluster, tmp_path: Path) -> None:
    """By outcome, with the time that set-ups took, at the port of the cluster's configuration."""
    page, config, host = Page(free_port()), tmp_path / "cluster.yaml", "measured"
    config.write_text(CONFIG.format(port=1, host_port=page.port, address="127.0.0.1"))
    joining = ["--host-id", host, "--run-as", "root", "--cpu", "1", "--attribute", "metered=yes"]
    agent = cluster.begin("agent", "--join", *joining, "--config", str(config))
    eventually(lambda: host in cluster.hosts(), every=0.3)
    there = ["--cpu", "1", "--constraint", "metered=yes"]
    cluster.iris("submit", "-n", "measured-well", *there, "--", "true")
    cluster.iris("submit", "-n", "measured-ill", *there, "--", "false", code=125)
    cluster.submit("measured-long", *there, "--", "sleep", "600")

    page.shows(1, "iris_attempts", state="RUNNING")
    assert page.value("iris_attempts_ended_total", outcome="SUCCEEDED", fault="") == 1
    assert page.value("iris_attempts_ended_total", outcome="FAILED", fault="") == 1
    assert page.value("iris_attempt_setup_duration_seconds_count", result="ready") == 3
    eventually(lambda: 0 < (page.value("iris_lease_left_seconds") or 0) <= 50)
    free = page.value("iris_disk_free_bytes", directory="agent")
    size = page.value("iris_disk_size_bytes", directory="agent")
    assert free
    assert size
    assert free < size
    assert page.value("iris_gpu_fault") is None
    assert any(name.startswith("temporal_") for name, _ in page.samples())

    cluster.iris("cancel", "measured-long")
    page.shows(1, "iris_attempts_ended_total", outcome="KILLED", fault="")
    agent.process.terminate()
    agent.ends(None)
