"""What happens when processes are killed with `kill -9`: nothing is lost, and nothing is done twice
at once.
"""

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

import psutil
import pytest

from tests.e2e.cluster import PATIENCE, USER, Cluster, a_cluster, alive, eventually, until

pytestmark = pytest.mark.long

#: A program that takes a lock for as long as it lives; whoever finds it taken says so. Attempt 1
#: never ends by itself.
EXCLUSIVE = """
import fcntl, os, pathlib, subprocess, time
me = "task" + os.environ["IRIS_TASK_INDEX"]
lock = open(me + ".lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    pathlib.Path("overlap").touch()
attempt = os.environ["IRIS_ATTEMPT"]
with open(me, "a") as runs:
    print(attempt, file=runs)
print("attempt", attempt, flush=True)
if attempt == "1":
    # A child in a session of its own, which holds the lock as well.
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True, pass_fds=[lock.fileno()])
    pathlib.Path(me + ".pids").write_text(f"{os.getpid()} {child.pid}")
    pathlib.Path(me + ".runs").touch()
    time.sleep(1000)
"""


#: Hosts that join while the cluster looks at its hosts again and again, and stay.
STEADY = ("steady-1", "steady-2", "steady-3", "steady-4")


class Silent:
    """A host whose agent was killed, and a watch on which hosts the cluster still counts in."""

    def __init__(self, cluster: Cluster, victim: str) -> None:
        self.cluster = cluster
        self._victim = victim
        self.gone_after: float | None = None
        #: Those of the steady hosts that were there once and then were not.
        self.vanished: set[str] = set()
        self.program = int(cluster.file("pid").read_text())
        self._killed_at = datetime.now(UTC)
        cluster.kill("agent", victim)
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()

    def _look(self) -> None:
        seen: set[str] = set()
        to_join = list(STEADY)
        while not self._over.wait(1.5):
            if to_join:
                begin_agent(self.cluster, to_join.pop(0), cpu=1)
            there_are = set(self.cluster.host_ids())
            self.vanished |= (seen & set(STEADY)) - there_are
            seen |= there_are
            if self.gone_after is None and self._victim not in there_are:
                self.gone_after = (
                    failed_at(self.cluster, self._victim) - self._killed_at
                ).total_seconds()

    def end(self) -> None:
        self._over.set()
        self._watch.join()


def begin_agent(cluster: Cluster, host: str, *options: str, cpu: int = 4) -> None:
    """An agent of its own joins the cluster by its address, as another machine would."""
    where = [
        "--cluster",
        cluster.address,
        "agent",
        "--join",
        "--run-as=root",
        "--host-id",
        host,
        "--dir",
        str(cluster.home / host),
    ]
    cluster.begin(*where, "--cpu", str(cpu), "--memory", "4g", *options)


def joined(cluster: Cluster, host: str, *options: str, cpu: int = 4) -> None:
    """The agent's host takes work."""
    begin_agent(cluster, host, *options, cpu=cpu)
    eventually(lambda: host in cluster.host_ids(), every=0.3)


def failed_at(cluster: Cluster, slice_id: str) -> datetime:
    """When the slice failed, for the reason that its host was asked and did not answer."""
    status = cluster.slice(slice_id)
    assert status is not None
    (step,) = (step for step in status["steps"] if step["state"] == "FAILED")
    assert step["reason"].endswith("and does not answer"), step
    return datetime.fromisoformat(step["at"])


def has_reported(cluster: Cluster, host: str) -> bool:
    """Whether the service has heard of the host's agent."""
    rows = cluster.iris("debug", "list-workers", "--json").json
    return any(row["host"] == host and row["reported_at"] for row in rows)


@pytest.fixture(scope="module", autouse=True)
def silent() -> Iterator[Silent]:
    """It takes most of a minute to know that a host is gone, so that begins before everything else
    here.
    """
    with a_cluster("--hosts", "0", "--ephemeral", name="wide") as cluster:
        joined(cluster, "silent", cpu=1)  # which its job takes, so that no other is sent there
        cluster.submit(
            "on-silent", "--", "sh", "-c", "echo $$ > pid.new; mv pid.new pid; sleep 1000"
        )
        cluster.there_is("pid")
        # A host that dies before its first report, ten seconds after its start, is found lost up to
        # a quarter of a minute later.
        eventually(lambda: has_reported(cluster, "silent"), every=0.5)
        watched = Silent(cluster, "silent")
        try:
            yield watched
        finally:
            watched.end()


@pytest.mark.parametrize(
    "part", ["controller", "start-dev"], ids=["control-plane", "temporal-service"]
)
def test_jobs_do_not_notice_the_death_of_a_service(part: str) -> None:
    """One task runs, several wait, one is followed; afterwards all have succeeded and each has run
    once.
    """
    with a_cluster("--cpu", "1") as cluster:
        once = "echo $IRIS_JOB_ID:$IRIS_TASK_INDEX >> runs"
        running = cluster.begin(
            "submit",
            "-n",
            "running",
            "--",
            "sh",
            "-c",
            f"echo begin; {once}; touch up; {until('go')}; echo end",
        )
        cluster.there_is("up")
        cluster.submit("waiting", "--replicas", "3", "--", "sh", "-c", once)
        first = cluster.kill(part)
        if part == "controller":
            # A submission needs only the service.
            cluster.submit("meanwhile", "--", "sh", "-c", once)
        eventually(lambda: cluster.pid(part) not in (None, first))
        cluster.file("go").touch()
        assert running.ends().out == "begin\nend\n"
        others = ["waiting", "meanwhile"] if part == "controller" else ["waiting"]
        cluster.iris("wait", *others)
        expected = [f"{USER}/running:0", *(f"{USER}/waiting:{index}" for index in range(3))]
        assert sorted(cluster.lines("runs")) == sorted(
            expected + [f"{USER}/meanwhile:0"] * (part == "controller")
        )
        eventually(lambda: cluster.free_cpu() == [1])


def test_a_cluster_whose_supervisor_was_killed_starts_again_and_goes_on() -> None:
    """With the same jobs at the same address; the task that ran runs again, and never beside its
    first attempt.
    """
    with a_cluster("--cpu", "1") as cluster:
        cluster.submit("exclusive", "--", "python3", "-c", EXCLUSIVE)
        cluster.there_is("task0.runs")
        cluster.submit("waiting", "--", "echo", "at last")
        cluster.kill("cluster", "start")
        assert "no local cluster runs" in cluster.iris("jobs", code=4).err
        cluster.start()
        cluster.iris("wait", "exclusive", "waiting")
        assert cluster.lines("task0") == [
            "1",
            str(cluster.status("exclusive")["tasks"][0]["attempt"]),
        ]
        assert not cluster.file("overlap").exists()
        assert cluster.logs("waiting") == ["at last"]
        cluster.stop()
        assert cluster.processes() == []


def test_an_attempt_that_its_host_cannot_keep_is_ended_and_made_again(silent: Silent) -> None:
    """A program that deletes its own attempt's files is killed, not left alone beside its
    successor.
    """
    cluster = silent.cluster
    joined(cluster, "careless")
    marker = cluster.file("careless")
    careless = (
        f"if [ $IRIS_ATTEMPT = 1 ]; then echo $$ > {marker}; rm -rf ../*; exec sleep 1000; fi; echo"
        " fine"
    )
    elsewhere = [
        "--cluster",
        cluster.address,
        "submit",
        "-n",
        "careless",
    ]  # each attempt in a directory of its own
    assert cluster.iris(*elsewhere, "--", "sh", "-c", careless).out.endswith("fine\n")
    assert not alive(int(marker.read_text()))
    assert cluster.status("careless")["state"] == "SUCCEEDED"


def test_an_agent_that_is_stopped_is_out_at_once_and_its_task_waits_for_another(
    silent: Silent,
) -> None:
    """SIGTERM: the program gets its own, the host leaves the list, the task is PENDING until
    another host can take it.
    """
    cluster = silent.cluster
    joined(cluster, "polite", "--device", "gpu:H100:1", "--attribute", "zone=here")
    (host,) = [
        host for host in cluster.iris("host", "list", "--json").json if host["id"] == "polite"
    ]
    assert (host["slice"], host["attributes"]) == ("polite", {"zone": "here"})
    assert host["resources"]["device"] == {"kind": "gpu", "variant": "H100", "count": 1}
    told = cluster.file("polite.told")
    command = (
        f"trap 'touch {told}; exit' TERM; touch {cluster.file('polite.runs')}; while true; do sleep"
        " 0.05; done"
    )
    cluster.submit("preempted", "--device", "gpu:H100:1", "--", "sh", "-c", command)
    cluster.there_is("polite.runs")
    agent = psutil.Process(cluster.pid("agent", "polite"))
    agent.terminate()
    eventually(lambda: "polite" not in cluster.host_ids(), every=0.3)
    assert "does not answer" not in str(cluster.slice("polite")), "lost for its silence"
    eventually(told.exists)
    eventually(lambda: cluster.status("preempted")["tasks"][0]["state"] == "PENDING", every=0.3)
    with suppress(psutil.NoSuchProcess):
        agent.wait(PATIENCE)
    cluster.iris("cancel", "preempted")
    cluster.iris("wait", "preempted", code=126)


def test_a_second_agent_of_the_same_host_is_refused(silent: Silent) -> None:
    """Two would take each other's attempts for leftovers; exit code 5, and the first goes on."""
    cluster = silent.cluster
    joined(cluster, "twice")
    again = [
        "--cluster",
        cluster.address,
        "agent",
        "--join",
        "--run-as=root",
        "--host-id",
        "twice",
        "--dir",
        str(cluster.home / "twice"),
    ]
    assert (
        "an agent for host twice runs on this machine already" in cluster.iris(*again, code=5).err
    )
    assert "twice" in cluster.host_ids()


def test_a_host_whose_agent_was_killed_is_lost_and_its_program_ends(silent: Silent) -> None:
    """Its slice fails, not sooner than its agent could come back, and its program's lease runs
    out.
    """
    eventually(lambda: not alive(silent.program))
    assert eventually(lambda: silent.gone_after) > 40


def test_a_host_that_has_just_joined_is_never_taken_for_a_silent_one(silent: Silent) -> None:
    """Its agent's first report may take ten seconds; the hosts that came while a dead one was
    looked for are all still there.
    """
    eventually(lambda: silent.gone_after)
    assert set(STEADY) <= set(silent.cluster.host_ids())
    assert silent.vanished == set()


def test_a_host_that_comes_back_after_it_was_given_up_serves_again(silent: Silent) -> None:
    """In a new life: the former one is not entered into the book again, whatever lies on its
    disk.
    """
    eventually(lambda: silent.gone_after)
    joined(silent.cluster, "silent", cpu=1)
    silent.cluster.iris("cancel", "on-silent")
    assert (
        silent.cluster.iris("submit", "--cpu", "1", "--", "sh", "-c", "echo $IRIS_HOST_ID").out
        != ""
    )
