"""A pool of workers on a cluster that the program starts for itself: calls, their results, and
deaths of everything between.
"""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, as_completed
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path

import pytest

import iris
from iris.client.functions.result import RemoteTraceback
from iris.client.jobs.lists import JobFilter
from iris.client.pool import frames
from iris.model.states import JobState
from tests.e2e.cluster import Cluster, eventually

pytestmark = pytest.mark.long

SMALL = iris.Resources(cpu=0.2, memory="256m")


@pytest.fixture(scope="module")
def state() -> Iterator[Cluster]:
    """The state directory of these programs, and what is left in it."""
    with (
        tempfile.TemporaryDirectory(prefix="iris-") as directory,
        tempfile.TemporaryDirectory() as current,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("IRIS_STATE_DIR", directory)
        patch.setenv("IRIS_USER", "ada")
        patch.chdir(current)
        here = Cluster(Path(directory))
        yield here
        here.clear()


@pytest.fixture(scope="module")
def client(state: Cluster) -> Iterator[iris.IrisClient]:
    with iris.IrisClient.local() as client:
        yield client


def squared_after(seconds: float, number: int, marks: str) -> int:
    """Leaves a mark for each time that it is run."""
    Path(marks, f"{number}-{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(seconds)
    return number**2


def raises(text: str) -> None:
    raise FloatingPointError(text)


def test_a_pool_is_an_executor_of_the_standard_library(client: iris.IrisClient) -> None:
    """Programs for one machine go on working, with other machines."""
    with iris.WorkerPool(client, 2, resources=SMALL, name="standard") as pool:
        futures = {pool.submit(pow, number, 2): number for number in range(20)}
        assert {futures[future]: future.result() for future in as_completed(futures)} == {
            n: n**2 for n in range(20)
        }
        assert list(pool.map(divmod, range(3000), [7] * 3000)) == [
            divmod(number, 7) for number in range(3000)
        ]
        assert list(pool.map(abs, [])) == []
        taken = pool.map(str, iter(int, 1), buffersize=50)  # without an end
        assert [next(taken) for _ in range(5)] == ["0"] * 5
        taken.close()

        failed = pool.submit(raises, "loss is nan")
        with pytest.raises(FloatingPointError, match="loss is nan"):
            failed.result()
        assert isinstance(cause := getattr(failed.exception(), "__cause__", None), RemoteTraceback)
        assert "in raises" in str(cause)
        with pytest.raises(FutureTimeout):
            list(pool.map(time.sleep, [1], timeout=0.1))
        # Larger than what Temporal takes.
        assert len(pool.submit(bytes, 3_000_000).result()) == 3_000_000
        assert pool.submit(len, bytes(3_000_000)).result() == 3_000_000
        with pytest.raises(iris.CallLost, match="code 3"):
            pool.submit(os._exit, 3).result()
        with pytest.raises(iris.Rejected, match="lock"):
            pool.submit(abs, threading.Lock())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(frames, "LARGEST", 1024)
            with pytest.raises(iris.Rejected, match=r"of arguments; the limit is 1 KiB"):
                pool.submit(len, bytes(1024))
        (job,) = pool.jobs
    assert client.job(job).wait(60).state is JobState.KILLED
    for expected in (RuntimeError, iris.PoolClosed):  # the former is that of every executor
        with pytest.raises(expected, match="was shut down"):
            pool.submit(abs, 1)


def test_a_list_has_the_jobs_of_pools_alone(client: iris.IrisClient) -> None:
    """The dashboard shows them without reading all jobs. Their mark is no tag of the user's."""
    with iris.WorkerPool(client, 1, resources=SMALL, name="listed") as pool:
        assert pool.submit(abs, -1).result() == 1
        other = client.submit(["pool-worker"], name="other", resources=SMALL, tags={"pool": ""})
        eventually(lambda: other.id in {row.id for row in client.jobs()})
        (job,) = pool.jobs
        live = client.jobs(JobFilter(live_only=True, pools=True))
        assert [(row.id, row.tags) for row in live] == [(job, {})]
        assert other.id not in {row.id for row in client.jobs(JobFilter(pools=True))}


def test_no_result_is_lost_or_doubled_when_everything_between_is_killed(
    client: iris.IrisClient, state: Cluster, tmp_path: Path
) -> None:
    """A worker, the agent of its host and the control plane: calls may run again, and each has one
    result.
    """
    with iris.WorkerPool(client, 2, resources=SMALL, name="killed") as pool:
        results = pool.map(
            squared_after, [0.1] * 150, range(150), [str(tmp_path)] * 150, chunksize=5
        )
        found = [next(results)]
        for part in ("pool-worker", "controller", "agent"):
            state.kill(part)
            found += [next(results) for _ in range(20)]
        found += list(results)

    assert found == [number**2 for number in range(150)]
    assert len(list(tmp_path.iterdir())) >= 150


def test_a_pool_grows_shrinks_and_comes_back_after_it_was_idle(client: iris.IrisClient) -> None:
    """Idle workers cost money, also those of a program that has crashed; the pool is there for the
    next call all the same.
    """
    with iris.WorkerPool(client, 1, resources=SMALL, name="resized", idle_timeout=3) as pool:
        assert pool.submit(abs, -1).result() == 1
        pool.resize(3)
        eventually(lambda: len(set(pool.map(_pid_after, [0.3] * 6, chunksize=1))) == 3)
        pool.resize(1)
        (first, second) = (client.job(each) for each in ("resized", "resized-2"))
        assert (first.wait(60).state, second.wait(60).state) == (
            JobState.SUCCEEDED,
            JobState.SUCCEEDED,
        )
        eventually(lambda: pool.jobs == [])
        assert pool.submit(abs, -2).result() == 2
        (again,) = pool.jobs
        # On a slow machine, idle workers were replaced in between.
        assert again not in (
            "ada/resized",
            "ada/resized-2",
        )


def test_a_pool_gets_its_workers_although_the_names_of_their_jobs_are_taken(
    client: iris.IrisClient,
) -> None:
    """The user has chosen the first of them only. Two pools of one name are refused."""
    other = client.submit("sleep", "1000", name="taken-2", resources=SMALL)
    with iris.WorkerPool(client, 1, resources=SMALL, name="taken") as pool:
        with pytest.raises(iris.Rejected, match="job ada/taken already exists"):
            iris.WorkerPool(client, 1, resources=SMALL, name="taken")
        pool.resize(2)
        assert pool.jobs == ["ada/taken", "ada/taken-3"]
    other.cancel()


def test_the_calls_of_a_pool_end_with_its_client_and_are_refused_in_a_forked_process(
    client: iris.IrisClient,
) -> None:
    """They would wait for ever: their connection is gone."""
    with iris.IrisClient(client.cluster.name) as own:
        pool = iris.WorkerPool(own, 1, resources=SMALL, name="closed", idle_timeout=1)
        calls = [pool.submit(time.sleep, 1000) for _ in range(6)]
        if (child := os.fork()) == 0:
            try:
                pool.submit(abs, 1)
            except iris.PoolClosed as error:
                os._exit(7 if "was forked from" in str(error) else 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    for call in calls:
        with pytest.raises(iris.IrisError, match="client was closed"):
            call.result(60)
    with pytest.raises(RuntimeError, match="client was closed"):
        pool.submit(abs, 1)
    client.job("closed").cancel()


def _pid_after(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def test_the_calls_of_a_pool_whose_job_is_cancelled_fail_and_say_so(
    client: iris.IrisClient,
) -> None:
    """They would wait for ever."""
    with iris.WorkerPool(client, 1, resources=SMALL, name="broken") as pool:
        calls = [pool.submit(time.sleep, 1000) for _ in range(6)]
        client.job("broken").cancel()
        for call in calls:
            assert isinstance(call.exception(60), BrokenExecutor)
            assert "ada/broken KILLED: cancelled by ada" in str(call.exception())
        with pytest.raises(iris.PoolBroken):
            pool.submit(abs, 1)


async def test_an_asynchronous_program_has_the_same_pool(client: iris.IrisClient) -> None:
    """Without a thread for each call."""
    asynchronous = await iris.AsyncIrisClient.connect(client.cluster.name)
    async with await iris.AsyncWorkerPool.start(asynchronous, 1, resources=SMALL) as pool:
        assert await pool.submit(pow, 2, 5) == 32
        assert [number async for number in pool.map(abs, range(-5, 0))] == [5, 4, 3, 2, 1]
