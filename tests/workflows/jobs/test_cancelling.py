"""The time from the request to cancel a job, or one of its tasks, to its end: users see that it is
being cancelled, and until when.
"""

import asyncio
from datetime import datetime, timedelta

from iris.messages.task import RunTask
from iris.model.job.attempts import TaskOutcome
from iris.model.job.cancelling import MEMO_CANCELLING, Cancelling
from iris.model.rules import HEARTBEAT_INTERVAL
from iris.model.states import JobState, TaskState
from tests.builders import some
from tests.harness import Cluster, FakeHost, Held, by_index, is_killed

GRACE = timedelta(minutes=5)


class Saves:
    """A program that ignores SIGTERM until its work is saved. It may run alone, or beside
    others.
    """

    def __init__(self) -> None:
        self._saved = asyncio.Event()
        self.run = Held(on_cancel=self._end)

    def save(self) -> None:
        self._saved.set()

    async def _end(self, task: RunTask) -> TaskOutcome:
        await self._saved.wait()
        return await is_killed(task)


async def test_a_job_whose_program_saves_its_work_shows_that_it_is_cancelled_by_whom_and_until_when(
    cluster: Cluster,
) -> None:
    """Without that, its page and lists would show RUNNING for as long as the program saves."""
    saves = Saves()
    host = await cluster.join("rack-7", program=saves.run)
    job = await cluster.submit(grace=GRACE)
    await _runs(cluster, job, host)
    before = await cluster.now()
    await cluster.cancel(job, "cancelled by ada")
    await cluster.until(lambda: saves.run.cancelled)
    status = await cluster.status(job)
    page, memo = (
        await cluster.page(cluster.job(job)),
        await (await cluster.job(job).describe()).memo(),
    )

    assert status.state is JobState.RUNNING
    assert status.cancelling is not None
    assert status.cancelling.reason == "cancelled by ada"
    assert before <= status.cancelling.since <= await cluster.now()
    assert status.cancelling.until == status.cancelling.since + GRACE + HEARTBEAT_INTERVAL
    assert status.reason == str(status.cancelling)
    assert _clock(status.cancelling.until) in status.reason
    assert page.startswith(f"**CANCELLING** {status.reason}\n")
    assert Cancelling.model_validate(memo[MEMO_CANCELLING]) == status.cancelling
    saves.save()
    end = await cluster.end(job)
    assert (end.state, end.cancelling, end.reason) == (JobState.KILLED, None, "cancelled by ada")
    assert (await cluster.page(cluster.job(job))).startswith("**KILLED** cancelled by ada\n")


async def test_a_job_is_cancelled_until_its_last_program_has_ended(cluster: Cluster) -> None:
    """It showed KILLED as soon as the first of its programs had ended, while the others still had
    their hosts.
    """
    quick, saves = Held(), Saves()
    await cluster.join(offers=some(cpu=2), program=by_index(quick, saves.run))
    job = await cluster.submit(replicas=2)
    await cluster.until(lambda: _running(cluster, 2))
    await cluster.cancel(job, "cancelled by ada")
    await cluster.until(lambda: saves.run.cancelled)
    await cluster.until(lambda: _task_is(cluster, job, 0, TaskState.KILLED))
    status = await cluster.status(job)

    assert (status.state, status.cancelling is not None, status.finished_at) == (
        JobState.RUNNING,
        True,
        None,
    )
    assert (await cluster.page(cluster.task(job, 1))).startswith(
        "**CANCELLING** cancelled by ada; "
    )
    saves.save()
    assert (await cluster.end(job)).state is JobState.KILLED


async def test_a_task_that_is_cancelled_alone_shows_it_and_its_job_runs(cluster: Cluster) -> None:
    """The command had answered, and then nothing showed for as long as the program saved its
    work.
    """
    others, saves = Held(), Saves()
    await cluster.join(offers=some(cpu=2), program=by_index(others, saves.run))
    job = await cluster.submit(replicas=2, grace=GRACE)
    await cluster.until(lambda: _running(cluster, 2))
    request = await cluster.users.jobs.cancel_task(job, 1, "too slow")
    await cluster.until(lambda: saves.run.cancelled)
    status, own = await cluster.status(job), await cluster.users.jobs.explain(job, 1)

    assert (request.ended, request.grace) == (None, GRACE)
    assert status.cancelling is None
    assert [task.cancelling is not None for task in status.tasks] == [False, True]
    assert status.tasks[1].reason == str(status.tasks[1].cancelling)
    assert own.message == status.tasks[1].reason
    assert own.cancelling == status.tasks[1].cancelling
    assert "- task 1 **CANCELLING**" in await cluster.page(cluster.job(job))
    saves.save()
    await cluster.until(lambda: _task_is(cluster, job, 1, TaskState.CANCELLED))
    ended = (await cluster.status(job)).tasks[1]
    assert (ended.cancelling, ended.reason) == (None, "too slow")
    others.let_go()
    await cluster.end(job)


async def test_a_job_that_waited_adds_nothing_to_lists_when_it_is_cancelled(
    cluster: Cluster,
) -> None:
    """It ends at once. Each change of a list is an event and a write, and sweeps of thousands are
    cancelled together.
    """
    await cluster.join()
    job = await cluster.submit(resources=some(cpu=32))
    await cluster.waits(job)
    await cluster.cancel(job, "not needed")
    end = await cluster.end(job)

    assert (end.state, end.cancelling, end.reason) == (JobState.KILLED, None, "not needed")
    assert MEMO_CANCELLING not in await (await cluster.job(job).describe()).memo()


def _clock(time: datetime) -> str:
    return f"{time:%H:%M:%S} UTC"


async def _runs(cluster: Cluster, job: str, host: FakeHost) -> None:
    await cluster.until(lambda: host.taken)
    await cluster.announce(host.taken[0])
    await cluster.until(lambda: _task_is(cluster, job, 0, TaskState.RUNNING))


async def _running(cluster: Cluster, tasks: int) -> bool:
    return (await cluster.snapshot()).running == tasks


async def _task_is(cluster: Cluster, job: str, index: int, state: TaskState) -> bool:
    return (await cluster.status(job)).tasks[index].state is state
