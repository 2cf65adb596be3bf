"""`iris debug` and the scripts over the command line, on a cluster on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, a_home, eventually

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[3] / "examples"
SCRIPTS = Path(__file__).parents[3] / "scripts"


def test_a_local_cluster_is_found_and_is_well(cluster: Cluster) -> None:
    """All that needs no machine of a cloud works here as well."""
    found = cluster.iris("debug", "discover", "--json").json
    assert (found["cluster"], found["platform"], found["running"], found["healthy"]) == (
        "local",
        "local",
        True,
        True,
    )
    assert found["address"] == cluster.address
    (worker,) = cluster.iris("debug", "list-workers", "--json").json
    assert (worker["host"], worker["state"]) == (cluster.only_host(), "TAKES_WORK")
    checks = cluster.iris("debug", "health", "--json").json["checks"]
    assert [each["said"] for each in checks if not each["ok"]] == []


def test_the_versions_of_all_parts_are_shown_and_fit(cluster: Cluster) -> None:
    """All are of this installation, so nothing is to be done. Their first reports take some
    seconds.
    """
    host = cluster.only_host()
    found = eventually(
        lambda: (
            (seen := cluster.iris("version", "--json").json)["agents"]
            and seen["fits"] is not None
            and seen
        )
    )
    own = found["client"]
    assert (found["control_plane"], found["agents"]) == ([own], [{"version": own, "hosts": [host]}])
    assert (found["cluster"], found["fits"], found["remedy"], found["not_asked"]) == (
        cluster.name,
        True,
        "",
        "",
    )
    shown = cluster.iris("version").out
    assert f"agents         {own} on 1 host\nthe versions fit\n" in shown
    assert f"Temporal       {found['server']}, of cluster {cluster.name}\n" in shown


def test_what_is_closed_is_said_of_a_host_that_reports(cluster: Cluster) -> None:
    """It is well, and yet takes nothing: whoever wonders sees why."""
    host = cluster.only_host()
    cluster.iris("host", "cordon", host, "--reason", "repair")
    try:
        (worker,) = cluster.iris("debug", "list-workers", "--json").json
        assert worker["state"] == "CLOSED"
        assert "repair" in worker["reason"]
        hosts = next(
            each
            for each in cluster.iris("debug", "health", "--json").json["checks"]
            if each["name"] == "hosts"
        )
        assert (hosts["ok"], hosts["said"]) == (True, "1 report, 1 closed")
    finally:
        cluster.iris("host", "uncordon", host)


def test_the_smoke_test_starts_a_cluster_of_a_configuration_validates_it_and_leaves_nothing() -> (
    None
):
    """A configuration is tried so before it costs money; the exit code says whether all went
    well.
    """
    with a_home() as home:
        command = [
            sys.executable,
            SCRIPTS / "smoke-test.py",
            "--config",
            EXAMPLES / "eu-west4.yaml",
            "--local",
            "--tpu-type",
        ]
        # Whoever runs it must not have another cluster in mind.
        env = {
            **os.environ,
            "IRIS_STATE_DIR": str(home),
            "IRIS_USER": "ada",
            "IRIS_CLUSTER": "another",
        }
        ran = subprocess.run(
            [*command, "v5litepod-16"],
            env=env,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert (ran.returncode, "5 of 5 phases passed" in ran.stdout) == (0, True), (
            ran.stdout + ran.stderr
        )
        ran = subprocess.run(
            [*command, "v6e-1"], env=env, capture_output=True, text=True, timeout=180, check=False
        )
        assert (ran.returncode, "2 of 5 phases passed" in ran.stdout) == (1, True), (
            ran.stdout + ran.stderr
        )
        assert Cluster(home).processes() == []
