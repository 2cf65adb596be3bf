"""What commands still say while the control plane hangs and Temporal answers."""

import os
import re
import signal
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import USER, Cluster, a_cluster, eventually, until

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def silent() -> Iterator[Cluster]:
    """A job that succeeded, one that failed, and one that runs, of a cluster whose control plane has stopped to answer."""
    with a_cluster("--cpu", "2") as cluster:
        cluster.iris("submit", "-n", "good", "--", "echo", "done")
        cluster.iris("submit", "-n", "bad", "--", "sh", "-c", "exit 3", code=125)
        cluster.submit("long", "--", "sh", "-c", f"touch runs; {until('go')}")
        cluster.there_is("runs")
        eventually(lambda: "RUNNING" in [each["state"] for each in cluster.iris("jobs", "--json").json])
        control = cluster.pid("controller", "serve")
        assert control is not None
        os.kill(control, signal.SIGSTOP)
        yield cluster
        os.kill(control, signal.SIGCONT)
        cluster.file("go").touch()


def test_a_job_that_has_ended_tells_its_whole_status(silent: Cluster) -> None:
    """Its result is in the service: nobody has to be asked."""
    good, bad = silent.status("good"), silent.status("bad")
    assert (good["state"], good["tasks"][0]["exit_code"]) == ("SUCCEEDED", 0)
    assert (bad["state"], bad["tasks"][0]["exit_code"]) == ("FAILED", 3)
    assert silent.iris("wait", "good").err.startswith(f"{USER}/good SUCCEEDED")


def test_a_job_that_has_ended_is_explained_without_its_attempts(silent: Cluster) -> None:
    """Only the control plane has their records; the reason of the end is in the job's result."""
    asked, as_json = silent.begin("explain", "bad"), silent.begin("explain", "bad", "--json")
    explained = asked.ends(code=4)
    assert explained.out.startswith(f"{USER}/bad  FAILED\nexited with code 3")
    assert as_json.ends(code=4).out == ""
    assert explained.err.startswith("error: the outcome of its attempts is not known: the control plane of cluster local ")


def test_a_command_that_has_to_ask_prints_what_is_known_and_fails(silent: Cluster) -> None:
    """The state of a job, and where the cluster is; the exit code still tells a script that this is not the answer."""
    status, explain = silent.begin("status", "long"), silent.begin("explain", "long")
    cluster = silent.begin("cluster", "status")
    for asked in (status, explain):
        said = asked.ends(code=4)
        assert said.out.startswith(f"{USER}/long  RUNNING\nsubmitted ")
        assert said.out.endswith("tasks     1; their states were not asked\n")
        assert said.err.startswith("error: the control plane of cluster local ")
    said = cluster.ends(code=4)
    assert said.out.startswith("cluster local has 1 live job(s); its control plane does not answer\n  Temporal  127.0.0.1:")
    assert said.err.rstrip().endswith("run `iris cluster restart local`")


def test_commands_about_the_fleet_print_what_the_service_and_this_machine_know(silent: Cluster) -> None:
    """Who looks for the cause of an outage must see which agents are alive; the exit code tells that parts are missing."""
    known = {
        "host list": r"agents that report to Temporal:\nID .*\nlocal-cpu-\w+ .*\nnot asked: the hosts' resources",
        "host show local-cpu-0": r"agents that report to Temporal:\nno agents\nnot asked: ",
        "group list": r"scale groups of its last configuration from here:\nNAME .*\nlocal-cpu .*\nnot asked: slices",
        "slice list --group local-cpu": r"slices that Temporal lists:\nID .*\nlocal-cpu-\w+  READY .*\nnot asked: changes",
        "slice list --state FAILED": r"slices that Temporal lists:\nno slices\nnot asked: ",
        "slice show local-cpu": r"slices that Temporal lists:\nID .*\nlocal-cpu-\w+  READY .*\nnot asked: ",
    }
    asked = {command: silent.begin(*command.split()) for command in known}
    as_json = silent.begin("host", "list", "--json")
    for command, text in known.items():
        said = asked[command].ends(code=4)
        assert re.match(f"the control plane of cluster local does not answer; {text}", said.out)
        assert said.err.startswith("error: the control plane of cluster local ")
    assert as_json.ends(code=4).out == ""
