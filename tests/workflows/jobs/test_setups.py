"""Set-ups that fail because of something outside the cluster: who pays, how long the job waits, and
what it shows meanwhile.
"""

import re
from datetime import timedelta

import pytest

from iris.client.client import AsyncIrisClient
from iris.client.jobs.lists import JobFilter
from iris.model.job.attempts import Account
from iris.model.states import JobState, TaskState
from tests.harness import (
    Cluster,
    Held,
    by_index,
    by_job,
    cannot_be_set_up,
    dev_server_cluster,
    fails,
    in_turn,
    is_killed,
    is_preempted,
    succeeds,
)

SECOND = timedelta(seconds=1)
#: All delays of a set-up together.
ALL_DELAYS = 460 * SECOND


async def test_a_set_up_that_keeps_failing_ends_the_job_with_its_last_error(
    cluster: Cluster,
) -> None:
    """A package index that is gone held hosts for hours: a hundred retries of the account for lost
    machines.
    """
    host = await cluster.join(program=cannot_be_set_up)
    job = await cluster.submit(max_retries_failure=9, max_retries_preemption=0)
    status = await cluster.end(job, within=ALL_DELAYS + 10 * SECOND)

    assert status.state is JobState.WORKER_FAILED
    assert (
        status.reason
        == "set-up failed: `uv pip install six` could not reach a server: try 5 (the set-ups of 5"
        " attempts in a row failed)"
    )
    assert len(host.taken) == 5
    (task,) = status.tasks
    assert (task.setups, task.failures, task.preemptions) == (5, 0, 0)
    assert {record.account for record in await cluster.attempts(cluster.job(job))} == {
        Account.SETUPS
    }
    assert status.finished_at is not None
    assert ALL_DELAYS <= status.finished_at - status.submitted_at < ALL_DELAYS + 20 * SECOND
    assert await cluster.nothing_held()


async def test_between_two_set_ups_the_host_is_free_and_the_job_says_when_it_tries_again(
    cluster: Cluster,
) -> None:
    """Other jobs use it meanwhile. Who looks reads what is wrong, in the job and in lists."""
    host = await cluster.join(program=by_job({"broken": in_turn(cannot_be_set_up, succeeds)}))
    broken = await cluster.submit("broken")
    await cluster.until(lambda: _is_pending_again(cluster, broken))
    status = await cluster.status(broken)

    assert status.state is JobState.PENDING
    assert re.search("set-up failed: `uv pip install six` .*; attempt 2 at ", status.reason)
    assert "**PENDING** retry after: " in await cluster.page(cluster.job(broken))
    assert await cluster.nothing_held()
    assert (await cluster.end(await cluster.submit("other"))).state is JobState.SUCCEEDED
    assert len(host.taken) == 2
    assert (await cluster.end(broken, within=11 * SECOND)).state is JobState.SUCCEEDED


async def _is_pending_again(cluster: Cluster, job: str) -> bool:
    task = await cluster.only_task(job)
    return task.state is TaskState.PENDING and task.attempt == 1


async def test_a_program_that_has_run_has_all_its_set_ups_again(cluster: Cluster) -> None:
    """A job that is preempted each day for a month must not end because now and then a server was
    away.
    """
    await cluster.join(
        program=in_turn(*[cannot_be_set_up, cannot_be_set_up, is_preempted] * 3, succeeds)
    )
    job = await cluster.submit()
    status = await cluster.end(job, within=3 * 40 * SECOND + 10 * SECOND)

    assert status.state is JobState.SUCCEEDED
    assert (status.tasks[0].attempt, status.tasks[0].preemptions, status.tasks[0].setups) == (
        10,
        3,
        0,
    )


async def test_another_host_is_tried_after_a_set_up_that_failed(cluster: Cluster) -> None:
    """The network of one host may be broken; but it is not proved, so the host is not
    quarantined.
    """
    for name in ("h1", "h2"):
        await cluster.join(name, program=in_turn(cannot_be_set_up, succeeds))
    job = await cluster.submit()
    status = await cluster.end(job, within=11 * SECOND)

    assert status.state is JobState.SUCCEEDED
    assert sorted(len(host.taken) for host in cluster.hosts.values()) == [1, 1]


async def test_one_set_up_that_fails_ends_the_attempt_of_its_whole_gang_and_counts_once(
    cluster: Cluster,
) -> None:
    """The others need not wait for a host that will not come, and the gang has one account."""
    waiting = Held(on_cancel=is_killed, then=succeeds)
    await cluster.join_slice(program=in_turn(by_index(cannot_be_set_up, waiting), succeeds))
    job = await cluster.gang()
    await cluster.until(lambda: waiting.cancelled)
    await cluster.until(lambda: _are_pending_again(cluster, job))
    status = await cluster.status(job)

    assert [task.setups for task in status.tasks] == [1, 1]
    assert await cluster.nothing_held()
    assert (await cluster.end(job, within=11 * SECOND)).state is JobState.SUCCEEDED
    first, _ = await cluster.attempts(cluster.job(job))
    assert first.account is Account.SETUPS


async def _are_pending_again(cluster: Cluster, job: str) -> bool:
    tasks = (await cluster.status(job)).tasks
    return all(task.state is TaskState.PENDING and task.attempt == 1 for task in tasks)


async def test_a_mistake_of_the_jobs_own_is_not_tried_again(cluster: Cluster) -> None:
    """There is no such package now, and there will be none in ten seconds."""
    host = await cluster.join(program=fails)
    job = await cluster.submit()

    assert (await cluster.end(job)).state is JobState.FAILED
    assert len(host.taken) == 1


async def test_a_job_that_is_set_up_again_is_building_and_says_why(cluster: Cluster) -> None:
    """RUNNING without a reason let its user believe that the program ran."""
    built = Held()
    host = await cluster.join(program=in_turn(cannot_be_set_up, built))
    job = await cluster.submit()
    await cluster.later(11 * SECOND)
    await cluster.until(lambda: len(host.taken) == 2)
    await cluster.announce(host.taken[1], TaskState.BUILDING, "`uv pip install six`")
    await cluster.until(lambda: _state_is(cluster, job, JobState.BUILDING))
    status = await cluster.status(job)
    shown = await cluster.shown_state(cluster.job(job))
    built.let_go()

    assert status.reason.startswith(
        "attempt 2: `uv pip install six`; attempt 1: set-up failed: `uv pip install six` "
    )
    assert shown == "BUILDING"
    assert (await cluster.end(job)).state is JobState.SUCCEEDED


async def _state_is(cluster: Cluster, job: str, state: JobState) -> bool:
    return (await cluster.status(job)).state is state


@pytest.mark.long
@pytest.mark.parametrize("tasks", [1, 2])
async def test_lists_show_why_a_job_is_between_two_set_ups(tasks: int) -> None:
    """The list asks no job, so each job has to say it there, whether its tasks are independent or
    not.
    """
    async with dev_server_cluster() as cluster:
        await cluster.join(program=cannot_be_set_up)
        job = await cluster.submit(replicas=tasks)
        await cluster.until(
            lambda: _is_listed(
                cluster.users,
                job,
                JobState.PENDING,
                "could not reach a server: try 1; attempt 2 at ",
            )
        )
        await cluster.cancel(job)
        await cluster.end(job)


async def _is_listed(users: AsyncIrisClient, job: str, state: JobState, reason: str) -> bool:
    rows = await users.jobs.list(JobFilter(live_only=True))
    return any(row.id == job and row.state is state and reason in row.reason for row in rows)
