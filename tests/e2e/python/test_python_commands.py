"""What only the command line could do before: a program runs jobs again, reads parts of logs,
forwards ports, makes schedules.
"""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest

import iris
from iris.model.states import JobState
from tests.e2e.cluster import eventually
from tests.e2e.python.test_python import client, state

__all__ = ["client", "state"]

pytestmark = pytest.mark.long


def test_a_function_is_run_by_a_schedule_and_its_last_result_is_read(
    client: iris.IrisClient,
) -> None:
    """As `iris schedule create`, without a specification by hand."""
    row = client.schedule(
        abs,
        -5,
        when=iris.When(cron="0 2 * * *"),
        overlap=iris.Overlap.CANCEL,
        paused=True,
        name="nightly",
    )
    assert (row.id, row.when, row.command) == ("ada/nightly", "0 2 * * * UTC", "builtins:abs")
    client.schedules.trigger("nightly")
    # The schedule's own workflow starts the job a moment after the run is listed.
    eventually(lambda: [job.id for job in client.jobs() if job.id == "ada/nightly"])

    assert client.job("nightly").result() == 5
    assert client.schedules.show("nightly").overlap is iris.Overlap.CANCEL
    assert client.schedules.delete("nightly") == "ada/nightly"


def first_fails_once() -> str:
    """The second of two tasks fails in its first run."""
    mark = Path(os.environ["MARK"])
    if os.environ["IRIS_ARRAY_INDEX"] == "8" and not mark.exists():
        mark.touch()
        raise RuntimeError("not yet")
    return os.environ["IRIS_ARRAY_INDEX"]


def test_a_job_is_run_again_and_its_runs_are_told_apart_by_their_numbers(
    client: iris.IrisClient, tmp_path: Path
) -> None:
    """As `iris rerun` and `NAME#1`; a sweep is repeated where it failed."""
    env = {"MARK": str(tmp_path / "mark")}
    job = client.submit(first_fails_once, array="3,8", max_task_failures=2, name="again", env=env)
    job.wait()
    failed = job.rerun(failed=True)
    assert failed is not None
    assert failed.results() == ["8"]
    assert failed.rerun(failed=True) is None
    whole = client.job("again#1").rerun(name="again-whole")

    assert whole.results() == ["3", "8"]
    first, second = client.job("again#1"), client.job("ada/again#2")
    assert [len(each.tasks()) for each in (first, second, client.job("again"))] == [2, 1, 1]
    assert (first.run_id, second.run_id) == (job.run_id, failed.run_id)
    assert (
        repr(first)
        == f"<Job ada/again#1 of cluster {client.cluster.name}, SUCCEEDED: {first.status().reason}>"
    )
    with pytest.raises(iris.NotFound, match="no run 3"):
        client.job("again#3").status()
    with pytest.raises(iris.Rejected, match=r"^name: 'not a name' "):
        first.rerun(name="not a name")


def test_every_handle_of_the_latest_run_explains_its_attempts(client: iris.IrisClient) -> None:
    """The handle of a submission names the run; only an earlier run has lost the records of its
    tasks.
    """
    job = client.submit(("sh", "-c", "exit 3"), replicas=2, max_task_failures=2, name="twice")
    job.wait()
    handles = job, client.job("twice"), client.job("twice#1")

    assert [sorted(each.explain().attempts) for each in handles] == [[0, 1]] * 3


def test_parts_of_a_log_are_chosen_as_on_the_command_line(client: iris.IrisClient) -> None:
    """A notebook need not read a gigabyte for the end of it."""
    job = client.submit("sh", "-c", "seq 100; echo wrong >&2")
    job.wait()

    assert [str(entry) for entry in job.logs(tail=2, stream="stdout")] == ["99", "100"]
    assert [str(entry) for entry in job.logs(stream=["stderr"], follow=True)] == ["wrong"]
    assert len(list(job.logs(since="1h"))) == 101
    assert list(job.logs(since=datetime.now(UTC) + timedelta(hours=1))) == []


def test_ports_of_a_task_are_forwarded_while_a_block_runs(client: iris.IrisClient) -> None:
    """A notebook opens TensorBoard or a server of its job; afterwards the ports are closed."""
    server = (
        "import http.server, os; http.server.test(http.server.SimpleHTTPRequestHandler,"
        " port=int(os.environ['IRIS_PORT_HTTP']))"
    )
    job = client.submit(sys.executable, "-u", "-c", server, ports=["http"])
    assert any("Serving HTTP" in entry.text for entry in job.logs(follow=True))
    with (
        job.port_forward("0:http") as (port,),
        urlopen(f"http://127.0.0.1:{port}", timeout=60) as answer,
    ):
        assert answer.status == 200
    with pytest.raises(OSError, match="refused"):
        urlopen(f"http://127.0.0.1:{port}", timeout=60)
    with pytest.raises(iris.InvalidValue, match="ports: '' is empty"), job.port_forward():
        pass
    job.cancel()


def test_a_job_that_no_host_can_run_is_refused_if_that_is_wanted(client: iris.IrisClient) -> None:
    """As `iris submit --require-feasible`: a launcher fails at once instead of waiting for ever."""
    with pytest.raises(iris.Rejected, match="10000 cpu"):
        client.submit(abs, -1, resources=iris.Resources(cpu=10_000), require_feasible=True)
    assert client.submit(abs, -1, require_feasible=True).result() == 1


def test_a_variable_that_looks_like_a_secret_is_warned_of(client: iris.IrisClient) -> None:
    """As on the command line; the job is submitted all the same."""
    with pytest.warns(UserWarning, match=r"secret=\{'WANDB_API_KEY': 'env:WANDB_API_KEY'\}"):
        job = client.submit(abs, -1, env={"WANDB_API_KEY": "x"})
    assert job.result() == 1


async def test_an_asynchronous_program_uses_a_block_and_prints_logs_while_it_waits(
    client: iris.IrisClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the client that blocks."""
    async with iris.AsyncIrisClient.remote(client.cluster.name) as remote:
        job = await remote.submit("echo", "here")
        assert (await job.wait("1m", stream_logs=True)).state is JobState.SUCCEEDED
        endless = await remote.submit("sleep", "1000")
        with pytest.raises(iris.WaitTimeout, match="it continues"):
            await endless.wait(1, stream_logs=True)
        await endless.cancel()
    assert "here" in capsys.readouterr().out.splitlines()
