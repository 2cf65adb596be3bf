"""Attempt after attempt: who pays for one that went wrong, and whether there is another."""

from datetime import timedelta

import pytest

from iris.model import rules
from iris.model.job.status import JobStatus
from iris.model.states import JobState, TaskState
from iris.workflows import policies
from tests.builders import a_host, some
from tests.harness import (
    Cluster,
    Held,
    Program,
    fails,
    hangs,
    in_turn,
    is_not_taken,
    is_preempted,
    loses_its_host,
    succeeds,
)

MINUTE = timedelta(minutes=1)


async def test_a_program_that_keeps_failing_is_tried_once_and_as_often_again_as_the_job_allows(
    cluster: Cluster,
) -> None:
    """The limit counts retries, and the end says that it was reached."""
    host = await cluster.join(program=fails)
    job = await cluster.submit(max_retries_failure=2)
    status = await cluster.end(job, within=MINUTE)

    assert status.state is JobState.FAILED
    assert "max_retries_failure 2" in status.reason
    assert [task.attempt for task in host.taken] == [1, 2, 3]
    assert [status.tasks[0].failures, status.tasks[0].preemptions, status.tasks[0].exit_code] == [
        3,
        0,
        7,
    ]
    assert await cluster.nothing_held()


async def test_a_failed_program_waits_before_it_is_tried_again(cluster: Cluster) -> None:
    """One second, then two: a program that crashes at once must not keep a host busy with
    crashing.
    """
    await cluster.join(program=in_turn(fails, fails, succeeds))
    job = await cluster.submit(max_retries_failure=2)
    status = await cluster.end(job, within=MINUTE)

    assert status.state is JobState.SUCCEEDED
    assert status.finished_at is not None
    assert timedelta(seconds=3) <= status.finished_at - status.submitted_at < MINUTE


async def test_a_job_is_pending_between_its_attempts_and_says_why_there_is_another(
    cluster: Cluster,
) -> None:
    """Its last attempt has ended, but the job has not: it must not be shown as FAILED or RUNNING.
    Lists show the same.
    """
    await cluster.join(program=in_turn(fails, succeeds))
    job = await cluster.submit(max_retries_failure=1)
    await cluster.until(lambda: _is_pending_again(cluster, job))
    status = await cluster.status(job)

    assert status.state is JobState.PENDING
    assert await cluster.shown_state(cluster.job(job)) == "PENDING"
    assert status.finished_at is None
    assert "retry after: " in status.reason
    assert (await cluster.end(job, within=MINUTE)).state is JobState.SUCCEEDED


async def _is_pending_again(cluster: Cluster, job: str) -> bool:
    task = await cluster.only_task(job)
    return task.state is TaskState.PENDING and task.attempt == 1


async def test_a_preempted_program_is_tried_again_at_once_within_its_own_budget(
    cluster: Cluster,
) -> None:
    """It did nothing wrong; but a machine that dies under it every time must come to an end too."""
    host = await cluster.join(program=is_preempted)
    job = await cluster.submit(max_retries_preemption=2)
    status = await cluster.end(job)

    assert status.state is JobState.WORKER_FAILED
    assert status.tasks[0].state is TaskState.PREEMPTED
    assert "max_retries_preemption 2" in status.reason
    assert [status.tasks[0].failures, status.tasks[0].preemptions] == [0, 3]
    assert len(host.taken) == 3


async def test_an_attempt_that_no_host_takes_up_costs_nothing_but_ever_more_time(
    cluster: Cluster,
) -> None:
    """A broken host must neither fail the job nor spin with it: one second, two, four, eight.
    (Three attempts in a row close a host, so there are two of them.)
    """
    refused_four_times = in_turn(is_not_taken, is_not_taken, is_not_taken, is_not_taken, succeeds)
    for host in ("h1", "h2"):
        await cluster.join(host, program=refused_four_times)
    job = await cluster.submit(max_retries_failure=0, max_retries_preemption=0)
    status = await cluster.end(job, within=MINUTE)

    assert status.state is JobState.SUCCEEDED
    assert [status.tasks[0].attempt, status.tasks[0].failures, status.tasks[0].preemptions] == [
        5,
        0,
        0,
    ]
    assert status.finished_at is not None
    waited = timedelta(seconds=1 + 2 + 4 + 8)
    assert waited <= status.finished_at - status.submitted_at < 2 * waited


@pytest.mark.parametrize(
    ("attempts", "failures", "preemptions", "end"),
    [
        (
            [is_preempted, fails, is_not_taken, is_preempted, fails, succeeds],
            2,
            2,
            JobState.SUCCEEDED,
        ),
        ([fails, is_preempted, is_preempted, is_not_taken, fails, fails], 3, 2, JobState.FAILED),
        (
            [is_preempted, fails, fails, is_not_taken, is_preempted, loses_its_host],
            2,
            3,
            JobState.WORKER_FAILED,
        ),
    ],
)
async def test_the_accounts_are_never_mixed(
    cluster: Cluster, attempts: list[Program], failures: int, preemptions: int, end: JobState
) -> None:
    """A budget spent by preemptions must not fail a correct program, nor a generous one repeat a
    broken program.
    """
    host = await cluster.join(program=in_turn(*attempts))
    job = await cluster.submit(max_retries_failure=2, max_retries_preemption=2)
    status = await cluster.end(job, within=MINUTE)

    assert status.state is end
    assert [status.tasks[0].failures, status.tasks[0].preemptions] == [failures, preemptions]
    assert len(host.taken) == len(attempts)
    assert await cluster.nothing_held()


async def test_a_cancelled_job_is_never_tried_again(cluster: Cluster) -> None:
    """However much it may still spend; and it says who ended it."""
    runs = Held()
    host = await cluster.join(program=runs)
    job = await cluster.submit(max_retries_failure=5, max_retries_preemption=5)
    await cluster.until(lambda: host.taken)
    await cluster.cancel(job, "cancelled by ada")
    status = await cluster.end(job, within=MINUTE)

    assert status.state is JobState.KILLED
    assert status.reason == "cancelled by ada"
    assert [status.tasks[0].exit_code, len(host.taken)] == [143, 1]


async def test_a_program_that_fails_because_it_is_cancelled_is_killed_and_not_tried_again(
    cluster: Cluster,
) -> None:
    """Programs answer SIGTERM with all sorts of exit codes."""
    runs = Held(on_cancel=fails)
    host = await cluster.join(program=runs)
    job = await cluster.submit(max_retries_failure=5)
    await cluster.until(lambda: host.taken)
    await cluster.cancel(job)

    assert (await cluster.end(job, within=MINUTE)).state is JobState.KILLED
    assert len(host.taken) == 1


async def test_a_host_that_falls_silent_under_a_running_program_is_a_preemption(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heartbeats end in real time; a second stands for the usual minute."""
    monkeypatch.setattr(rules, "HEARTBEAT_TIMEOUT", timedelta(seconds=1))
    host = await cluster.join(program=in_turn(hangs, succeeds))
    job = await cluster.submit()
    await cluster.until(lambda: host.taken)
    await cluster.announce(host.taken[0])
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [status.tasks[0].attempt, status.tasks[0].failures, status.tasks[0].preemptions] == [
        2,
        0,
        1,
    ]


async def test_the_lease_of_the_rules_decides_how_long_a_silent_program_lives(
    cluster: Cluster,
) -> None:
    """A restart of the controller's machine takes minutes. The server waits longer than the lease,
    so that no task runs twice.
    """
    host = await cluster.join(program=in_turn(succeeds, succeeds))
    usual = await cluster.submit("usual")
    await cluster.end(usual)
    await cluster.rules(lease=5 * MINUTE)
    patient = await cluster.submit("patient")
    await cluster.end(patient)

    assert [task.contact.lease for task in host.taken] == [50, 300]
    assert [await _heartbeat_timeout(cluster, job) for job in (usual, patient)] == [75, 325]


async def _heartbeat_timeout(cluster: Cluster, job: str) -> float:
    """The seconds that the server waits for a heartbeat of the job's program."""
    events = (await cluster.job(job).fetch_history()).events
    (scheduled,) = (
        each.activity_task_scheduled_event_attributes
        for each in events
        if each.activity_task_scheduled_event_attributes.activity_type.name == "run_task"
    )
    return float(scheduled.heartbeat_timeout.seconds)


async def test_a_silent_host_is_the_reason_of_the_job_that_it_ends(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user reads which host it was and what was wrong with it."""
    monkeypatch.setattr(rules, "HEARTBEAT_TIMEOUT", timedelta(seconds=1))
    host = await cluster.join(program=hangs)
    job = await cluster.submit(max_retries_preemption=0)
    await cluster.until(lambda: host.taken)
    await cluster.announce(host.taken[0])
    status = await cluster.end(job)

    assert status.state is JobState.WORKER_FAILED
    assert status.reason == "host h1 was lost: no heartbeat of the task for 1s"
    assert await cluster.nothing_held()


async def test_an_attempt_that_nobody_takes_from_its_queue_goes_to_another_host(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler counts on a host whose agent has just died; the job must not wait there for
    ever, nor pay.
    """
    monkeypatch.setattr(policies, "SCHEDULE_TO_START", timedelta(seconds=1))
    dead = a_host("dead", offers=some(cpu=4))
    await cluster.report(dead)
    await cluster.until(lambda: cluster.offers(dead))
    job = await cluster.submit(resources=some(cpu=4))
    await cluster.until(lambda: _is_pending_again(cluster, job))

    assert "host dead did not start the task within 1s" in (await cluster.status(job)).reason
    await cluster.lose(dead)
    host = await cluster.join("h1", offers=some(cpu=4))
    status = await cluster.end(job, within=MINUTE)

    assert status.state is JobState.SUCCEEDED
    assert [status.tasks[0].failures, status.tasks[0].preemptions, len(host.taken)] == [0, 0, 1]


async def test_a_program_that_outlives_its_time_limit_has_failed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should the agent not end it, the server's clock does, and the program's own account pays."""
    monkeypatch.setattr(policies, "TIMEOUT_MARGIN", timedelta(seconds=1))
    await cluster.join(program=Held())
    job = await cluster.submit(timeout=timedelta(milliseconds=100), grace=timedelta(0))
    status = await cluster.end(job)

    assert status.state is JobState.FAILED
    assert status.tasks[0].failures == 1
    assert "ran longer than its timeout of 100ms" in status.reason


async def test_a_job_ends_as_its_workflow_does(cluster: Cluster) -> None:
    """Temporal's own lists and colours keep their meaning, and the end of the workflow carries the
    status.
    """
    await cluster.join(program=succeeds)
    good = await cluster.submit("good")
    result = await cluster.client.get_workflow_handle(
        cluster.job(good).id, result_type=JobStatus
    ).result()

    assert result == await cluster.status(good)
    assert result.state is JobState.SUCCEEDED
    assert await cluster.shown_end(cluster.job(good)) == "COMPLETED"


@pytest.mark.parametrize(
    ("program", "offers", "end"),
    [
        (fails, 4, JobState.FAILED),
        (is_preempted, 4, JobState.WORKER_FAILED),
        (succeeds, 0.5, JobState.UNSCHEDULABLE),
    ],
)
async def test_a_job_without_success_is_a_failed_workflow(
    cluster: Cluster, program: Program, offers: float, end: JobState
) -> None:
    """Its failure is of the type of the end, says why, and has the whole status in its details."""
    await cluster.join(offers=some(cpu=offers), program=program)
    job = await cluster.submit(scheduling_timeout=MINUTE, max_retries_preemption=0)
    failure = await cluster.failure(job, within=MINUTE + MINUTE)
    status = await cluster.status(job)

    assert failure.type == status.state == end
    assert failure.message == status.reason
    assert JobStatus.model_validate(failure.details[0]) == status
    assert await cluster.shown_end(cluster.job(job)) == "FAILED"


async def test_a_cancelled_job_is_a_cancelled_workflow(cluster: Cluster) -> None:
    """A user who presses Cancel in the Web UI sees CANCELED there."""
    job = await cluster.submit()
    await cluster.waits(job)
    await cluster.cancel(job)

    assert (await cluster.end(job)).state is JobState.KILLED
    assert await cluster.shown_end(cluster.job(job)) == "CANCELED"
