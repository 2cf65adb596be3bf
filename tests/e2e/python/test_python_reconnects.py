"""Programs that wait for jobs while other processes are killed: they continue, and never cancel a
job unasked.
"""

import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import iris
from iris.model.states import JobState
from tests.e2e.client import COUNTS, connected
from tests.e2e.cluster import USER, Running, a_cluster, eventually, until

pytestmark = pytest.mark.long


def answer() -> int:
    from pathlib import Path
    from time import sleep

    while not Path("go").exists():
        sleep(0.05)
    return 42


def test_waits_results_and_followed_logs_survive_the_service_and_the_control_plane() -> None:
    """The connections are lost twice. Every line of the log is there once, and each job has run
    once.
    """
    with (
        a_cluster("--cpu", "4", "--hosts", "1") as cluster,
        connected(cluster) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        counts = client.submit("sh", "-c", COUNTS, name="counts", workdir=str(cluster.work))
        answers = client.submit(answer, name="answers", workdir=str(cluster.work))
        followed = threads.submit(lambda: [entry.text for entry in counts.logs(follow=True)])
        waiting = [threads.submit(wait) for wait in (counts.wait, answers.wait, answers.result)]
        eventually(
            lambda: [job.status().state for job in (counts, answers)] == [JobState.RUNNING] * 2
        )
        for part in ("start-dev", "controller"):
            killed = cluster.kill(part)
            eventually(lambda part=part, killed=killed: cluster.pid(part) not in (None, killed))  # type: ignore[misc]
        assert not any(each.done() for each in (followed, *waiting))
        cluster.file("go").touch()

        ends = [each.result(timeout=120) for each in waiting]
        assert [ends[0].state, ends[1].state, ends[2]] == [
            JobState.SUCCEEDED,
            JobState.SUCCEEDED,
            42,
        ]
        assert [task.attempt for end in ends[:2] for task in end.tasks] == [1, 1]
        *lines, end = followed.result(timeout=120)
        assert lines == [f"line {number}" for number in range(len(lines))]
        assert end == f"end {len(lines)}"


def test_the_end_of_its_cluster_ends_a_wait_with_an_error() -> None:
    """A log that just stopped would look like that of a job that has ended."""
    with (
        a_cluster("--hosts", "1", "--ephemeral") as cluster,
        connected(cluster) as client,
        ThreadPoolExecutor(2) as threads,
    ):
        job = client.submit("sleep", "1000")
        following, waiting = (
            threads.submit(lambda: list(job.logs(follow=True))),
            threads.submit(job.wait),
        )
        eventually(lambda: job.status().state is JobState.RUNNING)
        cluster.stop()

        for each in (following, waiting):
            with pytest.raises(
                iris.Unreachable,
                match=r"cluster local was stopped before job ada/sleep-\w+ had ended",
            ):
                each.result(timeout=120)


INTERRUPTED = """
import iris
client = iris.IrisClient("local")
job = client.job("long")
for wait in (job.wait, job.result, lambda: job.wait(stream_logs=True), lambda: list(job.logs(follow=True))):
    try:
        print("waits", flush=True)
        wait()
    except KeyboardInterrupt:
        print("interrupted", job.status().state, flush=True)
"""


def test_ctrl_c_ends_a_wait_and_not_the_job() -> None:
    """Who leaves a notebook's cell wants the cell back."""
    with a_cluster("--hosts", "1", "--ephemeral") as cluster:
        cluster.submit("long", "--", "sh", "-c", f"echo begun; {until('go')}")
        eventually(lambda: cluster.status("long")["state"] == "RUNNING")
        env = {"IRIS_STATE_DIR": str(cluster.home), "IRIS_USER": USER}
        program = Running([sys.executable, "-c", INTERRUPTED], env, cluster.work, cluster.home)
        for number in range(1, 5):
            eventually(lambda number=number: program.out.count("waits\n") == number)  # type: ignore[misc]
            program.process.send_signal(signal.SIGINT)
            eventually(lambda number=number: program.out.count("interrupted RUNNING\n") == number)  # type: ignore[misc]
        program.ends()
        cluster.file("go").touch()
        cluster.iris("wait", "long")
        assert cluster.logs("long") == ["begun"]


MAPPED = """
import time
import iris

def slow(number):
    time.sleep(0.1)
    return number

try:
    with iris.WorkerPool(iris.IrisClient("local"), 2, resources=iris.Resources(cpu=0.2, memory="256m")) as pool:
        for calls in (60, 100):
            for number in pool.map(slow, range(calls), chunksize=5):
                print(calls, number, flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_a_map_of_a_pool_survives_the_service_and_ctrl_c_ends_it() -> None:
    """A lost connection costs no result. Who presses Ctrl-C gets the terminal back, also right
    after a restart of the service.
    """
    with a_cluster("--cpu", "4", "--hosts", "1") as cluster:
        env = {"IRIS_STATE_DIR": str(cluster.home), "IRIS_USER": USER}
        program = Running([sys.executable, "-c", MAPPED], env, cluster.work, cluster.home)
        for seen in ("60 5\n", "100 5\n"):
            eventually(lambda seen=seen: seen in program.out)  # type: ignore[misc]
            killed = cluster.kill("start-dev")
            eventually(lambda killed=killed: cluster.pid("start-dev") not in (None, killed))  # type: ignore[misc]
        program.process.send_signal(signal.SIGINT)
        lines = program.ends().out.splitlines()
        assert [line for line in lines if line.startswith("60 ")] == [
            f"60 {number}" for number in range(60)
        ]
        assert lines[-1] == "interrupted"
