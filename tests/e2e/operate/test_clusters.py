"""Local clusters: beside one another, started, stopped and started again, and for a single job."""

import pytest

from tests.e2e.cluster import USER, Cluster, a_cluster, a_home, eventually, until

pytestmark = pytest.mark.long


def test_clusters_of_different_names_run_side_by_side_until_they_are_stopped() -> None:
    """Each has its own jobs; whoever names none is asked which; a stop leaves no process of one and
    all of the other.
    """
    with a_home() as home:
        one, two = (
            Cluster(home, "one", ["--ephemeral"]),
            Cluster(home, "two", ["--ephemeral", "--hosts", "2"]),
        )
        starts = [
            each.begin("cluster", "start", "--local", "-d", "--name", each.name, *each.options)
            for each in (one, two)
        ]
        try:
            for start in starts:
                start.ends()
            assert (
                one.iris("--cluster", "one", "submit", "-n", "only", "--", "echo", "in one").out
                == "in one\n"
            )
            assert (
                one.iris("jobs", code=3).err
                == "error: several local clusters run (one, two); name one with --cluster NAME\n"
            )
            assert one.iris("--cluster", "two", "jobs", "--json").json == []
            assert (
                "runs already"
                in one.iris("cluster", "start", "--local", "-d", "--name", "one", code=5).err
            )
            shown = one.iris("cluster", "status", "two", "--json").json
            assert (shown["name"], shown["state"], shown["hosts"], shown["live_jobs"]) == (
                "two",
                "RUNNING",
                2,
                0,
            )
            one.stop()
            # Whoever names none is answered by the only one.
            assert one.host_ids() == list(two.hosts())
            assert "does not run" in one.iris("--cluster", "one", "jobs", code=4).err
        finally:
            for each in (one, two):
                each.iris("cluster", "stop", each.name, "--yes", code=None)
            left = [str(process) for process in one.processes()]
            one.clear()
        assert left == []
        assert list(home.glob("clusters/*")) == []


def test_a_stop_ends_programs_and_followers_and_leaves_no_process() -> None:
    """With jobs running, waiting and followed; programs get their SIGTERM, followers an exit code,
    and nothing stays.
    """
    with a_cluster("--cpu", "1", "--ephemeral") as cluster:
        command = (
            "trap 'touch told; exit' TERM; sh -c 'setsid sleep 1000 &'; touch runs; while true; do"
            " sleep 0.05; done"
        )
        follower = cluster.begin("submit", "-n", "runs", "--", "sh", "-c", command)
        cluster.there_is("runs")
        cluster.submit("waits", "--", "true")
        assert "2 live job(s) will be lost" in cluster.iris("cluster", "stop", code=2).err
        cluster.stop()
        assert cluster.file("told").exists()
        assert follower.ends(code=None).code in (4, 125)
        assert cluster.processes() == []
        assert "cluster 'local'" in cluster.iris("cluster", "stop", "local", code=3).err


def test_jobs_of_a_cluster_that_is_stopped_go_on_when_it_is_started_again() -> None:
    """Unless it is ephemeral: what has ended stays ended, what ran runs again, what waited runs at
    last.
    """
    with a_cluster("--cpu", "1") as cluster:
        cluster.iris("submit", "-n", "ended", "--", "echo", "once")
        cluster.submit(
            "interrupted",
            "--",
            "sh",
            "-c",
            f"echo run >> runs; touch runs.$IRIS_ATTEMPT; {until('go')}; echo done",
        )
        cluster.there_is("runs.1")
        cluster.submit("waiting", "--", "echo", "at last")
        address = cluster.address
        cluster.stop()
        assert cluster.processes() == []
        cluster.start()
        assert cluster.address == address
        eventually(lambda: len(cluster.lines("runs")) == 2)
        cluster.file("go").touch()
        cluster.iris("wait", "interrupted", "waiting")
        states = {job["id"]: job["state"] for job in cluster.iris("jobs", "--json").json}
        assert states == {
            f"{USER}/{name}": "SUCCEEDED" for name in ("ended", "interrupted", "waiting")
        }
        assert cluster.lines("runs") == ["run", "run"]
        assert [cluster.logs(job) for job in ("ended", "interrupted", "waiting")] == [
            ["once"],
            ["done"],
            ["at last"],
        ]


@pytest.mark.parametrize(
    ("command", "code"), [(["echo", "here"], 0), (["sh", "-c", "echo here; exit 9"], 125)]
)
def test_a_local_submit_needs_no_cluster_and_leaves_nothing(command: list[str], code: int) -> None:
    """`submit --local`: the program's output and the job's exit code, and afterwards no process and
    no directory.
    """
    with a_home() as home:
        nowhere = Cluster(home)
        assert nowhere.iris("submit", "--local", "--", *command, code=code).out == "here\n"
        assert nowhere.processes() == []
        assert list(home.glob("clusters/*")) == []


def test_ctrl_c_during_a_local_submit_ends_the_job_and_leaves_nothing() -> None:
    """Its cluster is there for it alone, so there is nothing to come back to."""
    with a_home() as home:
        nowhere = Cluster(home)
        running = nowhere.begin(
            "submit", "--local", "--", "sh", "-c", "touch runs; exec sleep 1000"
        )
        try:
            nowhere.there_is("runs")
            running.interrupt()
            running.ends(130)
            assert nowhere.processes() == []
            assert list(home.glob("clusters/*")) == []
        finally:
            nowhere.clear()


def test_a_cluster_that_is_started_in_the_foreground_ends_with_ctrl_c() -> None:
    """It says when it is ready, and takes its processes along."""
    with a_home() as home:
        cluster = Cluster(home)
        running = cluster.begin("cluster", "start", "--local", "--ephemeral")
        try:
            eventually(lambda: "is ready" in running.out)
            assert cluster.host_ids() == [cluster.only_host()]
            running.interrupt()
            running.ends(code=None)
            eventually(lambda: cluster.processes() == [])
        finally:
            cluster.clear()


def test_names_that_cannot_be_are_refused() -> None:
    """Before anything is started."""
    with a_home() as home:
        nowhere = Cluster(home)
        assert (
            "name: 'a/b'"
            in nowhere.iris("cluster", "start", "--local", "-d", "--name", "a/b", code=2).err
        )
        assert nowhere.processes() == []
