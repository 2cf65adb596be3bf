"""Room: who waits and why, who goes first, and that whatever a job took is there again when it is
gone.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from tests.activities.host.runtimes.test_stopped_shims import FAMILY
from tests.e2e.cluster import USER, Cluster, eventually, until

pytestmark = pytest.mark.long


def test_a_job_that_cannot_fit_waits_with_numbers_while_a_smaller_one_runs(
    cluster: Cluster,
) -> None:
    """PENDING, what it needs and what there is, in status, explain and their JSON; nobody behind it
    is blocked.
    """
    cluster.submit("too-big", "--cpu", "5", "--memory", "9g", "--", "true")
    cluster.iris("submit", "-n", "behind", "--", "true")
    status = cluster.status("too-big")
    assert (status["state"], status["started_at"], status["tasks"][0]["attempt"]) == (
        "PENDING",
        None,
        0,
    )
    for words in ("needs 5 cpu", "9 GiB memory", "has 4 cpu", "8 GiB memory"):
        assert words in status["reason"]
    explained = cluster.iris("explain", "too-big", "--json").json
    assert (explained["state"], explained["code"]) == ("PENDING", "TOO_BIG")
    assert explained["needed"] == {"cpu": 5, "memory_bytes": 9 * 2**30}
    assert explained["free"] == {"cpu": 4, "memory_bytes": 8 * 2**30}
    assert "needs 5 cpu" in cluster.iris("explain", "too-big").out
    cluster.iris("cancel", "too-big")
    cluster.iris("wait", "too-big", code=126)


def test_a_job_that_nobody_can_place_in_time_is_unschedulable(cluster: Cluster) -> None:
    """At its scheduling timeout, 2 s after submission and no later, with the last reason; attached
    submit exits with 125.
    """
    ran = cluster.iris(
        "submit",
        "-n",
        "in-time",
        "--scheduling-timeout",
        "2s",
        "--device",
        "gpu:H100:8",
        "--",
        "true",
        code=125,
    )
    assert "UNSCHEDULABLE" in ran.err
    status = cluster.status("in-time")
    assert status["state"] == "UNSCHEDULABLE"
    assert "H100" in status["reason"]
    took = datetime.fromisoformat(status["finished_at"]) - datetime.fromisoformat(
        status["submitted_at"]
    )
    assert timedelta(seconds=2) <= took < timedelta(seconds=60)


def test_two_jobs_that_do_not_fit_together_run_one_after_the_other(cluster: Cluster) -> None:
    """Two times 3 CPUs on a host of 4: by their own clocks, the second begins when the first is
    over.
    """
    command = [
        "--cpu",
        "3",
        "--",
        "python3",
        "-c",
        "import time; print(time.time()); time.sleep(0.5); print(time.time())",
    ]
    both = [cluster.begin("submit", *command) for _ in range(2)]
    (_, first_end), (second_start, _) = sorted(
        [float(line) for line in job.ends().out.split()] for job in both
    )
    assert first_end <= second_start


def _succeed(cluster: Cluster, job: str) -> None:
    cluster.file(f"{job}.go").touch()


def _fail(cluster: Cluster, job: str) -> None:
    cluster.file(f"{job}.fail").touch()


def _cancel(cluster: Cluster, job: str) -> None:
    cluster.iris("cancel", job)


def _terminate(cluster: Cluster, job: str) -> None:
    cluster.terminate(job)


@pytest.mark.parametrize(
    ("end", "replicas"),
    [(_succeed, 1), (_fail, 2), (_cancel, 1), (_cancel, 2), (_terminate, 1), (_terminate, 2)],
    ids=lambda value: value.__name__.strip("_") if callable(value) else f"{value}-tasks",
)
def test_what_a_job_took_is_free_again_however_it_ends(
    cluster: Cluster, end: Callable[[Cluster, str], None], replicas: int
) -> None:
    """A job that fills the host ends; the one that waits for all of that room runs, and nothing
    stays taken.
    """
    name, waits = f"full-{end.__name__}-{replicas}", f"next-{end.__name__}-{replicas}"
    command = (
        f"touch {name}.$IRIS_TASK_INDEX; while [ ! -e {name}.go ]; do [ ! -e {name}.fail ] || exit"
        " 1; sleep 0.05; done"
    )
    cluster.submit(
        name, "--replicas", str(replicas), "--cpu", str(4 / replicas), "--", "sh", "-c", command
    )
    for index in range(replicas):
        cluster.there_is(f"{name}.{index}")
    following = cluster.begin("submit", "-n", waits, "--cpu", "4", "--", "true")
    eventually(lambda: f"submitted {USER}/{waits}" in following.err)
    end(cluster, name)
    following.ends()
    eventually(lambda: cluster.free_cpu() == [4])
    states = {_succeed: "SUCCEEDED", _fail: "FAILED", _cancel: "KILLED", _terminate: "KILLED"}
    assert cluster.status(name)["state"] == states[end]


@pytest.mark.parametrize("end", [_cancel, _terminate])
def test_a_job_that_stops_its_shim_is_dead_before_its_host_is_given_to_others(
    cluster: Cluster, end: Callable[[Cluster, str], None]
) -> None:
    """Nobody carries out the orders then but the agent itself: after the grace, and some seconds
    more.
    """
    name = f"stops-its-shim-{end.__name__}"
    cluster.submit(name, "--cpu", "4", "--", "python3", "-c", FAMILY, name, "as by a debugger")
    cluster.there_is(name)
    # A process that was killed and that its new parent has not asked about yet is dead.
    lives = "kill -0 $pid 2>&- && ! grep -q ') Z' /proc/$pid/stat 2>&-"
    look = (
        f"for pid in $(cat {name}); do if {lives}; then echo $pid lives; cat /proc/$pid/stat; fi;"
        " done; echo all looked at"
    )
    following = cluster.begin("submit", "-n", f"after-{name}", "--cpu", "4", "--", "sh", "-c", look)
    eventually(lambda: f"submitted {USER}/after-{name}" in following.err)
    end(cluster, name)
    assert following.ends().out == "all looked at\n"


def test_a_terminated_job_whose_program_ends_by_itself_leaves_nothing_taken(
    cluster: Cluster,
) -> None:
    """Its host learns of the termination from the outcome that nobody wants any more, and gives the
    room back at once.
    """
    cluster.submit(
        "cut-short",
        "--cpu",
        "4",
        "--",
        "sh",
        "-c",
        f"touch cut-short.runs; {until('cut-short.go')}",
    )
    cluster.there_is("cut-short.runs")
    cluster.terminate("cut-short")
    cluster.file("cut-short.go").touch()
    cluster.iris("submit", "--cpu", "4", "--", "true")


def test_a_job_that_is_terminated_while_it_waits_takes_nothing_later(cluster: Cluster) -> None:
    """The room it waited for goes to those behind it."""
    cluster.submit("holds", "--cpu", "4", "--", "sh", "-c", until("holds.go"))
    cluster.submit("waits-and-goes", "--cpu", "4", "--", "touch", "should-not-be")
    behind = cluster.begin("submit", "-n", "waits-behind", "--cpu", "4", "--", "true")
    eventually(lambda: f"submitted {USER}/waits-behind" in behind.err)
    cluster.terminate("waits-and-goes")
    cluster.file("holds.go").touch()
    behind.ends()
    assert not cluster.file("should-not-be").exists()
    assert cluster.status("waits-and-goes")["state"] == "KILLED"


def test_many_jobs_on_little_room_all_run_and_never_too_many_at_once(cluster: Cluster) -> None:
    """Twelve tasks of 1.5 CPUs on a host of 4: never more than two at a time, and everyone's turn
    comes.
    """
    count = "mkdir -p at-once; touch at-once/$$; ls at-once | wc -l; sleep 0.1; rm at-once/$$"
    ran = cluster.iris("submit", "--replicas", "12", "--cpu", "1.5", "--", "sh", "-c", count)
    seen = [int(line.split()[-1]) for line in ran.out.splitlines()]
    assert len(seen) == 12
    assert max(seen) <= 2
