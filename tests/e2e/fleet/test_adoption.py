"""Agents that die, are stopped and are replaced while programs run: nothing is lost, nothing is
done twice at once.
"""

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.e2e.cluster import Cluster, a_cluster, alive, eventually, until

pytestmark = pytest.mark.long

#: A program that holds a lock for as long as it or its child lives, and says when it begins, works
#: and ends; whoever finds the lock taken says so. Its arguments: a name, how many lines, seconds
#: between two, the exit code (negative: a signal to itself).
WORK = """
import fcntl, os, pathlib, signal, subprocess, sys, time
name, lines, pause, code = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
lock = open(name + ".lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    pathlib.Path("overlap-" + name).touch()
attempt = os.environ["IRIS_ATTEMPT"]
with open(name + ".runs", "a") as runs:
    print("begin", attempt, file=runs)
child = subprocess.Popen(["sleep", "1000"], start_new_session=True, pass_fds=[lock.fileno()])
for number in range(lines):
    print(name, attempt, number, flush=True)
    time.sleep(pause)
pathlib.Path(os.environ["IRIS_OUTPUT_DIR"], "result").write_text(name)
with open(name + ".runs", "a") as runs:
    print("end", attempt, file=runs)
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def attempt_dirs(cluster: Cluster) -> list[Path]:
    """The directories of attempts that are on any host of the cluster."""
    return sorted((cluster.home / "clusters").glob("*/machines/*/hosts/*/attempts/*"))


def test_a_program_outlives_its_agent_and_is_adopted_by_the_next_one() -> None:
    """`kill -9` of the agent: one attempt, every line once, the true exit code, nothing left; its
    GPUs stay its own.
    """
    with a_cluster("--cpu", "2", "--device", "gpu:H100:8", "--ephemeral") as cluster:
        program = (
            f"echo $$ > pid; echo $CUDA_VISIBLE_DEVICES; touch up; {until('go')}; echo two; exit 7"
        )
        followed = cluster.begin("submit", "-n", "orphan", "--gpu", "4", "--", "sh", "-c", program)
        cluster.there_is("up")
        host = cluster.only_host()
        first = cluster.kill("agent", host)
        eventually(lambda: cluster.pid("agent", host) not in (None, first))
        assert alive(int(cluster.file("pid").read_text()))
        beside = cluster.iris(
            "submit", "-n", "beside", "--gpu", "4", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"
        )
        assert beside.out == "4,5,6,7\n"
        cluster.file("go").touch()
        assert followed.ends(code=125).out == "0,1,2,3\ntwo\n"
        (task,) = cluster.status("orphan")["tasks"]
        assert (task["attempt"], task["exit_code"]) == (1, 7)
        eventually(lambda: cluster.free_cpu() == [2])
        eventually(lambda: attempt_dirs(cluster) == [])
        assert list(cluster.hosts()) == [host]


def test_a_program_that_ends_while_there_is_no_agent_has_its_true_end() -> None:
    """What the shim put down is what counts; the lines written meanwhile are all there."""
    with a_cluster("--cpu", "2", "--ephemeral") as cluster:
        cluster.submit(
            "alone", "--", "sh", "-c", f"touch up; {until('go')}; seq 1000; touch ended; exit 3"
        )
        cluster.there_is("up")
        with cluster.no_machine_starts():
            cluster.kill("agent", cluster.only_host())
            cluster.file("go").touch()
            cluster.there_is("ended")
        cluster.iris("wait", "alone", code=125)
        (task,) = cluster.status("alone")["tasks"]
        assert (task["attempt"], task["exit_code"]) == (1, 3)
        assert cluster.logs("alone") == [str(number) for number in range(1, 1001)]


def test_an_agent_starts_and_adopts_while_the_store_is_away_and_the_log_is_whole() -> None:
    """It could not start, so programs died by their leases; or, as root, it created the missing
    directory and stored there.
    """
    with a_cluster("--cpu", "2", "--ephemeral") as cluster:
        program = (
            f"touch up; echo one; {until('go')}; echo two; touch said; {until('end')}; echo three;"
            " exit 3"
        )
        cluster.submit("stored", "--", "sh", "-c", program)
        cluster.there_is("up")
        eventually(lambda: cluster.logs("stored") == ["one"])
        store = cluster.home / "clusters" / "local" / "store"
        away = store.rename(store.with_name("not-mounted"))
        host = cluster.only_host()
        first = cluster.kill("agent", host)
        eventually(lambda: cluster.pid("agent", host) not in (None, first))
        cluster.file("go").touch()
        cluster.there_is("said")
        eventually(
            lambda: (
                len(cluster.hosts()) == 1
                and cluster.status("stored")["tasks"][0]["state"] == "RUNNING"
            )
        )
        assert not store.exists()
        away.rename(store)
        cluster.file("end").touch()
        cluster.iris("wait", "stored", code=125)
        (task,) = cluster.status("stored")["tasks"]
        assert (task["attempt"], task["exit_code"]) == (1, 3)
        eventually(lambda: cluster.logs("stored") == ["one", "two", "three"])


def test_an_agent_that_is_told_to_make_way_leaves_its_programs_to_the_next_one() -> None:
    """SIGHUP, as an upgrade does: the program notices nothing, the attempt stays the same."""
    with a_cluster("--cpu", "2", "--ephemeral") as cluster:
        followed = cluster.begin(
            "submit",
            "-n",
            "upgraded",
            "--",
            "sh",
            "-c",
            f"touch up; {until('go')}; echo $IRIS_ATTEMPT",
        )
        cluster.there_is("up")
        host = cluster.only_host()
        before = cluster.pid("agent", host)
        assert before is not None
        os.kill(before, signal.SIGHUP)
        eventually(lambda: cluster.pid("agent", host) not in (None, before))
        cluster.file("go").touch()
        assert followed.ends().out == "1\n"


def test_a_job_that_is_cancelled_while_there_is_no_agent_is_ended_by_the_next_one() -> None:
    """The adopted program gets its SIGTERM, and its last words are kept."""
    with a_cluster("--cpu", "2", "--ephemeral") as cluster:
        program = "trap 'echo asked to stop; exit' TERM; touch up; while true; do sleep 0.05; done"
        cluster.submit("cancelled", "--", "sh", "-c", program)
        cluster.there_is("up")
        with cluster.no_machine_starts():
            cluster.kill("agent", cluster.only_host())
            cluster.iris("cancel", "cancelled")
        cluster.iris("wait", "cancelled", code=126)
        assert "asked to stop" in cluster.logs("cancelled")
        eventually(lambda: cluster.free_cpu() == [2])


def test_a_program_whose_agent_stays_away_is_killed_before_its_successor_starts() -> None:
    """The lease runs out after 50 s, the server's patience after 60: they never meet, though the
    machine itself is well.
    """
    with a_cluster("--cpu", "1", "--ephemeral") as cluster:
        cluster.submit("fenced", "--", "python3", "-c", WORK, "fenced", "600", "0.2", "0")
        eventually(lambda: cluster.lines("fenced.runs") == ["begin 1"])
        programs = cluster.processes_with("fenced")
        with cluster.no_machine_starts():
            cluster.kill("agent", cluster.only_host())
            gone, left = psutil.wait_procs(programs, timeout=58)
        assert gone
        assert not left
        eventually(
            lambda: cluster.status("fenced")["tasks"][0]["attempt"] > 1, within=120, every=0.5
        )
        cluster.iris("cancel", "fenced")
        cluster.iris("wait", "fenced", code=126)
        assert not cluster.file("overlap-fenced").exists()
