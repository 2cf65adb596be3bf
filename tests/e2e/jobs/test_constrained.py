"""Constraints from the command line to real agents: where a job may be interrupted, and where it
must not.
"""

import pytest

from tests.e2e.cluster import USER, a_cluster, eventually

pytestmark = pytest.mark.long


def test_a_job_that_must_not_be_preempted_never_runs_on_a_preemptible_host_and_one_that_may_does() -> (
    None
):
    """What `--dry-run` promises is what happens, with every way to say it."""
    with a_cluster("--hosts", "1", "--ephemeral") as cluster:
        firm = cluster.only_host()
        cluster.begin(
            "agent",
            "--join",
            "--run-as=root",
            "--host-id",
            "spot",
            "--attribute",
            "preemptible=true",
            "--attribute",
            "fast=true",
        )
        eventually(lambda: set(cluster.hosts()) == {"spot", firm}, every=0.5)
        expected = {
            "yes": (["--preemptible"], "spot"),
            "no": (["--no-preemptible"], firm),
            "equal": (["--constraint", "preemptible = true"], "spot"),
            "unequal": (["--constraint", "preemptible != true"], firm),
            "fast": (["--constraint", "fast = true"], "spot"),
            "several": (["--constraint", "preemptible != true", "--replicas", "2"], firm),
        }
        for name, (options, host) in expected.items():
            foreseen = cluster.iris("submit", "--dry-run", "--json", *options, "--", "true").json
            assert foreseen["hosts"] == [host], name
        for name, (options, _) in expected.items():
            cluster.submit(name, *options, "--", "true")
        for name, (_, host) in expected.items():
            cluster.iris("wait", name)
            assert {task["host"] for task in cluster.status(name)["tasks"]} == {host}, name
        cluster.submit("never", "--constraint", "fast = 1", "--", "true")
        explained = cluster.iris("explain", f"{USER}/never", "--json").json
        assert (explained["code"], explained["excluded"]) == ("CONSTRAINTS", {"fast = 1": 2})
