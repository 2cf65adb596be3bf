"""`--watch` without a terminal on a real cluster. `test_live_progress` has it on one."""

import json
import os
import subprocess
import sys

import pytest

from tests.e2e.cluster import PATIENCE, USER, Cluster, eventually, until

pytestmark = pytest.mark.long


def test_changes_of_a_job_are_printed_once_each_without_a_terminal(cluster: Cluster) -> None:
    """With times for people, as one line of JSON for programs; Ctrl-C is the usual end, and no
    error.
    """
    cluster.submit("changing", "--cpu", "0.1", "--", "sh", "-c", until("changing.go"))
    eventually(lambda: cluster.status("changing")["tasks"][0]["state"] == "RUNNING")
    plain, rows = (
        cluster.begin("status", "changing", "--watch"),
        cluster.begin("status", "changing", "--watch", "--json"),
    )
    eventually(lambda: "RUNNING" in plain.out and "RUNNING" in rows.out)
    cluster.file("changing.go").touch()
    eventually(lambda: f"{USER}/changing  SUCCEEDED" in plain.out and "SUCCEEDED" in rows.out)
    for each in (plain, rows):
        each.interrupt()
        assert each.ends(0).err == ""
    assert "\x1b" not in plain.out
    printed = rows.out.splitlines()
    assert [json.loads(line)["state"] for line in (printed[0], printed[-1])] == [
        "RUNNING",
        "SUCCEEDED",
    ]
    assert len({*printed}) == len(printed)


def test_a_first_look_that_fails_ends_the_command(cluster: Cluster) -> None:
    """A mistyped name would else be watched for ever."""
    assert f"{USER}/never-was" in cluster.iris("status", "never-was", "--watch", code=3).err


def test_a_closed_pipe_ends_the_watching_also_without_a_change(cluster: Cluster) -> None:
    """`iris jobs --watch | grep -m1 …` must not leave a process behind that asks for ever."""
    env = {**os.environ, "IRIS_STATE_DIR": str(cluster.home), "IRIS_USER": USER}
    command = [sys.executable, "-m", "iris.cli.main", "jobs", "--watch", "--json"]
    command += ["--limit", "1000"]  # the cluster is shared: a page may not show all of its jobs
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert isinstance(json.loads(watching.stdout.readline()), list)
        watching.stdout.close()
        assert (watching.wait(PATIENCE), watching.stderr.read()) == (0, b"")
