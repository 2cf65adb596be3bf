"""Machines that the platform confirms to be gone: the attempts on them end at once, whatever their
lease is.

A pending activity stops the clock of the time-skipping server, so the lease of these tests, five
minutes, never ends: an attempt that nobody ends lives longer than its test.
"""

from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType

from iris.model.job.attempts import Account
from iris.model.job.spec import Band
from iris.model.job.status import JobStatus
from iris.model.slice.status import SliceState
from iris.model.states import JobState, TaskState
from iris.scheduling.placement.preemption import Eviction
from iris.workflows.slices import slice as slice_workflow
from tests.builders import some
from tests.fakes.platform.machines import EventKind
from tests.fleet_harness import HOUR, MINUTE, SECOND, FleetCluster
from tests.harness import Cluster, FakeHost, Held, by_index, hangs, succeeds
from tests.scaling_world import a_cpu_group

ZONE = "europe-west4-a"
#: How soon after the platform's confirmation the next attempt asks for hosts.
AT_ONCE = timedelta(seconds=10)
WHOLE = some(cpu=8)


async def on_a_machine(fleet: FleetCluster, **asked: object) -> str:
    """A job whose program runs on the only machine, of which nothing is heard any more."""
    await fleet.rules(lease=5 * MINUTE)
    fleet.programs["cpu"] = hangs
    await fleet.ready(a_cpu_group())
    job = await fleet.submit(**({"resources": WHOLE} | asked))
    await runs(fleet, fleet.hosts["s1"])
    return job


async def runs(cluster: Cluster, *hosts: FakeHost) -> None:
    """Waits until the program of each host runs."""
    for host in hosts:
        await cluster.until(lambda host=host: host.taken)
        await cluster.announce(host.taken[-1])


@pytest.mark.parametrize("what", ["preempt", "break_", "vanish"])
async def test_the_next_attempt_asks_as_soon_as_the_platform_confirms_that_the_machine_is_gone(
    monkeypatch: pytest.MonkeyPatch, fleet: FleetCluster, what: str
) -> None:
    """No program can run on a machine that does not exist, so nothing waits for its lease. The loss
    is a preemption, and the user reads which host it was and who says so.
    """
    monkeypatch.setattr(slice_workflow, "TIME_TO_LEAVE", SECOND)
    job = await on_a_machine(fleet)
    await getattr(fleet.platform, what)("s1")
    await fleet.look()
    await fleet.waits(job, attempt=1)

    (attempt,) = await fleet.attempts(fleet.job(job))
    confirmed = [
        event.at
        for event in fleet.platform.audit
        if event.what in (EventKind.DELETED, EventKind.VANISHED)
    ]
    assert attempt.account is Account.PREEMPTIONS
    assert "host s1 was lost: the platform confirms that its machine is gone" in attempt.reason
    assert attempt.ended_at - confirmed[-1] < AT_ONCE


async def test_a_machine_that_is_switched_off_counts_as_gone_before_it_is_deleted(
    fleet: FleetCluster,
) -> None:
    """A preempted virtual machine stops half a minute after the notice, and its deletion takes as
    long again. The slice waits neither for that nor for tasks that cannot end any more.
    """
    fleet.platform.delete_delay = HOUR
    job = await on_a_machine(fleet)
    await fleet.platform.preempt("s1")
    await fleet.look()
    await fleet.until(lambda: fleet.is_in("s1", SliceState.FAILED))
    assert not [notice for notice in fleet.notifier.evictions if notice.gone]
    fleet.platform.machines["s1"].stopped = True
    await fleet.look()
    await fleet.waits(job, attempt=1)

    assert fleet.platform.deleted == []
    fleet.platform.machines["s1"].gone_at = await fleet.now()


async def test_a_silent_machine_keeps_its_lease_until_the_platform_confirms_that_it_is_gone(
    fleet: FleetCluster,
) -> None:
    """A machine that is cut off computes on. Neither its silence nor the end of its slice shortens
    the lease, or two attempts would live at once.
    """
    job = await on_a_machine(fleet)
    fleet.platform.unreachable[ZONE] = "backend error"
    await fleet.lose(fleet.hosts["s1"].host, "host s1 has not reported for 50 s")
    await fleet.until(lambda: fleet.is_in("s1", SliceState.DELETING))
    silent = await fleet.status(job)
    told = list(fleet.notifier.evictions)
    fleet.platform.unreachable.clear()
    await fleet.waits(job, attempt=1)

    assert [silent.state, silent.tasks[0].attempt, told] == [JobState.RUNNING, 1, []]
    assert (await fleet.status(job)).tasks[0].preemptions == 1


async def test_a_machine_that_the_platform_left_to_somebody_else_keeps_its_lease(
    fleet: FleetCluster,
) -> None:
    """There is nothing to delete, but the machine runs: that it is gone is not confirmed."""
    job = await on_a_machine(fleet)
    fleet.platform.mark_manual("s1")
    await fleet.look(listed=False)
    await fleet.until(lambda: fleet.is_in("s1", SliceState.DELETED))

    assert (await fleet.only_task(job)).attempt == 1
    assert not fleet.notifier.evictions


async def test_a_machine_that_joined_by_itself_keeps_its_lease(cluster: Cluster) -> None:
    """No platform manages it, so nobody can confirm that it is gone."""
    host = await cluster.join(program=hangs)
    job = await cluster.submit()
    await runs(cluster, host)
    await cluster.lose(host.host)
    await cluster.result(cluster.slice(host.host))

    assert (await cluster.only_task(job)).attempt == 1
    assert not cluster.notifier.evictions


async def test_tasks_of_an_array_on_a_machine_that_is_gone_end_each_by_itself(
    fleet: FleetCluster,
) -> None:
    """Each task has its own workflow, which owns its placement."""
    await fleet.rules(lease=5 * MINUTE)
    fleet.programs["cpu"] = hangs
    await fleet.ready(a_cpu_group(), "s1")
    job = await fleet.submit(replicas=2, resources=some(cpu=4))
    await fleet.until(lambda: len(fleet.hosts["s1"].taken) == 2)
    await fleet.platform.vanish("s1")
    await fleet.look()
    await fleet.waits(job, attempt=1)

    assert [task.attempt for task in (await fleet.status(job)).tasks] == [1, 1]


async def test_a_notice_that_cannot_be_sent_at_once_is_sent_later(fleet: FleetCluster) -> None:
    """The platform's confirmation comes once, and the slice has ended by then."""
    job = await on_a_machine(fleet)
    fleet.notifier.away = True
    await fleet.platform.vanish("s1")
    await fleet.look()
    await fleet.until(lambda: fleet.notifier.evictions)
    fleet.notifier.away = False
    await fleet.waits(job, attempt=1)


async def test_a_cancelled_job_ends_when_its_machine_is_confirmed_to_be_gone(
    fleet: FleetCluster,
) -> None:
    """No agent is left that could acknowledge the cancellation."""
    job = await on_a_machine(fleet)
    await fleet.cancel(job)
    await fleet.platform.vanish("s1")
    await fleet.look()
    status: JobStatus = await fleet.end(job)

    assert status.state is JobState.KILLED


# -- the notice
# --------------------------------------------------------------------------------------------------


def gone(host: FakeHost, **changes: object) -> Eviction:
    """The notice that the machine of this host's last attempt is gone."""
    task = host.taken[-1]
    notice = Eviction(
        key=task.placement_key,
        owner=task.owner,
        why_gone="preempted",
        gone=((host.host.id, host.host.incarnation),),
    )
    return notice.model_copy(update=changes)


async def test_an_outcome_counts_that_reaches_the_job_together_with_the_notice(
    cluster: Cluster,
) -> None:
    """The host reported it before its machine went. Nothing that has ended runs again."""
    program = Held()
    host = await cluster.join("h1", program=program)
    job = await cluster.submit()
    await runs(cluster, host)
    workflow = cluster.job(job)
    cluster.outbox.amends.close()  # keeps a workflow task open for two seconds
    await workflow.signal("set_priority", Band.PRODUCTION)
    await cluster.until(lambda: cluster.outbox.amends.seen)
    await workflow.signal("evicted", gone(host))
    program.let_go()
    status = await cluster.end(job)
    cluster.outbox.amends.open()

    assert status.state is JobState.SUCCEEDED
    assert len(host.taken) == 1


async def test_a_notice_counts_once_and_only_for_the_attempt_and_the_incarnation_that_it_names(
    cluster: Cluster,
) -> None:
    """Signals may arrive twice, and late: another attempt must not end by them."""
    second = Held()
    host = await cluster.join("h1", program=hangs)
    job = await cluster.submit()
    await runs(cluster, host)
    other = await cluster.join("h2", program=second)
    workflow, notice = cluster.job(job), gone(host)
    await workflow.signal("evicted", gone(host, gone=((host.host.id, "zeroth"),)))
    await workflow.signal("evicted", gone(host, key="of another attempt"))
    assert (await cluster.only_task(job)).state is TaskState.RUNNING
    for _ in range(2):
        await workflow.signal("evicted", notice)
    await cluster.until(lambda: other.taken)
    await workflow.signal("evicted", notice)
    second.let_go()
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [task.attempt for task in (*host.taken, *other.taken)] == [1, 2]
    assert [status.tasks[0].preemptions, second.cancelled] == [1, False]


async def test_the_other_tasks_of_a_gang_are_ended_in_order_when_one_machine_is_gone(
    cluster: Cluster,
) -> None:
    """They have their grace on their own machines, and the gang asks again as a whole. It is not
    placed on the machine that is gone, whose slice may say so later.
    """
    other = Held()
    hosts = await cluster.join_slice(program=by_index(hangs, other))
    job = await cluster.gang()
    await runs(cluster, *hosts)
    await cluster.job(job).signal("evicted", gone(hosts[0]))
    await cluster.waits(job, attempt=1)
    status = await cluster.status(job)

    assert [task.preemptions for task in status.tasks] == [1, 1]
    assert other.cancelled
    assert [view.host for view in (await cluster.snapshot()).hosts] == [hosts[1].host]


async def test_a_task_whose_report_arrived_before_its_machine_went_has_ended_as_reported(
    cluster: Cluster,
) -> None:
    """The rest of the gang still computes, and needs that machine no more."""
    other = Held()
    hosts = await cluster.join_slice(program=by_index(succeeds, other))
    job = await cluster.gang()
    await runs(cluster, *hosts)
    await cluster.until(lambda: _has_ended(cluster, job))
    await cluster.job(job).signal("evicted", gone(hosts[0]))
    await cluster.status(job)
    other.let_go()
    status = await cluster.end(job)

    assert status.state is JobState.SUCCEEDED
    assert [task.attempt for task in status.tasks] == [1, 1]


async def _has_ended(cluster: Cluster, job: str) -> bool:
    """Whether the job has the report of one program's end."""
    events = (await cluster.job(job).fetch_history()).events
    return EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED in {each.event_type for each in events}
