"""What type checkers know of a program that uses Iris: `make types` checks this file with mypy and
with basedpyright.
"""

from functools import partial
from typing import Any, assert_type

import iris
from iris.model.job.status import JobStatus


def train(rate: float, *, steps: int = 3) -> dict[str, float]:
    return {"loss": rate * steps}


async def train_later(rate: float) -> dict[str, float]:
    return train(rate)


def label(name: str, number: int = 1) -> str:
    return f"{name}-{number}"


class Model:
    def fit(self, steps: int) -> bytes:
        return bytes(steps)


def coroutine_functions(client: iris.IrisClient, pool: iris.WorkerPool) -> None:
    assert_type(client.submit(train_later, 0.1).result(), dict[str, float])
    assert_type(
        client.submit(iris.Entrypoint.from_callable(train_later, 0.1)).result(), dict[str, float]
    )
    assert_type(pool.submit(train_later, 0.1).result(), dict[str, float])
    assert_type(list(pool.map(train_later, [0.1])), list[dict[str, float]])
    pool.submit(train_later, "fast")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def arguments(client: iris.IrisClient, hourly: iris.When) -> None:
    """The arguments of a function are compared with its parameters, as those of a pool's calls."""
    assert_type(client.submit(train, 0.1), iris.Job[dict[str, float]])
    assert_type(client.submit(label, "a"), iris.Job[str])
    assert_type(client.submit(label, "a", 2, timeout="1h", workspace=False), iris.Job[str])
    assert_type(client.submit(lambda: 3), iris.Job[int])
    assert_type(client.submit(partial(label, "a")), iris.Job[str])
    assert_type(client.submit(Model().fit, 3), iris.Job[bytes])
    assert_type(client.submit(train, params=[{"rate": 0.1}]), iris.Job[dict[str, float]])
    assert_type(client.submit(train, kwargs={"rate": 0.1}, params=[{}]), iris.Job[dict[str, float]])
    assert_type(client.submit(train_later, params=[{"rate": 0.1}]), iris.Job[dict[str, float]])
    assert_type(
        client.submit(iris.Entrypoint(train), params=[{"rate": 0.1}]), iris.Job[dict[str, float]]
    )
    client.schedule(label, "a", 2, when=hourly, name="hourly")
    client.schedule("python", "train.py", when=hourly, name="hourly")

    client.submit(train, "fast")  # type: ignore  # mypy names an argument  # pyright: ignore[reportCallIssue, reportArgumentType]
    client.submit(train)  # type: ignore  # as above  # pyright: ignore[reportCallIssue, reportArgumentType]
    client.submit(label, "a", "b")  # type: ignore  # as above  # pyright: ignore[reportCallIssue, reportArgumentType]
    client.submit(label, "a", 2, 3)  # type: ignore  # as above  # pyright: ignore[reportCallIssue, reportArgumentType]
    client.submit(train_later, "fast")  # type: ignore  # as above  # pyright: ignore[reportCallIssue, reportArgumentType]
    client.submit("python", 3)  # type: ignore  # as above  # pyright: ignore[reportCallIssue, reportArgumentType]
    client.submit(iris.Entrypoint(train), 0.1)  # type: ignore  # as above  # pyright: ignore[reportCallIssue, reportArgumentType]
    client.schedule(train, "fast", when=hourly, name="x")  # type: ignore  # as above  # pyright: ignore[reportCallIssue, reportArgumentType]


async def arguments_later(client: iris.AsyncIrisClient, pool: iris.AsyncWorkerPool) -> None:
    assert_type(await (await client.submit(label, "a")), str)
    assert_type(await (await client.submit(train_later, 0.1)), dict[str, float])
    assert_type(await pool.submit(train, 0.1, steps=2), dict[str, float])
    assert_type([each async for each in pool.map(train_later, [0.1])], list[dict[str, float]])

    await client.submit(train, "fast")  # type: ignore  # as above  # pyright: ignore[reportCallIssue, reportArgumentType]
    await pool.submit(train, "fast")  # type: ignore  # as above  # pyright: ignore[reportCallIssue, reportArgumentType]


def blocking(client: iris.IrisClient) -> None:
    job = client.submit(
        train, 0.1, kwargs={"steps": 2}, resources=iris.Resources(tpu="v5litepod-16"), timeout="1h"
    )
    assert_type(job, iris.Job[dict[str, float]])
    assert_type(job.result(), dict[str, float])
    assert_type(job.results(), list[dict[str, float]])
    assert_type(job.results(return_exceptions=True), list[dict[str, float] | Exception])
    assert_type(job.wait(), JobStatus)

    assert_type(client.submit("python", "train.py").result(), None)
    assert_type(client.submit(["python", "train.py"], replicas=2).results(), list[None])
    assert_type(
        client.submit(iris.Entrypoint.from_callable(train, 0.1, steps=2)).result(), dict[str, float]
    )
    assert_type(client.submit(iris.Entrypoint.from_command("python", "train.py")).result(), None)
    assert_type(client.job("train").result(), Any)
    assert_type(job.rerun(), iris.Job[dict[str, float]])
    assert_type(job.rerun(failed=True, name="again"), iris.Job[dict[str, float]] | None)
    assert_type(
        [entry.text for entry in job.logs(tail=3, since="10m", stream=["stdout"])], list[str]
    )
    with job.port_forward(8888, "0:http") as ports:
        assert_type(ports, tuple[int, ...])
    client.submit(train, 0.1, require_feasible=True)
    client.schedule(
        train, 0.1, when=iris.When(cron="0 2 * * *"), overlap=iris.Overlap.QUEUE, name="nightly"
    )

    client.submit(train, 0.1, replicas="two")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    iris.Entrypoint.from_callable(train, "fast")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    iris.Entrypoint.from_callable(train, 0.1, step=2)  # type: ignore  # mypy names one of two codes  # pyright: ignore[reportCallIssue]


def failures(job: iris.Job) -> None:
    try:
        job.result()
    except iris.JobFailed as failed:
        assert_type(failed.task_exit_code, int | None)
        assert_type(failed.last_lines, tuple[str, ...])


def a_job_of_any_function(job: iris.Job) -> None:  # without a parameter: its result may be anything
    assert_type(job.result(), Any)


async def asynchronous() -> None:
    client = await iris.AsyncIrisClient.connect("my-cluster")
    job = await client.submit(train, 0.1)
    assert_type(await job, dict[str, float])
    async for entry in job.logs(follow=True, tail=10):
        assert_type(entry, iris.LogEntry)
    assert_type(await job.wait(stream_logs=True), JobStatus)
    assert_type(await job.rerun(), iris.AsyncJob[dict[str, float]])
    async with (
        iris.AsyncIrisClient.remote("my-cluster") as remote,
        remote.job("train#2").port_forward(8888) as ports,
    ):
        assert_type(remote, iris.AsyncIrisClient)
        assert_type(ports, tuple[int, ...])
