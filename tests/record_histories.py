"""Records the histories that `tests/workflows/test_replay.py` replays: python -m
tests.record_histories [--all | NAME ...]

Without arguments it records the histories that have no file yet, and leaves the others as they
are. With names it records these again, and with `--all` all of them: do this only for a change
that running workflows do not have to survive. `docs/upgrading.md` has the rules. Commit the files.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Collection
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from iris.activities.control import notifier as notifier_activities
from iris.activities.host.attempt.gang_start import wait_for_gang
from iris.autoscaling import liveness
from iris.messages.scheduled_job import ScheduledJob
from iris.messages.task import RunTask
from iris.model import names, rules
from iris.model.job.arrays import Array, part_workflow
from iris.model.job.attempts import TaskOutcome
from iris.model.job.dependencies import Condition, Dependency
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.notifications import notification_workflow
from iris.model.job.spec import Band
from iris.model.slice import lifecycle
from iris.model.states import TaskState
from iris.scheduling.placement.preemption import Eviction
from iris.workflows import policies
from iris.workflows.autoscaler import autoscaler
from iris.workflows.jobs.scheduled_job import ScheduledJobWorkflow
from tests.builders import a_host, a_silent, a_spec, some
from tests.fleet_harness import FleetCluster
from tests.fleet_played import TenantNotifier
from tests.harness import (
    Cluster,
    Held,
    Program,
    Unreachable,
    by_index,
    by_job,
    cannot_be_set_up,
    child,
    dev_server_cluster,
    fails,
    hangs,
    in_turn,
    is_killed,
    is_preempted,
    is_refused,
    succeeds,
)
from tests.record_fleet_histories import made_slices, scaling

HISTORIES = Path(__file__).with_name("histories")
SECOND = timedelta(seconds=1)


class Recorder:
    """Writes the requested histories to files, without the parts that differ between machines.

    Args:
        arguments: those of the command line.
    """

    def __init__(self, cluster: Cluster, arguments: Collection[str]) -> None:
        self._cluster = cluster
        self._arguments = arguments

    async def keep(
        self, name: str, handle: WorkflowHandle[Any, Any], *, first: bool = True
    ) -> None:
        """Records a history, if it is requested.

        Args:
            first: whether to record the workflow's first run; otherwise its current run.
        """
        path = HISTORIES / f"{name}.json"
        if not self._is_requested(name, path):
            return
        if first:
            described = await handle.describe()
            first_run = described.raw_description.workflow_execution_info.first_run_id
            handle = self._cluster.client.get_workflow_handle(handle.id, run_id=first_run)
        history = _without_stack_traces(json.loads((await handle.fetch_history()).to_json()))
        text = json.dumps(
            {"workflowId": handle.id, **history}, separators=(",", ":"), ensure_ascii=False
        )
        path.write_text(text + "\n")

    def _is_requested(self, name: str, path: Path) -> bool:
        if self._arguments:
            return "--all" in self._arguments or name in self._arguments
        return not path.exists()


def _without_stack_traces(part: Any) -> Any:
    """Removes stack traces: they name files of the machine on which they were recorded."""
    if isinstance(part, dict):
        return {
            key: _without_stack_traces(value) for key, value in part.items() if key != "stackTrace"
        }
    if isinstance(part, list):
        return [_without_stack_traces(value) for value in part]
    return part


async def _first_version(cluster: Cluster, keep: Callable[..., Any]) -> None:
    """Single tasks, independent tasks, slices of one host: what there was before gangs."""
    await _jobs(cluster, keep)
    await _slow(cluster, keep)
    await _tasks(cluster, keep)
    await _slices(cluster, keep)
    await _autoscaler(cluster, keep)
    # Its first run has seen the first jobs, and continued as new; the present one has seen the
    # rest.
    await keep("scheduler-continued-as-new", cluster.scheduler)
    await keep("scheduler-running", cluster.scheduler, first=False)


async def _jobs(cluster: Cluster, keep: Callable[..., Any]) -> None:
    waited = await cluster.submit("waited")
    await cluster.waits(waited)
    host = await cluster.join()
    await cluster.end(waited)
    await keep("job-waited-and-succeeded", cluster.job(waited))

    at_once = await cluster.submit("at-once")
    await cluster.end(at_once)
    await keep("job-placed-at-once", cluster.job(at_once))

    never = await cluster.submit("never", resources=some(cpu=32), scheduling_timeout=SECOND)
    await cluster.end(never)
    await keep("job-unschedulable", cluster.job(never))

    waiting = await cluster.submit("waiting", resources=some(cpu=32))
    await cluster.waits(waiting)
    await cluster.cancel(waiting, "not needed")
    await cluster.end(waiting)
    await keep("job-cancelled-while-waiting", cluster.job(waiting))

    scheduled = await cluster.client.start_workflow(
        ScheduledJobWorkflow.run,
        ScheduledJob(cluster=cluster.name, spec=a_spec(name="nightly")),
        id=f"{names.schedule_id(cluster.name, 'ada/nightly')}-1",
        task_queue=names.control_queue(cluster.name),
    )
    await cluster.result(scheduled)
    await keep("scheduled-job", scheduled)

    host.program = Held()
    running = await cluster.submit("running")
    await cluster.until(lambda: host.taken[-1].job == running)
    await cluster.announce(host.taken[-1])
    await cluster.until(lambda: _state_is(cluster, running, "RUNNING"))
    await cluster.cancel(running)
    await cluster.end(running)
    await keep("job-cancelled-while-running", cluster.job(running))

    host.program = in_turn(hangs, fails, is_refused, is_preempted, fails)
    tried = await cluster.submit("tried", max_retries_failure=1)
    await cluster.end(tried)
    await keep("job-tried-five-times", cluster.job(tried))

    host.program = in_turn(*[is_preempted] * 8, succeeds)
    long = await cluster.submit("long")
    await cluster.end(long)
    await keep("job-continued-as-new", cluster.job(long))
    await keep("job-continued", cluster.job(long), first=False)


async def _slow(cluster: Cluster, keep: Callable[..., Any]) -> None:
    """The scheduler does not answer within the time of the quick exchange; the patient one takes
    over.
    """
    cluster.hosts["h1"].program = succeeds
    releases = cluster.outbox.releases
    before = releases.seen
    releases.close()
    job = await cluster.submit("slowly-released")
    await cluster.until(lambda: releases.seen == before + 2)
    releases.open()
    await cluster.end(job)
    await keep("job-slowly-released", cluster.job(job))


async def _state_is(cluster: Cluster, job: str, state: str) -> bool:
    return (await cluster.status(job)).state == state


async def _tasks(cluster: Cluster, keep: Callable[..., Any]) -> None:
    cluster.hosts["h1"].program = by_index(in_turn(is_preempted, succeeds), succeeds)
    good = await cluster.submit("good", replicas=3)
    await cluster.end(good)
    await keep("job-of-three", cluster.job(good))
    await keep("task-preempted-and-succeeded", cluster.task(good, 0))

    cluster.hosts["h1"].program = by_index(Held(), fails)
    bad = await cluster.submit("bad", replicas=2)
    await cluster.end(bad)
    await keep("job-of-two-failed", cluster.job(bad))
    await keep("task-killed", cluster.task(bad, 0))
    await keep("task-failed", cluster.task(bad, 1))

    cluster.hosts["h1"].program = Held()
    unwanted = await cluster.submit("unwanted", replicas=2, resources=some(cpu=3))
    await cluster.until(lambda: _one_waits(cluster))
    await cluster.cancel(unwanted)
    await cluster.end(unwanted)
    await keep("job-of-two-cancelled", cluster.job(unwanted))

    partly = await cluster.submit("partly", replicas=2)
    await cluster.until(lambda: _two_run(cluster))
    for index in (0, 1):
        await cluster.users.jobs.cancel_task(partly, index, "cancelled by ada")
    await cluster.end(partly)
    await keep("job-of-two-cancelled-one-by-one", cluster.job(partly))

    runs = cluster.hosts["h1"].program = Held()
    button = await cluster.submit("button", replicas=2)
    await cluster.until(lambda: _two_run(cluster))
    await cluster.task(button, 0).cancel()
    runs.let_go()
    await cluster.end(button)
    await keep("job-of-two-with-one-cancelled-on-its-page", cluster.job(button))


async def _two_run(cluster: Cluster) -> bool:
    return (await cluster.snapshot()).running == 2


async def _one_waits(cluster: Cluster) -> bool:
    shown = await cluster.snapshot()
    return (shown.running, shown.waiting) == (1, 1)


async def _slices(cluster: Cluster, keep: Callable[..., Any]) -> None:
    host = await cluster.join("gone")
    await cluster.join("gone", incarnation="second")
    await cluster.lose(a_host("gone", incarnation="first"))
    await cluster.lose(host.host)
    await cluster.result(cluster.slice(host.host))
    await keep("slice-lost", cluster.slice(host.host))

    back = await cluster.join("back")
    await cluster.lose(back.host)
    await cluster.report(a_host("back", incarnation="second"))
    await cluster.until(lambda: cluster.offers(a_host("back", incarnation="second")))
    await keep("slice-came-back", cluster.slice(back.host))


async def _autoscaler(cluster: Cluster, keep: Callable[..., Any]) -> None:
    lost, orphan = await cluster.join("lost"), await cluster.join("orphan")
    await cluster.slice(orphan.host).terminate()
    silent = (a_silent("lost"), a_silent("orphan"))
    cluster.watch.sees(silent, silent)
    watching = await cluster.start_autoscaler()
    await cluster.result(cluster.slice(lost.host))
    await cluster.until(lambda: _continued(watching))
    await keep("autoscaler-continued-as-new", cluster.autoscaler)


async def _continued(handle: WorkflowHandle[Any, Any]) -> bool:
    described = await handle.describe()
    return described.run_id != described.raw_description.workflow_execution_info.first_run_id


async def _gangs(cluster: Cluster, keep: Callable[..., Any]) -> None:
    hosts = await cluster.join_slice(size=3)

    async def all_run(attempts: int) -> None:
        await cluster.until(lambda: all(len(host.taken) == attempts for host in hosts))

    good = await cluster.gang("good", tasks=3)
    await cluster.end(good)
    await keep("gang-succeeded", cluster.job(good))

    culprit = Held(then=fails)
    _play(cluster, by_index(Held(), culprit, Held()))
    bad = await cluster.gang("bad", tasks=3)
    await all_run(2)
    culprit.let_go()
    await cluster.end(bad)
    await keep("gang-failed", cluster.job(bad))

    _play(cluster, in_turn(by_index(Held(), hangs, Held(on_cancel=fails)), succeeds))
    bounced = await cluster.gang("bounced", tasks=3)
    await all_run(3)
    await cluster.announce(hosts[1].taken[-1])
    await cluster.end(bounced)
    await keep("gang-bounced-by-a-lost-host", cluster.job(bounced))

    _play(cluster, in_turn(*[is_preempted] * 8, succeeds))
    long = await cluster.gang("long", tasks=3)
    await cluster.end(long)
    await keep("gang-continued-as-new", cluster.job(long))
    await keep("gang-continued", cluster.job(long), first=False)

    _play(cluster, Held())
    unwanted = await cluster.gang("unwanted", tasks=3)
    await all_run(14)
    await cluster.cancel(unwanted)
    await cluster.end(unwanted)
    await keep("gang-cancelled", cluster.job(unwanted))

    _play(cluster, by_index(hangs, Held(), Held()))
    dead = await cluster.gang("dead", tasks=3, max_retries_preemption=0)
    await all_run(15)
    task = hosts[0].taken[-1]
    await cluster.announce(task)
    seat = (hosts[0].host.id, hosts[0].host.incarnation)
    gone = Eviction(key=task.placement_key, owner=task.owner, why_gone="preempted", gone=(seat,))
    await cluster.job(dead).signal("evicted", gone)
    await cluster.end(dead)
    await keep("gang-with-a-machine-that-is-gone", cluster.job(dead))


async def _set_ups(cluster: Cluster, keep: Callable[..., Any]) -> None:
    """A set-up that fails, programs that start together, and one host that is not ready in time."""

    async def starts_together(task: RunTask) -> TaskOutcome:
        await cluster.announce(task, TaskState.BUILDING, "`uv sync`")
        assert await wait_for_gang(cluster.client, task, b"token")
        return await succeeds(task)

    first = by_index(cannot_be_set_up, Held(on_cancel=is_killed))
    await cluster.join_slice(program=in_turn(first, starts_together))
    again = await cluster.gang("again")
    await cluster.end(again)
    await keep("gang-set-up-again", cluster.job(again))

    _play(
        cluster,
        in_turn(by_index(_is_prepared(cluster), Held(on_cancel=is_killed)), starts_together),
    )
    late = await cluster.gang("late", environment=EnvironmentSpec(setup_timeout=SECOND))
    await cluster.end(late)
    await keep("gang-with-a-late-host", cluster.job(late))

    _play(cluster, in_turn(cannot_be_set_up, succeeds))
    two = await cluster.submit("two", replicas=2)
    await cluster.end(two)
    await keep("job-of-two-set-up-again", cluster.job(two))
    await keep("task-set-up-again", cluster.task(two, 0))


def _is_prepared(cluster: Cluster) -> Program:
    async def run(task: RunTask) -> TaskOutcome:
        waiting = asyncio.create_task(wait_for_gang(cluster.client, task, b"token"))
        outcome = await Held(on_cancel=is_killed)(task)
        waiting.cancel()
        return outcome

    return run


def _play(cluster: Cluster, program: Program) -> None:
    for host in cluster.hosts.values():
        host.program = program


async def _holds(cluster: Cluster, keep: Callable[..., Any]) -> None:
    held = await cluster.submit("held", scheduling_timeout=timedelta(hours=1))
    await cluster.waits(held)
    several = await cluster.submit("several", replicas=2)
    await cluster.waits(several)
    for job, count in ((held, 1), (several, 3)):
        await cluster.users.jobs.hold(job, "not yet")
        await cluster.until(lambda count=count: _counts(cluster, held=count, waiting=3 - count))
    taken_away = Held(then=is_preempted)
    host = await cluster.join(program=by_job({"held": in_turn(taken_away, succeeds)}))
    await cluster.users.jobs.release(held)
    await cluster.until(lambda: host.taken)
    await cluster.users.jobs.hold(held, "look at it first")
    taken_away.let_go()
    await cluster.until(lambda: _state_is(cluster, held, "HELD"))
    for job in (held, several):
        await cluster.users.jobs.release(job)
        await cluster.end(job)
    await keep("job-held-and-released", cluster.job(held))
    await keep("job-of-two-held", cluster.job(several))
    await keep("task-held", cluster.task(several, 0))


async def _same_name(cluster: Cluster, keep: Callable[..., Any]) -> None:
    """A job with the name of a terminated one whose tasks still end; and a placement that cannot be
    signalled at first.
    """
    ends = asyncio.Event()

    async def ends_late(task: RunTask) -> TaskOutcome:
        await ends.wait()
        return await is_killed(task)

    program = Held(on_cancel=ends_late)
    await cluster.join(offers=some(cpu=2), program=program)
    job = await cluster.submit(replicas=2)
    await cluster.until(lambda: len(cluster.hosts["h1"].taken) == 2)
    await cluster.job(job).terminate()
    await cluster.until(lambda: program.cancelled)
    await cluster.submit(replicas=2)
    await cluster.until(lambda: _has_a_reason(cluster, job))
    ends.set()
    program.let_go()
    await cluster.end(job)
    await keep("job-of-two-with-a-name-in-use", cluster.job(job))

    wedged = await cluster.submit("wedged", resources=some(cpu=8))
    await cluster.waits(wedged)
    client = Unreachable(cluster.client)
    cluster.notifier._client = client  # type: ignore[assignment]
    client.owner = cluster.job(wedged).id
    await cluster.join("h2", offers=some(cpu=8))
    await cluster.until(lambda: cluster.notifier.given)
    other = await cluster.submit("other", resources=some(cpu=8))
    await cluster.waits(other)
    await cluster.join("h3", offers=some(cpu=8))
    await cluster.end(other)
    client.owner = ""
    await cluster.end(wedged)
    await keep("scheduler-with-an-unsent-placement", cluster.scheduler)


async def _arrays(cluster: Cluster, keep: Callable[..., Any]) -> None:
    """A large array, and one of its parts."""
    await cluster.join(offers=some(cpu=8))
    array = Array(indices="1-5:2,10", size=4, limit=3, part=2)
    job = await cluster.submit("array", array=array, replicas=4)
    await cluster.end(job)
    await keep("job-of-an-array", cluster.job(job))
    await keep(
        "array-part", cluster.client.get_workflow_handle(part_workflow(cluster.name, job, 1))
    )


async def _notifications(cluster: Cluster, keep: Callable[..., Any]) -> None:
    """A job with a webhook, and the call of it, which is refused."""
    await cluster.join()
    job = await cluster.submit("notifies", notify=("http://169.254.169.254/",))
    await cluster.end(job)
    await keep("job-with-a-notification", cluster.job(job))
    run_id = (await cluster.users.jobs.log_source(job)).run_id
    call = cluster.client.get_workflow_handle(notification_workflow(cluster.name, job, run_id, 0))
    await cluster.until(lambda: _has_failed(call))
    await keep("notification-refused", call)


async def _has_failed(handle: WorkflowHandle[Any, Any]) -> bool:
    return (await handle.describe()).status is WorkflowExecutionStatus.FAILED


async def _children(cluster: Cluster, keep: Callable[..., Any]) -> None:
    """A parent that fails, its child and grandchild, which end with it, and a child that comes too
    late.
    """
    top = Held(then=fails)
    host = await cluster.join(program=by_job({"top": top}, Held()))
    parent = await cluster.submit("top")
    middle = await child(cluster, parent, "middle")
    below = await child(cluster, middle, "below")
    await cluster.until(lambda: len(host.taken) == 3)
    top.let_go()
    for job in (parent, middle, below):
        await cluster.end(job)
    late = await child(cluster, parent, "late")
    await cluster.end(late)
    await keep("parent-failed", cluster.job(parent))
    await keep("child-cancelled-by-its-parent", cluster.job(middle))
    await keep("child-refused", cluster.job(late))


async def _dependents(cluster: Cluster, keep: Callable[..., Any]) -> None:
    """A job that others wait for: one of one task and one of two that start, one that cannot, and
    one that is cancelled.
    """
    first = Held()
    await cluster.join(program=by_job({"first": first}))
    awaited = await cluster.submit("first")

    async def waiting(name: str, on: Condition, **asked: Any) -> str:
        job = await cluster.submit(name, after=(Dependency(job=awaited, on=on),), **asked)
        await cluster.until(lambda: _has_a_reason(cluster, job))
        return job

    one, two = await waiting("one", Condition.OK), await waiting("two", Condition.ANY, replicas=2)
    never, cancelled = (
        await waiting("never", Condition.FAIL),
        await waiting("cancelled", Condition.OK),
    )
    await cluster.cancel(cancelled)
    await cluster.end(cancelled)
    first.let_go()
    for job in (awaited, one, two, never):
        await cluster.end(job)
    await keep("job-with-dependents", cluster.job(awaited))
    await keep("job-after-another", cluster.job(one))
    await keep("job-of-two-after-another", cluster.job(two))
    await keep("job-that-could-no-longer-start", cluster.job(never))
    await keep("job-cancelled-before-its-dependency-ended", cluster.job(cancelled))


async def _has_a_reason(cluster: Cluster, job: str) -> bool:
    return bool((await cluster.status(job)).reason)


async def _counts(cluster: Cluster, *, held: int, waiting: int) -> bool:
    shown = await cluster.snapshot()
    return (shown.held, shown.waiting) == (held, waiting)


async def _evictions(cluster: Cluster, keep: Callable[..., Any]) -> None:
    """A scheduler that evicts gangs, gets commands of operators, and sends reasons; recorded in one
    run from its start.
    """
    victim = Held()
    host = await cluster.join(program=by_job({"batch": in_turn(victim, victim, succeeds)}))
    await cluster.rules(min_run_time=SECOND)
    batch = await cluster.submit("batch", resources=some(cpu=4), band=Band.INTERACTIVE)
    await cluster.until(lambda: host.taken)
    await cluster.users.jobs.set_priority(batch, Band.BATCH)
    await cluster.until(lambda: cluster.outbox.amended)
    production = await cluster.submit("production", resources=some(cpu=4), band=Band.PRODUCTION)
    await cluster.end(production)
    await cluster.until(lambda: host.taken[-1].attempt == 2)
    await cluster.users.hosts.drain("h1", "new disk")
    await cluster.waits(batch, attempt=2)
    for code in ("CLOSED", "PAUSED"):
        await cluster.until(
            lambda code=code: any(
                reason.refusal.code == code for reason in cluster.notifier.reasons
            )
        )
        await cluster.users.cluster.pause("moving house")
    await cluster.users.cluster.resume()
    await cluster.users.hosts.uncordon("h1")
    await cluster.end(batch)
    await keep("job-evicted", cluster.job(batch))
    await keep("scheduler-evicted-and-told-reasons", cluster.scheduler)


async def main() -> None:
    """Each group of scenes has a cluster of its own; what is not wanted is played and not
    written.
    """
    rules.HEARTBEAT_TIMEOUT = policies.HEARTBEAT = SECOND
    policies.CHECK_JOBS_EVERY = notifier_activities.LEFT_TO_HOSTS = SECOND
    lifecycle.DRAIN_CHECK = policies.DELETE_CHECK = SECOND / 5
    autoscaler.OBSERVE_INTERVAL = liveness.SECOND_OBSERVATION_DELAY = SECOND
    HISTORIES.mkdir(exist_ok=True)
    short = "limit.historyCount.suggestContinueAsNew=50"
    with_short_histories = (_first_version, _gangs)
    others = (
        _holds,
        _same_name,
        _evictions,
        _children,
        _dependents,
        _arrays,
        _notifications,
        _set_ups,
    )
    for scenes in (*with_short_histories, *others):
        async with dev_server_cluster(*[short] * (scenes in with_short_histories)) as cluster:
            await scenes(cluster, Recorder(cluster, sys.argv[1:]).keep)
    for of_fleet in (made_slices, scaling):
        async with dev_server_cluster(kind=FleetCluster, notifier=TenantNotifier) as fleet:
            await of_fleet(fleet, Recorder(fleet, sys.argv[1:]).keep)


if __name__ == "__main__":
    asyncio.run(main())
