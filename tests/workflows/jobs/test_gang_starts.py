"""The programs of a gang start together: when the last host is ready, or not at all."""

import asyncio
from datetime import timedelta

import pytest
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.update.v1 import UpdateRef
from temporalio.api.workflowservice.v1 import PollWorkflowExecutionUpdateRequest
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.host.attempt.gang_start import is_member, wait_for_gang
from iris.messages.task import GangStart, RunTask
from iris.model.job.attempts import Account, TaskOutcome
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.spec import Band, Coscheduling
from iris.model.states import JobState, TaskState
from tests.builders import some
from tests.harness import (
    Cluster,
    FakeHost,
    Gate,
    Held,
    Program,
    by_index,
    cannot_be_set_up,
    in_turn,
    is_killed,
    succeeds,
)

SECOND = timedelta(seconds=1)


class SetUps:
    """What the hosts of a gang do: they prepare, wait for the others as agents do, and run. Some
    are slow.
    """

    def __init__(self, cluster: Cluster, then: Program = succeeds) -> None:
        self.slow = {index: Gate() for index in range(4)}
        #: The tasks that were prepared, and those whose programs were started, as often as they
        #: were.
        self.prepared: list[int] = []
        self.started: list[int] = []
        #: The tasks that waited when their attempt ended. They were told so, or were cancelled before
        #: they were.
        self.ended: list[int] = []
        self._cluster = cluster
        self._then = then

    async def __call__(self, task: RunTask) -> TaskOutcome:
        beats = asyncio.create_task(_beat())
        try:
            await self.slow[task.index].passed()
            self.prepared.append(task.index)
            if is_member(task) and not await wait_for_gang(self._cluster.client, task, b"token"):
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended.append(task.index)
            return await is_killed(task)
        finally:
            beats.cancel()
        self.started.append(task.index)
        return await self._then(task)


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(0.05)


async def _a_slice(cluster: Cluster, program: Program) -> list[FakeHost]:
    return await cluster.join_slice("s1", size=4, program=program)


async def _status_has(cluster: Cluster, job: str, reason: str) -> bool:
    return (await cluster.status(job)).reason == reason


async def test_no_program_of_a_gang_starts_before_the_last_host_is_ready_and_the_status_names_it(
    cluster: Cluster,
) -> None:
    """Programs that meet with a time limit failed, because some had waited for 15 s for those
    behind a slow host.
    """
    setups = SetUps(cluster)
    setups.slow[3].close()
    hosts = await _a_slice(cluster, setups)
    job = await cluster.gang(tasks=4)
    await cluster.until(lambda: len(setups.prepared) == 3)
    for host in hosts:
        await cluster.announce(
            host.taken[0], TaskState.BUILDING, "`uv sync`" if host is hosts[3] else ""
        )
    await cluster.until(lambda: _status_has(cluster, job, "waits for 1 of 4 hosts: s1-w3"))
    status = await cluster.status(job)
    page = await cluster.page(cluster.job(job))

    assert status.state is JobState.BUILDING
    assert [task.reason for task in status.tasks] == ["waits for 1 of 4 hosts: s1-w3"] * 3 + [
        "`uv sync`"
    ]
    assert "**BUILDING** waits for 1 of 4 hosts: s1-w3" in page
    assert setups.started == []
    setups.slow[3].open()
    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert sorted(setups.started) == [0, 1, 2, 3]


async def test_a_gang_that_is_tried_again_starts_together_again(cluster: Cluster) -> None:
    """What was ready in the attempt before is not ready in the next."""
    setups = SetUps(cluster)
    setups.slow[0].close()
    first = by_index(cannot_be_set_up, Held(on_cancel=is_killed))
    await _a_slice(cluster, in_turn(first, setups))
    job = await cluster.gang(tasks=4)
    await cluster.until(lambda: _is_pending_again(cluster, job))
    await cluster.later(11 * SECOND)
    await cluster.until(lambda: len(setups.prepared) == 3)
    assert setups.started == []
    setups.slow[0].open()

    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert sorted(setups.started) == [0, 1, 2, 3]


async def test_hosts_that_wait_learn_at_once_that_a_set_up_has_failed(cluster: Cluster) -> None:
    """No program starts, and the hosts are free for others while the gang waits for its next
    attempt.
    """
    setups, fault = SetUps(cluster), Gate()
    fault.close()

    async def fails_later(task: RunTask) -> TaskOutcome:
        await fault.passed()
        return await cannot_be_set_up(task)

    hosts = await _a_slice(cluster, setups)
    hosts[1].program = in_turn(fails_later, setups)
    job = await cluster.gang(tasks=4)
    await cluster.until(lambda: len(setups.prepared) == 3)
    fault.open()
    await cluster.until(lambda: sorted(setups.ended) == [0, 2, 3])
    await cluster.until(cluster.nothing_held)

    assert setups.started == []
    assert (await cluster.end(job, within=11 * SECOND)).state is JobState.SUCCEEDED
    assert sorted(setups.started) == [0, 1, 2, 3]


async def test_a_gang_waits_for_its_slowest_host_no_longer_than_for_a_set_up(
    cluster: Cluster,
) -> None:
    """A host that hangs must not keep the others. It counts as a set-up that failed, and the reason
    names it.
    """
    setups = SetUps(cluster)
    for gate in setups.slow.values():
        gate.close()
    await _a_slice(cluster, setups)
    job = await cluster.gang(tasks=4, environment=EnvironmentSpec(setup_timeout=3 * SECOND))
    await cluster.until(lambda: all(gate.seen for gate in setups.slow.values()))
    for index in (0, 1, 3):  # at once: the time begins with the first of them
        setups.slow[index].open()
    await cluster.until(lambda: _is_pending_again(cluster, job))
    status = await cluster.status(job)
    setups.slow[2].open()

    assert (
        "set-up failed: host s1-w2 was not ready 3s after the first one of its gang"
        " (--setup-timeout)" in status.reason
    )
    assert {task.setups for task in status.tasks} == {1}
    assert setups.started == []
    assert (await cluster.end(job, within=11 * SECOND)).state is JobState.SUCCEEDED
    assert [record.account for record in await cluster.attempts(cluster.job(job))] == [
        Account.SETUPS,
        Account.NONE,
    ]


async def _is_pending_again(cluster: Cluster, job: str) -> bool:
    return all(
        task.state is TaskState.PENDING and task.attempt == 1
        for task in (await cluster.status(job)).tasks
    )


async def test_a_host_whose_agent_was_killed_while_it_waited_waits_again(cluster: Cluster) -> None:
    """Its successor prepares the attempt again, reports again and asks again; the job's history has
    the question once.
    """
    setups = SetUps(cluster)
    setups.slow[3].close()
    hosts = await _a_slice(cluster, setups)
    job = await cluster.gang(tasks=4)
    await cluster.until(lambda: len(setups.prepared) == 3)
    killed = asyncio.create_task(wait_for_gang(cluster.client, hosts[0].taken[0], b"token"))
    await asyncio.wait({killed}, timeout=0.2)
    killed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await killed
    successor = asyncio.create_task(wait_for_gang(cluster.client, hosts[0].taken[0], b"token"))
    setups.slow[3].open()

    assert await successor is True
    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    # Of a job that has ended.
    assert await wait_for_gang(cluster.client, hosts[0].taken[0], b"token") is False


async def test_tasks_of_one_host_start_together_too(cluster: Cluster) -> None:
    """They share the host and often its set-ups, one of which waits for the other."""
    setups = SetUps(cluster)
    setups.slow[1].close()
    for number in range(2):
        await cluster.join(
            f"h{number}", address=f"10.0.0.{number}", attributes={"rack": 1}, program=setups
        )
    together = Coscheduling(group_by="rack", tasks_per_host=2)
    job = await cluster.gang(tasks=4, coscheduling=together, resources=some(cpu=2))
    await cluster.until(lambda: len(setups.prepared) == 3)
    await cluster.announce(cluster.hosts["h1"].taken[0], TaskState.BUILDING)
    await cluster.until(lambda: _status_has(cluster, job, "waits for 1 of 2 hosts: h0"))
    assert setups.started == []
    setups.slow[1].open()

    assert (await cluster.end(job)).state is JobState.SUCCEEDED


async def test_a_gang_of_one_asks_nothing(cluster: Cluster) -> None:
    """Its history has no more events than that of a task without a gang."""
    setups = SetUps(cluster)
    await cluster.join_slice("s1", size=1, program=setups)
    job = await cluster.gang(tasks=1)
    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    alone = await cluster.submit("alone", resources=some(cpu=4))
    assert (await cluster.end(alone)).state is JobState.SUCCEEDED

    assert await _events(cluster, job) == await _events(cluster, alone)


async def _events(cluster: Cluster, job: str) -> list[int]:
    return [event.event_type async for event in cluster.job(job).fetch_history_events()]


async def test_a_job_accepts_the_question_of_its_hosts_before_it_shows_what_signals_have_changed(
    cluster: Cluster,
) -> None:
    """A replay always has the update after the signals of its workflow task. The time-skipping server
    does not, so commands of signal handlers made some jobs stand still for ever.
    """
    await cluster.join_slice(size=4)
    cluster.outbox.asks.close()  # keeps the first workflow task open for two seconds
    job = await cluster.gang(tasks=4)
    handle = cluster.job(job)
    await cluster.until(lambda: cluster.outbox.asks.seen)
    await handle.signal("set_priority", Band.PRODUCTION)
    asked = asyncio.create_task(
        handle.execute_update("start_together", GangStart(claim="none"), id="asked")
    )
    await cluster.until(lambda: _was_signalled(cluster, job))
    await cluster.until(lambda: _knows_update(cluster, job, "asked"))
    cluster.outbox.asks.open()
    assert not await asked
    assert (await cluster.end(job)).state is JobState.SUCCEEDED

    kinds = await _events(cluster, job)
    shown = kinds.index(EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES)
    assert kinds[shown - 1] == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED


async def _was_signalled(cluster: Cluster, job: str) -> bool:
    kind = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
    return kind in await _events(cluster, job)


async def _knows_update(cluster: Cluster, job: str, update: str) -> bool:
    """Whether the server has the update, which no event says before the job has accepted it."""
    poll = PollWorkflowExecutionUpdateRequest(
        namespace=cluster.client.namespace,
        update_ref=UpdateRef(
            workflow_execution=WorkflowExecution(workflow_id=cluster.job(job).id), update_id=update
        ),
    )
    try:
        await cluster.client.workflow_service.poll_workflow_execution_update(poll)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True
