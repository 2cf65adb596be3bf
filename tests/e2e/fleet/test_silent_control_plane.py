"""What commands still say while the control plane hangs and Temporal answers."""

import json
import os
import re
import signal
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import USER, Cluster, a_cluster, eventually, until

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def silent() -> Iterator[Cluster]:
    """A job that succeeded, one that failed, and one that runs, of a cluster whose control plane
    has stopped to answer.
    """
    with a_cluster("--cpu", "2") as cluster:
        cluster.iris("submit", "-n", "good", "--", "echo", "done")
        cluster.iris("submit", "-n", "bad", "--", "sh", "-c", "exit 3", code=125)
        cluster.iris(
            "submit", "-n", "pair", "--replicas", "2", "--", "sh", "-c", "exit 3", code=125
        )
        cluster.submit("long", "--", "sh", "-c", f"touch runs; {until('go')}")
        cluster.there_is("runs")
        eventually(
            lambda: "RUNNING" in [each["state"] for each in cluster.iris("jobs", "--json").json]
        )
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


@pytest.mark.parametrize("job", ["bad", "pair"])
def test_a_job_that_has_ended_is_explained_without_its_attempts(silent: Cluster, job: str) -> None:
    """Only the control plane has their records; the reason of the end is in the job's result. JSON
    says so, too.
    """
    asked, as_json = silent.begin("explain", job), silent.begin("explain", job, "--json")
    explained = asked.ends(code=4)
    assert explained.out.startswith(f"{USER}/{job}  FAILED\n{silent.status(job)['reason']}")
    fields = as_json.ends(code=4).json
    assert (fields["state"], fields["attempts"], fields["not_asked"]) == ("FAILED", [], "attempts")
    assert explained.err.startswith("error: the outcome of its attempts is not known: ")


def test_a_command_that_has_to_ask_prints_what_is_known_and_fails(silent: Cluster) -> None:
    """The state of a job, and where the cluster is; the exit code still tells a script that this is
    not the answer.
    """
    status, explain = silent.begin("status", "long"), silent.begin("explain", "long")
    cluster = silent.begin("cluster", "status")
    for asked in (status, explain):
        said = asked.ends(code=4)
        assert said.out.startswith(f"{USER}/long  RUNNING\nsubmitted ")
        assert said.out.endswith("tasks     1; their states were not asked\n")
        assert said.err.startswith("error: ")
    said = cluster.ends(code=4)
    assert said.out.startswith("cluster local has 1 live job(s); ")
    assert "\n  Temporal  127.0.0.1:" in said.out
    assert said.err.rstrip().endswith("run `iris cluster restart local`")


def test_commands_about_the_fleet_print_what_the_service_and_this_machine_know(
    silent: Cluster,
) -> None:
    """Who looks for the cause of an outage must see which agents are alive; the exit code tells
    that parts are missing.
    """
    known = {
        "host list": (
            r"agents that report to Temporal:\nID .*\nlocal-cpu-\w+ .*\nnot asked: the hosts'"
            r" resources"
        ),
        "host show local-cpu-0": r"agents that report to Temporal:\nno agents\nnot asked: ",
        "group list": (
            r"scale groups of its last configuration from here:\nNAME .*\nlocal-cpu .*\nnot asked:"
            r" slices"
        ),
        "slice list --group local-cpu": (
            r"slices that Temporal lists:\nID .*\nlocal-cpu-\w+  READY .*\nnot asked: changes"
        ),
        "slice list --state FAILED": r"slices that Temporal lists:\nno slices\nnot asked: ",
        "autoscaler status": (
            r"scale groups of its last configuration from here:\nNAME .*\nlocal-cpu .*\nnot asked:"
            r" slices"
        ),
        "slice show local-cpu": (
            r"slices that Temporal lists:\nID .*\nlocal-cpu-\w+  READY .*\nnot asked: "
        ),
    }
    asked = {command: silent.begin(*command.split()) for command in known}
    for command, text in known.items():
        said = asked[command].ends(code=4)
        assert re.search(text, said.out)
        assert said.err.startswith("error: ")


def test_json_of_an_object_has_what_is_known_and_names_what_was_not_asked(silent: Cluster) -> None:
    """A script that reads one field must not parse text in an outage; the exit code tells that
    fields are missing.
    """
    (host_id,) = re.findall(
        r"^local-cpu-[\w-]+", silent.iris("host", "list", code=4).out, re.MULTILINE
    )
    known = {
        "status long": ("id", f"{USER}/long"),
        "explain long": ("state", "RUNNING"),
        "cluster status": ("live_jobs", 1),
        f"host show {host_id}": ("id", host_id),
        "slice show local-cpu": ("state", "READY"),
    }
    asked = {command: silent.begin(*command.split(), "--json") for command in known}
    scaling = silent.begin("autoscaler", "status", "--json")
    for command, (key, value) in known.items():
        said = asked[command].ends(code=4)
        assert json.loads(said.err)["exit_code"] == 4
        assert said.json[key] == value
        assert said.json["not_asked"]
    assert [group["name"] for group in scaling.ends(code=4).json["groups"]] == ["local-cpu"]


@pytest.mark.parametrize("listing", ["host list", "slice list", "group list"])
def test_a_list_as_json_is_whole_or_not_there(silent: Cluster, listing: str) -> None:
    """Part of a list looks like all of it, and a script would take what is missing for gone."""
    said = silent.iris(*listing.split(), "--json", code=4)
    assert said.out == ""
    assert json.loads(said.err)["exit_code"] == 4


def test_what_only_the_service_knows_is_shown_as_always(silent: Cluster) -> None:
    """Jobs and schedules are in Temporal; the screen of everything shows them, and names what it
    could not ask.
    """
    schedules, jobs, screen, fields = (
        silent.begin(*command.split())
        for command in ("schedule list", "jobs", "top --once", "top --json")
    )
    assert schedules.ends().out == "no schedules\n"
    assert f"{USER}/long" in jobs.ends().out
    shown = screen.ends().out
    assert shown.startswith("cluster local: ")
    assert "\nunknown  hosts and queue: " in shown
    assert f"{USER}/good " in shown
    seen = fields.ends().json
    assert (seen["hosts"], seen["groups"]) == (None, None)
    assert [row["id"] for row in seen["jobs"]] == [
        f"{USER}/{name}" for name in ("long", "pair", "bad", "good")
    ]
    assert re.match("hosts and queue: .*; scale groups: ", seen["not_asked"])
