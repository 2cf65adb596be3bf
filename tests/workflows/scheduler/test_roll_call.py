"""A scheduler that has lost its book: its workflow was terminated, and a new one has to find out
who holds and who waits.
"""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from iris.messages.scheduler import SchedulerStart
from iris.model import names
from iris.model.errors import Rejected
from iris.model.job.spec import Band
from iris.model.slice.scaling import Wanted
from iris.model.states import JobState, TaskState
from iris.usage.records import UseEnd
from iris.worker_agents.control_plane import serve
from iris.worker_agents.control_plane.serve import ControlPlaneOptions, start_planners
from iris.workflows import policies
from tests.builders import some
from tests.harness import Cluster, Held, ask, dev_server_cluster


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """On the dev server: the other one cannot list workflows."""
    monkeypatch.setattr(policies, "LIST_LAG", timedelta(seconds=1))
    monkeypatch.setattr(policies, "STORE_USES_AFTER", timedelta(seconds=1))
    async with dev_server_cluster() as cluster:
        yield cluster


async def start_anew(cluster: Cluster) -> None:
    """Terminates the scheduler and starts another, as a control plane does."""
    await cluster.scheduler.terminate("by mistake")
    await cluster.start_scheduler(SchedulerStart(cluster=cluster.name, recover=True))


@pytest.mark.long
async def test_a_scheduler_that_lost_its_book_gives_nobody_hosts_that_are_held(
    cluster: Cluster,
) -> None:
    """What runs is asked for before anything is placed: else two jobs would share one host's
    cores.
    """
    program = Held()
    host = await cluster.join(offers=some(cpu=4), program=program)
    running = await cluster.submit("running", resources=some(cpu=3))
    await cluster.until(lambda: host.taken)
    waiting = await cluster.submit("waiting", resources=some(cpu=3))
    await cluster.waits(waiting)

    await start_anew(cluster)

    await cluster.until(lambda: _counts(cluster, running=1, waiting=1))
    assert (await cluster.free())["cpu"] == 1000
    assert (await cluster.only_task(waiting)).state is TaskState.PENDING
    program.let_go()
    assert (await cluster.end(running)).state is JobState.SUCCEEDED
    assert (await cluster.end(waiting)).state is JobState.SUCCEEDED
    await cluster.until(cluster.nothing_held)
    # The record of the use of hosts reaches back to the time before the scheduler began.
    await cluster.until(lambda: len(cluster.uses.attempts) == 2)
    uses = {use.job: use for use in cluster.uses.attempts.values()}
    placed_at = (await cluster.attempts(cluster.job(running)))[0].placed_at
    assert (uses[running].end, uses[running].host_share) == (UseEnd.SUCCEEDED, 0.75)
    assert abs(uses[running].placed_at - placed_at) < timedelta(seconds=5)


async def _counts(cluster: Cluster, *, running: int, waiting: int) -> bool:
    shown = await cluster.snapshot()
    return (shown.running, shown.waiting) == (running, waiting)


@pytest.mark.long
async def test_gangs_and_held_jobs_are_in_the_new_book_too(cluster: Cluster) -> None:
    """A gang with all its hosts, a held job apart from the queue: neither of them says anything by
    itself.
    """
    program = Held()
    await cluster.join_slice("s0", 2, program=program)
    gang = await cluster.gang("gang", tasks=2)
    await cluster.until(lambda: _counts(cluster, running=1, waiting=0))
    kept = await cluster.submit("kept", resources=some(cpu=64))
    await cluster.waits(kept)
    await cluster.users.jobs.hold(kept)
    await cluster.until(lambda: _held(cluster, 1))

    await start_anew(cluster)

    await cluster.until(lambda: _counts(cluster, running=1, waiting=0))
    await cluster.until(lambda: _held(cluster, 1))
    assert {view.running for view in (await cluster.snapshot()).hosts} == {
        (f"{gang}:0",),
        (f"{gang}:1",),
    }
    program.let_go()
    assert (await cluster.end(gang)).state is JobState.SUCCEEDED


async def _held(cluster: Cluster, count: int) -> bool:
    return (await cluster.snapshot()).held == count


@pytest.mark.long
async def test_a_scheduler_of_an_earlier_version_is_replaced_by_one_that_recovers_the_ledger(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new version cannot replay the earlier one's history: it queries slices and gangs."""
    monkeypatch.setattr(serve, "LEDGER_VERSION", serve.LEDGER_VERSION + 1)
    host = await cluster.join(program=Held())
    await cluster.submit("running", user="slice")  # whose job's id looks a little like a slice's
    await cluster.until(lambda: host.taken)
    options = ControlPlaneOptions(address="", namespace="default", cluster=cluster.name, store="")

    await start_planners(cluster.client, options)

    await cluster.until(lambda: _counts(cluster, running=1, waiting=0))
    settings = [
        (await planner.describe()).raw_description.execution_config
        for planner in (cluster.scheduler, cluster.autoscaler)
    ]
    assert {each.default_workflow_task_timeout.ToTimedelta() for each in settings} == {
        policies.PLANNER_TASK
    }
    run = (await cluster.scheduler.describe()).run_id
    await start_planners(cluster.client, options)
    assert (await cluster.scheduler.describe()).run_id == run, "its own version is left alone"


@pytest.mark.parametrize("raised", ["LEDGER_VERSION", "AUTOSCALER_VERSION"])
async def test_a_control_plane_of_an_earlier_version_leaves_both_planners_alone(
    cluster: Cluster, raised: str
) -> None:
    """Two control planes during an upgrade: each would otherwise end the planners of the other at
    every check.
    """
    options = ControlPlaneOptions(address="", namespace="default", cluster=cluster.name, store="")
    with pytest.MonkeyPatch.context() as later:
        later.setattr(serve, raised, getattr(serve, raised) + 1)
        await start_planners(cluster.client, options)
    workflows = [
        cluster.scheduler,
        cluster.client.get_workflow_handle(names.autoscaler_workflow(cluster.name)),
    ]
    runs = [(await each.describe()).run_id for each in workflows]

    with pytest.raises(Rejected, match="upgrade this control plane"):
        await start_planners(cluster.client, options)

    assert [(await each.describe()).run_id for each in workflows] == runs


async def test_an_autoscaler_of_an_earlier_version_is_replaced(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its history was decided by other rules, too; its successor asks the slices for their
    state.
    """
    autoscaler = await cluster.start_autoscaler()
    first = (await autoscaler.describe()).run_id
    monkeypatch.setattr(serve, "AUTOSCALER_VERSION", 2)
    options = ControlPlaneOptions(address="", namespace="default", cluster=cluster.name, store="")

    await start_planners(cluster.client, options)

    autoscaler = cluster.client.get_workflow_handle(autoscaler.id)
    assert (second := (await autoscaler.describe()).run_id) != first
    await start_planners(cluster.client, options)
    assert (await autoscaler.describe()).run_id == second


@pytest.mark.long
async def test_a_wish_that_meets_a_book_without_the_gang_is_in_it_afterwards(
    cluster: Cluster,
) -> None:
    """The gang learns from the answer that it is not known, and asks again: in the band that its
    user wants now.
    """
    job = await cluster.submit("waiting", resources=some(cpu=64))
    await cluster.waits(job)
    await cluster.scheduler.terminate("by mistake")
    await cluster.start_scheduler(SchedulerStart(cluster=cluster.name))

    await cluster.users.jobs.set_priority(job, Band.PRODUCTION)

    await cluster.until(lambda: _counts(cluster, running=0, waiting=1))
    (demand,) = (await ask(cluster.scheduler, "wanted", Wanted)).demands
    assert demand.example.band is Band.PRODUCTION
