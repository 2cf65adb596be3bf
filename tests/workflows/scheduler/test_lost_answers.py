"""A gang whose exchange with the scheduler goes wrong: an answer that is lost, a copy that comes
late, a key that is used up.
"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.worker import PollerBehaviorSimpleMaximum

from iris.messages.scheduler import Answers, Ask, Batch, Envelope, Message, Release, SliceDown
from iris.model import names
from iris.model.job.requests import Placement, Request, request_for
from iris.model.states import JobState
from iris.workflows import policies
from tests.builders import a_spec, some
from tests.harness import (
    Cluster,
    Held,
    Unreachable,
    dev_server_cluster,
    in_turn,
    succeeds,
    time_skipping_cluster,
)


async def _exchange(cluster: Cluster, *messages: Message) -> None:
    """Sends a batch as another process, for example as a control plane that has died since."""
    await cluster.scheduler.execute_update(
        "exchange", Batch(messages=messages), result_type=Answers
    )


async def _request_of(cluster: Cluster, job: str) -> Request:
    """What the job's first attempt asks for."""
    described = await cluster.job(job).describe()
    owner, asked = described.id, await cluster.status(job)
    return request_for(
        a_spec(),
        index=0,
        attempt=1,
        run_id=described.run_id,
        owner=owner,
        submitted_at=asked.submitted_at,
    )


async def test_a_job_whose_first_placement_died_before_it_heard_of_it_runs_on_the_next_host(
    cluster: Cluster,
) -> None:
    """The answer is lost with the control plane, and the repeated ask arrives in one batch with the
    end of the slice.
    """
    host = await cluster.join("h1")
    cluster.outbox.asks.close()
    job = await cluster.submit()
    await cluster.until(lambda: cluster.outbox.asks.seen)
    await _exchange(cluster, Ask(request=await _request_of(cluster, job)))
    assert (await cluster.snapshot()).running == 1
    down = SliceDown(incarnations=((host.host.id, host.host.incarnation),))

    cluster.outbox.asks.open()
    # Behind the ask, in the same batch.
    await asyncio.create_task(cluster.outbox.exchange(Envelope(message=down)))

    await cluster.waits(job)
    second = await cluster.join("h2")
    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert [len(host.taken), len(second.taken)] == [0, 1]
    assert await cluster.nothing_held()


async def test_a_job_that_is_placed_by_a_late_copy_of_its_ask_hears_of_it(cluster: Cluster) -> None:
    """The answer to that copy is lost, so the host would be kept for ever for a job that waits for
    ever.
    """
    first = Held()
    host = await cluster.join(offers=some(cpu=1), program=first)
    running = await cluster.submit("running")
    await cluster.until(lambda: host.taken)
    waiting = await cluster.submit()
    await cluster.waits(waiting)
    cluster.outbox.releases.close()
    first.let_go()
    await cluster.until(lambda: cluster.outbox.releases.seen)

    await _exchange(
        cluster,
        Release(key=host.taken[0].placement_key),
        Ask(request=await _request_of(cluster, waiting)),
    )

    cluster.outbox.releases.open()
    assert (await cluster.end(waiting)).state is JobState.SUCCEEDED
    assert (await cluster.end(running)).state is JobState.SUCCEEDED
    assert await cluster.nothing_held()


async def test_a_job_whose_key_the_scheduler_has_forgotten_asks_with_the_next_one(
    cluster: Cluster,
) -> None:
    """As after a reset of the job's workflow: the key was given back once, and an ask with it stays
    withdrawn for ever.
    """
    host = await cluster.join()
    cluster.outbox.asks.close()
    job = await cluster.submit()
    await cluster.until(lambda: cluster.outbox.asks.seen)
    await _exchange(cluster, Release(key=(await _request_of(cluster, job)).key))

    cluster.outbox.asks.open()

    assert (await cluster.end(job)).state is JobState.SUCCEEDED
    assert [task.attempt for task in host.taken] == [2]
    assert await cluster.nothing_held()


async def test_a_job_that_cannot_be_signalled_keeps_no_other_from_its_hosts_and_is_tried_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its placement would stand before all later ones for ever."""
    monkeypatch.setattr(policies, "CHECK_JOBS_EVERY", timedelta(minutes=1))
    client = Unreachable(cluster.client)
    monkeypatch.setattr(cluster.notifier, "_client", client)
    wedged = await cluster.submit("wedged")
    await cluster.waits(wedged)
    client.owner = cluster.job(wedged).id
    await cluster.join(offers=some(cpu=1))
    await cluster.until(lambda: _runs(cluster, 1))
    other = await cluster.submit("other")
    await cluster.waits(other)
    await cluster.join("h2", offers=some(cpu=1))

    assert (await cluster.end(other)).state is JobState.SUCCEEDED
    assert (await cluster.status(wedged)).state is JobState.PENDING
    client.owner = ""
    assert (await cluster.end(wedged, within=timedelta(minutes=2))).state is JobState.SUCCEEDED
    assert await cluster.nothing_held()


async def _runs(cluster: Cluster, count: int) -> bool:
    return (await cluster.snapshot()).running == count


async def _handed_over(cluster: Cluster) -> Placement:
    """Returns a placement that a control plane has to signal: of a job that waited for a host that
    this control plane has released.
    """
    first = Held()
    host = await cluster.join(offers=some(cpu=1), program=in_turn(first, succeeds))
    await cluster.submit("running")
    await cluster.until(lambda: host.taken)
    waiting = await cluster.submit("waiting")
    await cluster.waits(waiting)
    cluster.outbox.releases.close()
    first.let_go()
    await cluster.until(lambda: cluster.outbox.releases.seen)
    released = Release(key=host.taken[0].placement_key)
    answers = await _send(cluster, Batch(messages=(released,), signals=True))
    cluster.outbox.releases.open()
    (placement,) = answers.placed
    return placement


async def _send(cluster: Cluster, batch: Batch) -> Answers:
    answers: Answers = await cluster.scheduler.execute_update(
        "exchange", batch, result_type=Answers
    )
    return answers


async def test_a_placement_whose_control_plane_dies_before_it_signals_it_is_signalled_by_another(
    cluster: Cluster,
) -> None:
    """Otherwise the job would wait for ever, and its host, too."""
    placement = await _handed_over(cluster)

    waiting = await cluster.end("ada/waiting", within=3 * policies.CONFIRM_SIGNALS)
    assert waiting.state is JobState.SUCCEEDED
    assert [each.key for each in cluster.notifier.given] == [placement.key]
    assert await cluster.nothing_held()


async def test_a_placement_that_a_control_plane_has_signalled_is_not_signalled_again(
    cluster: Cluster,
) -> None:
    """Each signal to a job that runs costs four events."""
    placement = await _handed_over(cluster)
    await _send(cluster, Batch(messages=(), signalled=(placement.key,)))
    await cluster.later(3 * policies.CONFIRM_SIGNALS)
    assert cluster.notifier.given == []

    await cluster.client.get_workflow_handle(placement.owner).signal("placed", placement)

    assert (await cluster.end("ada/waiting")).state is JobState.SUCCEEDED
    assert await cluster.nothing_held()


async def test_the_placements_in_an_answer_that_is_lost_are_signalled_when_the_batch_comes_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their hosts would be idle until the control plane has not confirmed them in time."""
    monkeypatch.setattr(policies, "CONFIRM_SIGNALS", timedelta(days=300))
    await _handed_over(cluster)

    await _send(cluster, Batch(messages=(), again=True))

    assert (await cluster.end("ada/waiting")).state is JobState.SUCCEEDED
    assert await cluster.nothing_held()


@pytest.mark.long
async def test_a_scheduler_that_continues_as_new_forgets_no_placement_that_is_being_signalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control plane may be dead, and its placements are in no queue of signals."""
    monkeypatch.setattr(policies, "CONFIRM_SIGNALS", timedelta(hours=1))
    async with dev_server_cluster("limit.historyCount.suggestContinueAsNew=50") as cluster:
        first = (await cluster.scheduler.describe()).run_id
        await _handed_over(cluster)
        while (await cluster.scheduler.describe()).run_id == first:
            await cluster.rules(min_run_time=timedelta(minutes=1))

        assert (await cluster.end("ada/waiting")).state is JobState.SUCCEEDED
        assert await cluster.nothing_held()


class _OneSlot(Cluster):
    """A control plane that runs one activity at a time for jobs and slices."""

    async def _work(self, queue: str, **settings: Any) -> None:
        control = queue == names.control_queue(self.name)
        few = {
            "max_concurrent_activities": 1,
            "activity_task_poller_behavior": PollerBehaviorSimpleMaximum(1),
        }
        await super()._work(queue, **settings | (few if control else {}))


async def test_exchanges_that_wait_for_the_scheduler_do_not_keep_the_fleet_from_being_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scheduler that is away makes every job wait; slices must be observed and deleted all the
    same.
    """
    monkeypatch.setattr(policies, "EXCHANGE_QUICK", timedelta(seconds=0.1))
    async with time_skipping_cluster(_OneSlot) as cluster:
        cluster.outbox.asks.close()
        jobs = [await cluster.submit(name) for name in ("one", "two")]
        # Each has given up its quick try.
        await cluster.until(lambda: cluster.outbox.asks.seen == 4)

        await cluster.start_autoscaler()

        await cluster.until(lambda: cluster.watch.looks > 0)
        cluster.outbox.asks.open()
        await cluster.join(offers=some(cpu=2))
        assert [(await cluster.end(job)).state for job in jobs] == [JobState.SUCCEEDED] * 2
