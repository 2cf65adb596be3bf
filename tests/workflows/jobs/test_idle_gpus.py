"""Jobs that end when their GPUs are idle: hosts report idleness, and the workflow of the gang
decides.
"""

from datetime import timedelta

import pytest

from iris.model.host.idle_gpus import IdleReport, StopIdle
from iris.model.job.attempts import Account
from iris.model.states import JobState, TaskState
from tests.builders import NOON, some
from tests.harness import Cluster, Held, in_turn, succeeds

RULE = StopIdle(after=timedelta(minutes=30))
GPUS = some(cpu=4, device="gpu:H100:8")
IDLE = IdleReport(since=NOON, peak_percent=2.0)


async def test_a_task_whose_gpus_are_idle_ends_as_a_failure_of_its_own(cluster: Cluster) -> None:
    """The account of preemptions would start it again a hundred times."""
    program = Held()
    host = await cluster.join("h1", GPUS, program)
    job = await cluster.submit(resources=GPUS, stop_idle=RULE)
    await cluster.until(lambda: len(host.taken) == 1)
    await cluster.announce(host.taken[0], idle=IDLE)
    status = await cluster.end(job)

    assert program.cancelled
    assert (status.state, status.tasks[0].state) == (JobState.FAILED, TaskState.FAILED)
    assert "5% for 30m" in status.reason
    assert "at most 2%" in status.reason
    (record,) = await cluster.attempts(cluster.job(job))
    assert (record.account, status.tasks[0].exit_code) == (Account.FAILURES, 143)


async def test_a_failed_idle_attempt_is_retried_if_its_user_allows_failures(
    cluster: Cluster,
) -> None:
    """As after any other failure of the program, with idleness that begins anew."""
    host = await cluster.join("h1", GPUS, in_turn(Held(), succeeds))
    job = await cluster.submit(resources=GPUS, stop_idle=RULE, max_retries_failure=1)
    await cluster.until(lambda: len(host.taken) == 1)
    await cluster.announce(host.taken[0], idle=IDLE)
    status = await cluster.end(job, within=timedelta(minutes=1))

    assert (status.state, len(host.taken)) == (JobState.SUCCEEDED, 2)


@pytest.mark.parametrize("used_again", [False, True])
async def test_a_gang_ends_only_when_all_its_tasks_are_idle(
    cluster: Cluster, used_again: bool
) -> None:
    """One host may prepare data while the others wait, and the others may wait for one."""
    program = Held()
    first, second = await cluster.join_slice("s1", 2, program, offers=GPUS)
    job = await cluster.gang(tasks=2, resources=GPUS, stop_idle=RULE)
    await cluster.until(lambda: len(first.taken) == len(second.taken) == 1)
    await cluster.announce(first.taken[0], doing="its GPUs are idle", idle=IDLE)
    await cluster.until(lambda: _first_reason_is(cluster, job, "its GPUs are idle"))
    assert not program.cancelled
    if used_again:
        await cluster.announce(first.taken[0])
    await cluster.announce(second.taken[0], doing="seen", idle=IDLE)
    if used_again:
        await cluster.until(lambda: _second_reason_is(cluster, job, "seen"))
        assert not program.cancelled
        await cluster.announce(first.taken[0], idle=IDLE)
    status = await cluster.end(job)

    assert {task.state for task in status.tasks} == {TaskState.FAILED}
    assert "the GPUs of its 2 tasks" in status.reason


async def test_a_rule_that_only_warns_ends_nothing(cluster: Cluster) -> None:
    """Its user wants to know, and to decide."""
    program = Held()
    host = await cluster.join("h1", GPUS, program)
    rule = RULE.model_copy(update={"only_warns": True})
    job = await cluster.submit(resources=GPUS, stop_idle=rule)
    await cluster.until(lambda: len(host.taken) == 1)
    await cluster.announce(host.taken[0], doing="its GPUs are idle", idle=IDLE)
    await cluster.until(lambda: _first_reason_is(cluster, job, "its GPUs are idle"))
    program.let_go()

    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert not program.cancelled


async def _first_reason_is(cluster: Cluster, job: str, reason: str) -> bool:
    return (await cluster.status(job)).tasks[0].reason == reason


async def _second_reason_is(cluster: Cluster, job: str, reason: str) -> bool:
    return (await cluster.status(job)).tasks[1].reason == reason
