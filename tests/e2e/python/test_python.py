"""Iris from Python, on a cluster that the program starts for itself: functions as jobs, and
everything that one asks of a job.
"""

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import iris
from iris.client.functions.result import RemoteTraceback
from iris.config import local_config
from iris.model.host.accelerators import tpu
from iris.model.states import JobState, TaskState
from tests.e2e.cluster import Cluster, eventually
from tests.images import docker_image

pytestmark = pytest.mark.long


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
    """A cluster with a slice of four hosts."""
    with iris.IrisClient.local(local_config("any", tpu=tpu("v5litepod-16"))) as client:
        yield client
    eventually(lambda: not state.processes())  # the cluster does not outlive its client


def rank_and_size(base: int) -> tuple[int, int]:
    """What each task of a slice does: it says who it is."""
    sys.stdout.write(f"rank {os.environ['IRIS_TASK_INDEX']}\n")
    Path(os.environ["IRIS_OUTPUT_DIR"], "rank.txt").write_text(os.environ["IRIS_TASK_INDEX"])
    return base + int(os.environ["IRIS_TASK_INDEX"]), int(os.environ["IRIS_NUM_TASKS"])


def test_a_function_runs_on_every_host_of_a_slice_and_each_has_its_result_logs_and_files(
    client: iris.IrisClient, tmp_path: Path
) -> None:
    """The first thing that a researcher tries."""
    job = client.submit(rank_and_size, 10, resources=iris.Resources(tpu="v5litepod-16"))

    assert job.results() == [(10, 4), (11, 4), (12, 4), (13, 4)]
    assert job.result() == (10, 4)
    assert job.status().state is JobState.SUCCEEDED
    assert sorted(entry.text for entry in job.logs(follow=True) if entry.stream == "stdout") == [
        f"rank {n}" for n in range(4)
    ]
    assert [str(entry) for entry in job.logs(task=2)][-1] == "rank 2"
    assert sorted(path.relative_to(tmp_path).as_posix() for path in job.fetch(tmp_path)) == [
        f"{n}/rank.txt" for n in range(4)
    ]
    assert [path.read_text() for path in job.fetch(tmp_path / "one", task=2, attempt=1)] == ["2"]
    with pytest.raises(iris.NotFound, match="no task 4"):
        job.fetch(tmp_path, task=4)
    with pytest.raises(iris.InvalidValue, match="attempt: '1' does not go with checkpoint"):
        job.fetch(tmp_path, attempt=1, checkpoint=True)
    assert client.jobs()[0].command == "4 x tests.e2e.python.test_python:rank_and_size"


def test_an_exception_of_the_function_is_raised_where_its_result_is_asked_for(
    client: iris.IrisClient,
) -> None:
    """With the same type, so that a program can handle it; the cause shows where in the job it was
    raised.
    """

    def diverges() -> None:
        raise FloatingPointError("loss is nan")

    job = client.submit(diverges)
    with pytest.raises(FloatingPointError, match="loss is nan") as raised:
        job.result()

    assert isinstance(raised.value.__cause__, RemoteTraceback)
    assert "in diverges" in str(raised.value.__cause__)
    assert job.status().state is JobState.FAILED


def parent_with_a_package() -> tuple[str, int, str]:
    import yaml

    here = iris.context()
    child = here.client.submit(abs, -3, name="child", resources=iris.Resources(cpu=0.1))
    return yaml.safe_dump([here.task]), child.result(), child.id


def test_a_function_has_the_packages_of_its_program_on_a_cluster_of_this_machine(
    client: iris.IrisClient,
) -> None:
    """A researcher's numpy, and Iris: its context, and jobs that belong to it. Nothing has to be
    installed for them.
    """
    job = client.submit(parent_with_a_package, name="parent", resources=iris.Resources(cpu=0.1))

    assert job.result() == ("- 0\n", 3, "ada/parent/child")


def test_the_calls_of_a_pool_have_the_packages_of_its_program_too(client: iris.IrisClient) -> None:
    """Its workers are tasks of a job like others."""
    with iris.WorkerPool(
        client, 1, resources=iris.Resources(cpu=0.1, memory="256m"), name="packages"
    ) as pool:
        assert pool.submit(_number_of_the_task).result() == 0


def _number_of_the_task() -> int:
    import yaml

    number: int = yaml.safe_load(str(iris.context().task))
    return number


def test_a_program_without_a_function_has_no_result_and_fails_by_its_exit_code(
    client: iris.IrisClient,
) -> None:
    """The status, the exit code and the last lines are part of the error, so that no second call is
    needed to know why.
    """
    assert client.submit("sh", "-c", "echo fine").result() is None
    with pytest.raises(iris.JobFailed, match=r"ada/sh-\w+ FAILED: .*code 3") as failed:
        client.submit(["sh", "-c", "echo no such data >&2; exit 3"], name="sh-fails").result()
    assert failed.value.status is not None
    assert (failed.value.task_exit_code, failed.value.last_lines) == (3, ("no such data",))


def test_a_result_of_another_user_is_not_unpickled_unless_he_is_trusted(
    client: iris.IrisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pickle runs the code of whoever has written it."""
    job = client.submit(int, "7")
    assert job.result() == 7
    monkeypatch.setenv("IRIS_USER", "eve")
    with pytest.raises(iris.Rejected, match=r"can run code of ada; to trust it, pass trusted=True"):
        client.job(job.id).result()
    assert client.job(job.id).result(trusted=True) == 7


def first_is_killed_and_second_raises() -> int:
    rank = int(os.environ["IRIS_TASK_INDEX"])
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1:
        raise KeyError("one")
    return rank


def test_the_results_of_a_job_that_may_lose_tasks_say_which_it_has_lost(
    client: iris.IrisClient,
) -> None:
    """A crashed task is not one that has returned None, and the others' results are not lost."""
    job = client.submit(
        first_is_killed_and_second_raises,
        replicas=3,
        max_task_failures=2,
        resources=iris.Resources(cpu=0.1),
    )
    killed, raised, fine = job.results(return_exceptions=True)

    assert isinstance(killed, iris.JobFailed)
    assert "SIGKILL" in str(killed)
    assert (repr(raised), fine) == ("KeyError('one')", 2)
    with pytest.raises(iris.JobFailed, match="task 0 of"):
        job.results()


def test_an_earlier_job_of_a_name_leaves_the_later_one_alone(client: iris.IrisClient) -> None:
    """A handle is that of its own run, also when it cancels."""
    earlier = client.submit(abs, -1, name="named-again")
    assert earlier.result() == 1
    later = client.submit("sleep", "1000", name="named-again")
    eventually(lambda: later.status().state is JobState.RUNNING)
    earlier.cancel()

    assert (earlier.result(), earlier.status().state) == (1, JobState.SUCCEEDED)
    with pytest.raises(iris.WaitTimeout):
        later.wait(timeout=1, stream_logs=True)
    later.cancel()
    assert later.wait().state is JobState.KILLED


def test_a_wait_that_is_over_leaves_the_job_alone(client: iris.IrisClient) -> None:
    """Nothing is cancelled unless somebody says so."""
    job = client.submit("sleep", "1000")
    with pytest.raises(iris.WaitTimeout, match="it continues"):
        job.wait(timeout=0.1)
    with pytest.raises(iris.WaitTimeout, match="within 250ms; it continues"):
        job.wait(timeout="250ms")
    with pytest.raises(iris.WaitTimeout, match="within 0s; it continues"):
        job.wait(timeout=-3)  # what is left of the time of a program
    eventually(lambda: job.status().state is JobState.RUNNING)
    assert job.exec("sh", "-c", "echo $IRIS_JOB_ID; exit 3")[:2] == (3, f"{job.id}\n")
    with pytest.raises(iris.InvalidValue, match="command: '' is empty"):
        job.exec()
    with pytest.raises(iris.NotFound, match="no task 3"):
        list(job.logs(task=3))
    assert job.exec("cat", input="typed")[:2] == (0, "typed")
    assert job.exec("wc", "-c", input=io.BytesIO(b"x" * 200_000)).stdout.strip() == "200000"
    assert job.exec("true", input=io.BytesIO(b"x" * 200_000)).exit_code == 0
    job.cancel()
    with pytest.raises(iris.JobCancelled):
        job.result()


def test_one_task_of_several_is_cancelled_and_the_results_of_the_others_come_back(
    client: iris.IrisClient,
) -> None:
    """In a sweep; `results` must neither wait for what will never come nor pass it over."""
    job = client.submit(_waits_if_second, replicas=2)
    eventually(lambda: job.tasks()[1].state is TaskState.RUNNING)
    job.cancel("diverges", task=1)

    assert job.wait().state is JobState.SUCCEEDED
    first, second = job.results(return_exceptions=True)
    assert first == 0
    assert isinstance(second, iris.JobCancelled)
    with pytest.raises(iris.JobCancelled, match=r"task 1 of .* was cancelled: diverges"):
        job.results()


def _waits_if_second() -> int:
    import os
    import time

    index = int(os.environ["IRIS_TASK_INDEX"])
    time.sleep(1000 * index)
    return index


def test_an_entry_point_has_its_arguments_and_can_be_submitted_again(
    client: iris.IrisClient,
) -> None:
    """The original's way to say what a job runs."""
    power = iris.Entrypoint.from_callable(pow, 2, exp=10)
    assert [client.submit(power).result() for _ in range(2)] == [1024, 1024]
    assert (
        client.submit(iris.Entrypoint.from_command("sh", "-c", "exit 4")).wait().tasks[0].exit_code
        == 4
    )
    with pytest.raises(
        iris.IrisError,
        match=r"arguments: '3, mod' are given beside an entry point, which has its own",
    ):
        client.submit(power, 3, kwargs={"mod": 5})


def test_a_program_asks_before_it_submits_what_would_become_of_it(client: iris.IrisClient) -> None:
    """As `iris submit --dry-run`: a sweep is sized by what is there."""
    assert len(client.forecast(resources=iris.Resources(tpu="v5litepod-16")).hosts) == 4
    never = client.forecast(resources=iris.Resources(cpu=10_000)).infeasible
    assert never is not None
    assert "needs 10000 cpu" in never.message


def waits_for_ever() -> None:
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    threading.Event().wait()


def test_a_running_function_is_looked_into(client: iris.IrisClient) -> None:
    """As `iris profile`: where does it hang?"""
    job = client.submit(waits_for_ever)
    assert "begun" in (entry.text for entry in job.logs(follow=True))
    assert b"waits_for_ever" in job.profile()
    with pytest.raises(iris.InvalidValue, match="write dump, "):
        job.profile(format="pdf")
    job.cancel()


def test_a_program_has_what_the_commands_for_a_cluster_have(client: iris.IrisClient) -> None:
    """A notebook looks at hosts and closes one; no shell is needed."""
    name = client.hosts.list()[0].host.id
    slices = [client.slices.show(row.id) for row in client.slices.list()]
    assert name in [host.id for each in slices for host in each.hosts]
    client.hosts.cordon(name, "noisy")
    assert "noisy" in str(client.hosts.show(name).closed)
    client.hosts.uncordon(name)
    client.autoscaler.pause("tests")
    eventually(lambda: client.autoscaler.status().paused)
    client.autoscaler.resume()
    client.cluster.pause("tests")
    assert "tests" in str(client.cluster.status().paused)
    client.cluster.resume()
    assert client.cluster.status().paused is None


def test_a_job_is_held_released_moved_and_shown_from_a_notebook(client: iris.IrisClient) -> None:
    """As `iris hold`, `release`, `priority` and `status --resources`."""
    client.cluster.pause("so that the job waits")
    job = client.submit("sleep", "1000", name="waits")
    job.hold("not yet")
    eventually(lambda: job.status().state is JobState.HELD)
    assert "ada/waits</a></b> HELD" in job._repr_html_()
    job.set_priority("batch")
    with pytest.raises(iris.IrisError, match="write production, interactive, batch"):
        job.set_priority("urgent")
    job.release()
    client.cluster.resume()
    eventually(lambda: job.status().state is JobState.RUNNING)
    assert [task.task for task in job.usage()] == [0]
    assert client.jobs()[0].priority == "batch"
    job.cancel()
    job.wait()
    assert "ada/never" in client.job("never")._repr_html_()


def test_a_forked_process_leaves_the_cluster_of_its_parent_alone(client: iris.IrisClient) -> None:
    """A worker of `multiprocessing` leaves its copy of the parent's `with` block, and the parent
    continues.
    """
    if (child := os.fork()) == 0:
        client.close()
        os._exit(0)
    os.waitpid(child, 0)

    assert client.submit(abs, -1).result() == 1


def test_two_hundred_submissions_of_ten_threads_are_two_hundred_jobs(
    client: iris.IrisClient, tmp_path: Path
) -> None:
    """One client serves all threads of a program, and each job runs once."""
    runs = tmp_path / "runs"

    def submitted(number: int) -> iris.Job[None]:
        return client.submit(
            "sh", "-c", f"echo {number} >> {runs}", resources=iris.Resources(cpu=0.5, memory="64m")
        )

    with ThreadPoolExecutor(10) as threads:
        jobs = list(threads.map(submitted, range(200)))
        ends = list(threads.map(iris.Job.wait, jobs))

    assert len({job.id for job in jobs}) == 200
    assert {end.state for end in ends} == {JobState.SUCCEEDED}
    assert sorted(runs.read_text().split(), key=int) == [str(number) for number in range(200)]


def test_ten_threads_get_the_results_of_their_own_jobs(client: iris.IrisClient) -> None:
    """Functions, which are pickled and unpickled at the same time."""
    with ThreadPoolExecutor(10) as threads:
        jobs = list(
            threads.map(
                lambda number: client.submit(abs, -number, resources=iris.Resources(cpu=0.5)),
                range(50),
            )
        )
        assert list(threads.map(iris.Job.result, jobs)) == list(range(50))


def test_a_result_of_fifty_megabytes_comes_back(client: iris.IrisClient) -> None:
    """It is a file of the job's outputs, and passes no message."""
    assert client.submit(bytes, 50_000_000).result() == bytes(50_000_000)


def test_the_guide_runs_from_its_first_block_to_its_last(
    state: Cluster, client: iris.IrisClient, tmp_path: Path
) -> None:
    """docs/python.md, as one program. It has a cluster of its own."""
    guide = Path(__file__).parents[3] / "docs" / "python.md"
    blocks = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)
    assert len(blocks) > 4
    (tmp_path / "guide.py").write_text("".join(blocks))
    ran = subprocess.run(
        [sys.executable, "guide.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )

    assert ran.returncode == 0, ran.stderr
    assert "the job raised loss is nan" in ran.stdout
    assert "step 1 loss 0.25" in ran.stdout


@pytest.mark.docker
def test_a_function_runs_in_an_image_that_has_never_heard_of_iris(client: iris.IrisClient) -> None:
    """It has an interpreter and its standard library; the rest comes with the call."""
    factor = 6
    job = client.submit(lambda by: factor * by, 7, image=docker_image())

    assert job.result() == 42


def test_the_jobs_of_a_client_get_the_files_of_its_workspace(
    client: iris.IrisClient, tmp_path: Path
) -> None:
    """A program names its directory once; a job can still have none, or another."""
    (tmp_path / ".irisignore").touch()
    (tmp_path / "data.txt").write_text("of the workspace")
    with iris.IrisClient.remote(client.cluster.name, workspace=tmp_path) as here:
        job = here.submit("cat", "data.txt")
        assert job.wait().state is JobState.SUCCEEDED
        assert [str(entry) for entry in job.logs() if entry.stream == "stdout"] == [
            "of the workspace"
        ]
        assert here.submit("cat", "data.txt", workspace=False).wait().state is JobState.FAILED


def test_a_managed_cluster_of_a_configuration_is_used_by_its_address(state: Cluster) -> None:
    """As the programs of the seed about ClusterManager do: any configuration, simulated, for the
    time of a block.
    """
    text = (Path(__file__).parents[3] / "examples" / "eu-west4.yaml").read_text()
    manager = iris.ClusterManager(
        iris.make_local_config(iris.load_config(text), "managed"), ephemeral=True, owned=True
    )
    assert manager.is_local
    with pytest.raises(RuntimeError):
        _ = manager.controller
    with manager.connect() as address, iris.IrisClient.remote(address) as client:
        assert client.submit(
            rank_and_size, 10, resources=iris.Resources(tpu="v5litepod-16")
        ).results()[3] == (13, 4)
        assert manager.controller.status().healthy
    assert state.pid("managed") is None


async def test_a_cluster_is_started_and_stopped_where_an_event_loop_runs(state: Cluster) -> None:
    """A notebook's cells run in one."""
    with iris.IrisClient.local() as client:
        assert client.submit(abs, -3).result() == 3


KILLED = """
import os, signal, iris
client = iris.IrisClient.local()
print(client.submit("sleep", "1000").id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_cluster_ends_with_the_program_that_started_it_however_that_ends(
    state: Cluster, client: iris.IrisClient
) -> None:
    """A notebook's kernel is killed for its memory; nothing may go on in the background."""
    before = {process.pid for process in state.processes()}
    ended = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=240
    )

    assert ended.stdout.startswith("ada/sleep-"), ended.stderr
    eventually(lambda: {process.pid for process in state.processes()} <= before)
