"""What a job held is free again after every kind of end."""

import pytest

from iris.model.states import JobState, TaskState
from iris.scheduling.placement.refusals import RefusalCode
from tests.builders import some
from tests.harness import (
    Cluster,
    Held,
    Program,
    fails,
    is_killed,
    is_not_taken,
    is_preempted,
    loses_its_host,
    succeeds,
)

WHOLE_HOST = some(cpu=4)


async def somebody_else_fits(cluster: Cluster) -> None:
    """Nothing is held any more, and a job that needs the whole host gets it."""
    await cluster.until(cluster.nothing_held)
    cluster.hosts["h1"].program = succeeds
    job = await cluster.submit("somebody-else", resources=WHOLE_HOST)

    assert (await cluster.end(job)).state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("program", "end"),
    [
        (succeeds, JobState.SUCCEEDED),
        (fails, JobState.FAILED),
        (is_preempted, JobState.WORKER_FAILED),
        (loses_its_host, JobState.WORKER_FAILED),
    ],
)
async def test_a_host_is_free_again_after_a_job_that_ended_by_itself(
    cluster: Cluster, program: Program, end: JobState
) -> None:
    """However it ended: a leak would be found when the last host is full of nothing."""
    await cluster.join(offers=WHOLE_HOST, program=program)
    job = await cluster.submit(resources=WHOLE_HOST, max_retries_preemption=0)

    assert (await cluster.end(job)).state is end
    await somebody_else_fits(cluster)


async def test_a_job_cancelled_while_it_waits_is_out_of_the_queue(cluster: Cluster) -> None:
    """The scheduler must not place it later: the job would not use the hosts."""
    runs = Held()
    host = await cluster.join(offers=WHOLE_HOST, program=runs)
    first = await cluster.submit("first", resources=WHOLE_HOST)
    await cluster.until(lambda: host.taken)
    second = await cluster.submit("second", resources=WHOLE_HOST)
    await cluster.waits(second)
    await cluster.cancel(second)

    assert (await cluster.end(second)).state is JobState.KILLED
    assert (await cluster.snapshot()).waiting == 0
    runs.let_go()
    assert (await cluster.end(first)).state is JobState.SUCCEEDED
    assert len(host.taken) == 1
    await somebody_else_fits(cluster)


async def test_a_host_is_free_when_the_cancelled_program_is_dead_and_not_before(
    cluster: Cluster,
) -> None:
    """A program that is still dying uses what it had; its successor beside it would be one too
    many.
    """
    dying = Held(then=is_killed)
    runs = Held(on_cancel=dying)
    host = await cluster.join(offers=WHOLE_HOST, program=runs)
    job = await cluster.submit(resources=WHOLE_HOST)
    await cluster.until(lambda: host.taken)
    await cluster.cancel(job)
    await cluster.until(lambda: runs.cancelled)

    assert (await cluster.snapshot()).running == 1
    dying.let_go()
    assert (await cluster.end(job)).state is JobState.KILLED
    await somebody_else_fits(cluster)


async def test_a_program_that_succeeds_although_it_was_cancelled_has_succeeded(
    cluster: Cluster,
) -> None:
    """The result of a finished task is kept, also after a cancellation."""
    runs = Held(on_cancel=succeeds)
    host = await cluster.join(offers=WHOLE_HOST, program=runs)
    job = await cluster.submit(resources=WHOLE_HOST)
    await cluster.until(lambda: host.taken)
    await cluster.cancel(job)

    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    await somebody_else_fits(cluster)


async def test_a_cancellation_that_comes_while_the_host_is_given_back_keeps_the_result(
    cluster: Cluster,
) -> None:
    """The program had succeeded; and the release must survive the cancellation that hits it."""
    host = await cluster.join(offers=WHOLE_HOST)
    cluster.outbox.releases.close()
    job = await cluster.submit(resources=WHOLE_HOST)
    await cluster.until(lambda: cluster.outbox.releases.seen)
    await cluster.cancel(job)
    cluster.outbox.releases.open()
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert status.tasks[0].exit_code == 0
    assert len(host.taken) == 1
    await somebody_else_fits(cluster)


async def test_a_cancellation_that_comes_while_a_failed_attempt_is_given_back_ends_the_job(
    cluster: Cluster,
) -> None:
    """The job would have been retried, and the cancellation also ends that."""
    host = await cluster.join(offers=WHOLE_HOST, program=fails)
    cluster.outbox.releases.close()
    job = await cluster.submit(resources=WHOLE_HOST, max_retries_failure=5)
    await cluster.until(lambda: cluster.outbox.releases.seen)
    await cluster.cancel(job)
    cluster.outbox.releases.open()

    assert (await cluster.end(job)).state is JobState.KILLED
    assert len(host.taken) == 1
    await somebody_else_fits(cluster)


async def test_what_ran_on_a_lost_host_waits_for_its_next_life(cluster: Cluster) -> None:
    """The job is neither forgotten with the host nor left holding a machine that is gone."""
    runs = Held(then=loses_its_host)
    host = await cluster.join(offers=WHOLE_HOST, program=runs)
    job = await cluster.submit(resources=WHOLE_HOST)
    await cluster.until(lambda: host.taken)
    await cluster.lose(host.host)
    runs.let_go()
    await cluster.waits(job, attempt=1)

    assert (await cluster.snapshot()).hosts == ()
    assert (await cluster.users.jobs.explain(job)).code == RefusalCode.NO_HOSTS
    host.program = succeeds
    await cluster.join(offers=WHOLE_HOST, incarnation="second")
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [status.tasks[0].attempt, status.tasks[0].preemptions] == [2, 1]
    await somebody_else_fits(cluster)


async def test_giving_back_what_was_held_on_a_former_life_of_a_host_credits_nobody(
    cluster: Cluster,
) -> None:
    """The second incarnation is full with its own task; the old one's late release must not make
    room on it.
    """
    old, new = Held(), Held()
    host = await cluster.join(offers=WHOLE_HOST, program=old)
    first = await cluster.submit("first", resources=WHOLE_HOST)
    await cluster.until(lambda: len(host.taken) == 1)
    host.program = new
    await cluster.join(offers=WHOLE_HOST, incarnation="second")
    second = await cluster.submit("second", resources=WHOLE_HOST)
    await cluster.until(lambda: len(host.taken) == 2)
    old.let_go()
    await cluster.end(first)

    assert (await cluster.free())["cpu"] == 0
    assert (await cluster.snapshot()).hosts[0].running == (f"{second}:0",)
    new.let_go()
    assert (await cluster.end(second)).state is JobState.SUCCEEDED
    await somebody_else_fits(cluster)


async def test_a_job_cancelled_between_two_attempts_is_killed(cluster: Cluster) -> None:
    """There is nothing to stop on any host then, and what its last attempt came to is not the job's
    end.
    """
    await cluster.join(offers=WHOLE_HOST, program=is_not_taken)
    job = await cluster.submit(resources=WHOLE_HOST)
    await cluster.until(lambda: _is_between(cluster, job))
    await cluster.cancel(job, "not needed any more")
    status = await cluster.end(job)

    assert status.state is JobState.KILLED
    assert status.reason == "not needed any more"
    await somebody_else_fits(cluster)


async def _is_between(cluster: Cluster, job: str) -> bool:
    task = await cluster.only_task(job)
    return task.state is TaskState.PENDING and task.attempt > 0
