"""Gangs: tasks that are placed, run, end and are tried again together, each on a host of its
own.
"""

from datetime import timedelta

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType

from iris.activities.control import notifier as notifier_activities
from iris.activities.host.attempt.lifecycle import Event, Lifecycle, State, step
from iris.messages.task import RunTask
from iris.model.job.attempts import Account, TaskOutcome
from iris.model.job.spec import Coscheduling
from iris.model.states import JobState, TaskState
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from iris.workflows import policies
from tests.builders import some
from tests.harness import (
    Cluster,
    Held,
    by_index,
    dev_server_cluster,
    fails,
    in_turn,
    is_killed,
    is_not_taken,
    is_preempted,
    loses_its_host,
    succeeds,
)

MINUTE = timedelta(minutes=1)


async def test_task_i_of_a_gang_runs_on_worker_i_and_all_are_told_where_to_meet(
    cluster: Cluster,
) -> None:
    """Frameworks number their processes by the slice's workers, and find each other at one address,
    on the host of task 0.
    """
    hosts = await cluster.join_slice("s1", size=4)
    job = await cluster.gang(tasks=4)
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [task.host for task in status.tasks] == ["s1-w0", "s1-w1", "s1-w2", "s1-w3"]
    taken = [task for host in hosts for task in host.taken]
    assert [(task.index, task.attempt, task.num_tasks) for task in taken] == [
        (i, 1, 4) for i in range(4)
    ]
    ranks = [task.rank for task in taken]
    assert all(rank is not None for rank in ranks)
    (meeting,) = {
        (rank.coordinator, rank.num_slices, rank.slice_index, rank.tasks_per_slice)
        for rank in ranks
        if rank
    }
    assert meeting[0].startswith("10.0.0.0:")
    assert meeting[1:] == (1, 0, 4)
    assert await cluster.nothing_held()


async def _when_all_run(cluster: Cluster, program: Held) -> None:
    """Let the program end once every host has its task: what ends by itself while it is cancelled
    wedges this server.
    """
    await cluster.until(lambda: all(host.taken for host in cluster.hosts.values()))
    program.let_go()


async def test_a_gang_is_placed_when_there_is_room_for_all_of_it_and_not_before(
    cluster: Cluster,
) -> None:
    """Half a gang computes nothing, and would keep hosts from other gangs."""
    runs = Held()
    hosts = await cluster.join_slice(program=runs)
    single = await cluster.submit("single", resources=some(cpu=4))
    await cluster.until(lambda: hosts[0].taken or hosts[1].taken)
    gang = await cluster.gang("gang")
    await cluster.waits(gang)
    shown = await cluster.snapshot()

    assert (shown.running, shown.waiting) == (1, 1)
    refusal = await _refusal_of(cluster, gang)
    assert (refusal.code, refusal.group_needs, refusal.group_has) == (RefusalCode.BUSY, 2, 1)
    runs.let_go()
    assert (await cluster.end(single)).state is JobState.SUCCEEDED
    assert (await cluster.end(gang)).state is JobState.SUCCEEDED
    assert sorted(task.index for host in hosts for task in host.taken if task.job == gang) == [0, 1]
    assert await cluster.nothing_held()


async def _refusal_of(cluster: Cluster, job: str) -> Refusal:
    refusal = (await cluster.users.jobs.explain(job)).refusal
    assert refusal is not None
    return refusal


async def test_tasks_of_a_gang_share_hosts_if_its_user_says_so(cluster: Cluster) -> None:
    """Two tasks of one core must not occupy two machines; each host runs neighbours, and all of
    them meet in one place.
    """
    for number in range(3):
        await cluster.join(f"h{number}", address=f"10.0.0.{number}", attributes={"rack": 1})
    runs = Held()
    cluster.hosts["h0"].program = runs
    together = Coscheduling(group_by="rack", tasks_per_host=2)
    job = await cluster.gang(tasks=4, coscheduling=together, resources=some(cpu=2))
    await cluster.until(lambda: len(cluster.hosts["h0"].taken) == 2)
    shown = {
        view.host.id: (view.running, view.free["cpu"]) for view in (await cluster.snapshot()).hosts
    }
    runs.let_go()
    status = await cluster.end(job)

    assert shown["h0"] == ((f"{job}:0", f"{job}:1"), 0)
    assert status.state is JobState.SUCCEEDED
    assert [task.host for task in status.tasks] == ["h0", "h0", "h1", "h1"]
    ranks = [task.rank for host in ("h0", "h1") for task in cluster.hosts[host].taken]
    ((coordinator, together_on_a_slice),) = {
        (rank.coordinator, rank.tasks_per_slice) for rank in ranks if rank
    }
    assert (coordinator.partition(":")[0], together_on_a_slice) == ("10.0.0.0", 4)
    assert await cluster.nothing_held()


async def test_a_gang_over_two_slices_is_told_its_slices_and_one_place_to_meet(
    cluster: Cluster,
) -> None:
    """A task knows its slice's number; only the first of all tasks is where they meet."""
    await cluster.join_slice("s1")
    await cluster.join_slice("other", size=3)
    await cluster.join_slice("s2")
    job = await cluster.gang(tasks=4, groups=2)
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [task.host for task in status.tasks] == ["s1-w0", "s1-w1", "s2-w0", "s2-w1"]
    ranks = [
        task.rank
        for host in ("s1-w0", "s1-w1", "s2-w0", "s2-w1")
        for task in cluster.hosts[host].taken
    ]
    assert [
        (rank.num_slices, rank.slice_index, rank.tasks_per_slice) for rank in ranks if rank
    ] == [
        (2, 0, 2),
        (2, 0, 2),
        (2, 1, 2),
        (2, 1, 2),
    ]
    assert len({rank.coordinator for rank in ranks if rank}) == 1


async def test_a_failure_for_good_ends_the_siblings_who_say_whose_it_was(cluster: Cluster) -> None:
    """They would wait for the dead task for ever. Their reasons name the failed task."""
    runs, culprit = Held(), Held(then=fails)
    await cluster.join_slice(size=3, program=by_index(runs, culprit, runs))
    job = await cluster.gang(tasks=3)
    await _when_all_run(cluster, culprit)
    status = await cluster.end(job)

    assert status.state is JobState.FAILED
    assert status.reason == f"task 1: {status.tasks[1].reason}"
    assert [task.state for task in status.tasks] == [
        TaskState.KILLED,
        TaskState.FAILED,
        TaskState.KILLED,
    ]
    assert all(status.reason in status.tasks[index].reason for index in (0, 2))
    assert [runs.cancelled, await cluster.nothing_held()] == [True, True]


async def test_a_gang_in_which_one_task_failed_is_tried_again_as_a_whole(cluster: Cluster) -> None:
    """The attempt counts as one failure, and its record names the failed task."""
    culprit = Held(then=fails)
    await cluster.join_slice(
        program=by_index(in_turn(Held(), succeeds), in_turn(culprit, succeeds))
    )
    job = await cluster.gang(max_retries_failure=1)
    await _when_all_run(cluster, culprit)
    status = await cluster.end(job, within=MINUTE)

    assert status.state is JobState.SUCCEEDED
    assert [(task.attempt, task.failures, task.preemptions) for task in status.tasks] == [
        (2, 1, 0),
        (2, 1, 0),
    ]
    first, second = await cluster.attempts(cluster.job(job))
    assert first.account is Account.FAILURES
    assert [(end.state, end.exit_code) for end in first.ends] == [
        (TaskState.KILLED, 143),
        (TaskState.FAILED, 7),
    ]
    assert [second.number, second.account, second.hosts] == [2, Account.NONE, ("s1-w0", "s1-w1")]


async def test_one_lost_host_bounces_the_whole_gang_and_crashes_in_its_wake_cost_no_failure(
    cluster: Cluster,
) -> None:
    """Programs that compute together crash within seconds when one vanishes, long before the loss
    of its host is known.
    """
    crashes = Held(then=fails)
    program = by_index(crashes, Held(on_cancel=loses_its_host), Held(on_cancel=fails))
    hosts = await cluster.join_slice(size=3, program=in_turn(program, succeeds))
    job = await cluster.gang(tasks=3, max_retries_failure=0)
    await _when_all_run(cluster, crashes)
    status = await cluster.end(job, within=MINUTE)

    assert status.state is JobState.SUCCEEDED
    assert [(task.attempt, task.failures, task.preemptions) for task in status.tasks] == [
        (2, 0, 1)
    ] * 3
    assert [len(host.taken) for host in hosts] == [2, 2, 2]
    first, _ = await cluster.attempts(cluster.job(job))
    assert [first.account, first.reason] == [Account.PREEMPTIONS, "the agent died"]
    assert all(first.reason in end.reason for end in first.ends)


async def test_tasks_of_a_gang_that_had_succeeded_run_again_with_the_one_that_was_preempted(
    cluster: Cluster,
) -> None:
    """A gang computes together: what one of them had finished alone is of no use to the next
    attempt.
    """
    taken_away = Held(then=is_preempted)
    hosts = await cluster.join_slice(program=by_index(succeeds, in_turn(taken_away, succeeds)))
    job = await cluster.gang()
    await cluster.until(lambda: _ends_known(cluster, job))
    taken_away.let_go()
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [(task.attempt, task.preemptions) for task in status.tasks] == [(2, 1), (2, 1)]
    assert [len(host.taken) for host in hosts] == [2, 2]
    first, _ = await cluster.attempts(cluster.job(job))
    assert "task 1: host was stopped" in first.ends[0].reason


async def test_a_gang_is_not_placed_again_on_hosts_that_have_ended_it_because_they_leave(
    cluster: Cluster,
) -> None:
    """Their slice says so, too, but perhaps later than the gang asks; a minute would be lost on
    hosts that take nothing.
    """
    # One after the other: an activity that ends while its workflow cancels it wedges that workflow
    # on this server.
    hosts = await cluster.join_slice(program=by_index(leaves, Held(on_cancel=leaves)))
    job = await cluster.gang()
    await cluster.waits(job, attempt=1)

    assert [len(host.taken) for host in hosts] == [1, 1]
    assert (await cluster.snapshot()).hosts == ()


async def test_a_gang_waits_for_all_of_its_hosts_when_they_return_together(
    cluster: Cluster,
) -> None:
    """As after a power cut: their agents report what ran as lost, perhaps before their slice has
    the new incarnations. An attempt on the old ones would be refused, one host after the other.
    """
    back = Held(then=is_lost_with_its_incarnation)
    both = by_index(back, Held(on_cancel=is_lost_with_its_incarnation))
    hosts = await cluster.join_slice(program=in_turn(both, succeeds))
    job = await cluster.gang()
    await _when_all_run(cluster, back)
    await cluster.waits(job, attempt=1)
    await cluster.join_slice(incarnation="second")
    status = await cluster.end(job)

    assert [(task.state, task.attempt, task.preemptions) for task in status.tasks] == [
        (TaskState.SUCCEEDED, 2, 1)
    ] * 2
    assert [[task.incarnation for task in host.taken] for host in hosts] == [
        ["first", "second"]
    ] * 2


async def is_lost_with_its_incarnation(task: RunTask) -> TaskOutcome:
    """As the agent of a host reports an attempt of an earlier incarnation."""
    lifecycle, _ = step(Lifecycle(State.RUNNING), Event.INCARNATION_OVER, "the agent died")
    assert lifecycle.outcome is not None
    return lifecycle.outcome.model_copy(update={"started_at": activity.info().started_time})


async def leaves(task: RunTask) -> TaskOutcome:
    """The end of a task on a host that the platform takes away."""
    return (await is_preempted(task)).model_copy(update={"host_leaves": True})


async def test_a_gang_whose_hosts_are_lost_too_often_says_which_task_it_was_and_how_often(
    cluster: Cluster,
) -> None:
    """The others have the same end; but they only point to the one that has the reason."""
    lost = [Held(then=loses_its_host) for _ in range(2)]
    stopped = in_turn(*(Held() for _ in lost))
    hosts = await cluster.join_slice(program=by_index(stopped, in_turn(*lost)))
    job = await cluster.gang(max_retries_preemption=1)
    for number, program in enumerate(lost, start=1):
        await cluster.until(lambda number=number: all(len(host.taken) == number for host in hosts))
        program.let_go()
    status = await cluster.end(job)

    assert [status.state, {task.state for task in status.tasks}] == [
        JobState.WORKER_FAILED,
        {TaskState.WORKER_FAILED},
    ]
    assert status.reason.startswith("task 1: the agent died (preemptions 2, ")
    assert await cluster.nothing_held()


async def _ends_known(cluster: Cluster, job: str) -> int:
    """How many ends of programs the job has heard of."""
    ends = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
    return len(
        [
            event
            async for event in cluster.job(job).fetch_history_events()
            if event.event_type == ends
        ]
    )


async def test_a_gang_that_one_host_does_not_take_up_is_tried_again_for_nothing(
    cluster: Cluster,
) -> None:
    """The program is not to blame, and neither are the machines that did their part."""
    refused = Held(then=is_not_taken)
    await cluster.join_slice(program=in_turn(by_index(Held(), refused), succeeds))
    job = await cluster.gang(max_retries_failure=0, max_retries_preemption=0)
    await _when_all_run(cluster, refused)
    status = await cluster.end(job, within=MINUTE)

    assert status.state is JobState.SUCCEEDED
    assert [(task.attempt, task.failures, task.preemptions) for task in status.tasks] == [
        (2, 0, 0),
        (2, 0, 0),
    ]


async def test_a_cancelled_gang_is_killed_and_its_last_attempt_is_part_of_its_story(
    cluster: Cluster,
) -> None:
    """Every program is stopped, no host stays held, and where it ran can still be read."""
    runs = Held()
    hosts = await cluster.join_slice(program=runs)
    job = await cluster.gang()
    await cluster.until(lambda: all(host.taken for host in hosts))
    await cluster.cancel(job, "not needed")
    status = await cluster.end(job)

    assert (status.state, status.reason) == (JobState.KILLED, "not needed")
    assert [(task.state, task.exit_code) for task in status.tasks] == [(TaskState.KILLED, 143)] * 2
    (attempt,) = await cluster.attempts(cluster.job(job))
    assert [attempt.account, attempt.hosts, attempt.reason] == [
        Account.NONE,
        ("s1-w0", "s1-w1"),
        "not needed",
    ]
    assert await cluster.nothing_held()


async def test_a_gang_cancelled_while_it_is_ended_by_a_failure_holds_its_hosts_until_all_are_dead(
    cluster: Cluster,
) -> None:
    """Two ends at once: neither may give back a host on which a program is still dying, nor lose
    how the programs ended.
    """
    dying = Held(then=is_killed)
    runs, culprit = Held(on_cancel=dying), Held(then=fails)
    hosts = await cluster.join_slice(program=by_index(runs, culprit))
    job = await cluster.gang(max_retries_failure=3)
    await _when_all_run(cluster, culprit)
    await cluster.until(lambda: runs.cancelled)
    await cluster.cancel(job)
    await cluster.until(lambda: dying.cancelled or _cancel_is_known(cluster, job))

    assert (await cluster.snapshot()).running == 1
    dying.let_go()
    status = await cluster.end(job)
    assert status.state is JobState.KILLED
    assert [len(host.taken) for host in hosts] == [1, 1]
    (attempt,) = await cluster.attempts(cluster.job(job))
    assert [end.exit_code for end in attempt.ends] == [143, 7]
    assert await cluster.nothing_held()


async def _cancel_is_known(cluster: Cluster, job: str) -> bool:
    known = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
    return any(
        [event.event_type == known async for event in cluster.job(job).fetch_history_events()]
    )


async def test_a_gang_without_room_within_its_scheduling_timeout_is_unschedulable(
    cluster: Cluster,
) -> None:
    """With the numbers of the largest group there is; and none of its tasks has started
    anywhere.
    """
    await cluster.join_slice(size=2)
    job = await cluster.gang(tasks=3, scheduling_timeout=MINUTE)
    status = await cluster.end(job, within=2 * MINUTE)

    assert status.state is JobState.UNSCHEDULABLE
    assert "needs 3 hosts" in status.reason
    assert [task.state for task in status.tasks] == [TaskState.UNSCHEDULABLE] * 3
    assert await cluster.attempts(cluster.job(job)) == ()
    assert await cluster.nothing_held()


async def test_a_gang_that_lost_its_slice_waits_for_another_and_says_why(cluster: Cluster) -> None:
    """The slice is gone as a whole; the gang is not, and its clock for the first placement has
    stopped.
    """
    taken_away = Held(then=loses_its_host)
    hosts = await cluster.join_slice("s1", program=by_index(Held(), taken_away))
    job = await cluster.gang(scheduling_timeout=MINUTE)
    await cluster.until(lambda: all(host.taken for host in hosts))
    await cluster.lose(hosts[1].host)
    taken_away.let_go()
    await cluster.waits(job, attempt=1)
    await cluster.later(2 * MINUTE)
    assert (await _refusal_of(cluster, job)).code is RefusalCode.NO_HOSTS
    assert "the agent died" in (await cluster.status(job)).reason
    await cluster.join_slice("s2")
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [(task.host, task.preemptions) for task in status.tasks] == [("s2-w0", 1), ("s2-w1", 1)]


@pytest.mark.long
async def test_a_gang_that_continues_as_new_keeps_its_accounts_and_its_story() -> None:
    """Its tasks keep one another too: the next attempt is of all of them, on one placement."""
    async with dev_server_cluster("limit.historyCount.suggestContinueAsNew=50") as cluster:
        hosts = await cluster.join_slice(program=in_turn(*[is_preempted] * 6, succeeds))
        job = await cluster.gang()
        first = (await cluster.job(job).describe()).run_id
        status = await cluster.end(job)

        assert (await cluster.job(job).describe()).run_id != first, (
            "it did not continue as new: nothing was tested"
        )
        assert status.state is JobState.SUCCEEDED
        assert [(task.attempt, task.preemptions, task.failures) for task in status.tasks] == [
            (7, 6, 0),
            (7, 6, 0),
        ]
        assert [record.number for record in await cluster.attempts(cluster.job(job))] == list(
            range(1, 8)
        )
        assert [[task.attempt for task in host.taken] for host in hosts] == [list(range(1, 8))] * 2
        await cluster.until(cluster.nothing_held)


# The SDK's warning comes when a program has ended by itself while its cancellation was under way.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Cannot find activity to cancel")
@pytest.mark.parametrize("dies", ["while it runs", "while it waits"])
async def test_what_a_terminated_gang_held_or_waited_for_is_free_again(
    dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terminate in the Web UI gives a workflow no chance to give anything back; the scheduler finds
    out by itself.
    """
    monkeypatch.setattr(policies, "CHECK_JOBS_EVERY", timedelta(seconds=1))
    monkeypatch.setattr(notifier_activities, "LEFT_TO_HOSTS", timedelta(seconds=1))
    async with dev_server_cluster() as cluster:
        runs = Held()
        hosts = await cluster.join_slice(program=runs)
        first = await cluster.gang("first")
        await cluster.until(lambda: all(host.taken for host in hosts))
        second = await cluster.gang("second")
        await cluster.waits(second)
        await cluster.job(first if dies == "while it runs" else second).terminate()
        if dies == "while it waits":
            await cluster.until(lambda: _waiting_is(cluster, 0))
        if dies == "while it runs":
            await cluster.until(lambda: runs.cancelled)
        runs.let_go()
        if dies == "while it runs":
            assert (await cluster.end(second)).state is JobState.SUCCEEDED
        await cluster.until(cluster.nothing_held)


async def _waiting_is(cluster: Cluster, count: int) -> bool:
    return (await cluster.snapshot()).waiting == count
