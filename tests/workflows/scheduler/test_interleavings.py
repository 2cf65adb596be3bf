"""Whatever comes in whatever order: every job has exactly one end, and nothing stays held."""

from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import Literal

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from iris.model.states import JobState
from tests.builders import some
from tests.harness import (
    Cluster,
    ServerBrokeDown,
    in_turn,
    is_not_taken,
    is_preempted,
    succeeds,
    time_skipping_cluster,
)
from tests.strategies import examples

#: Events happen at full minutes, timers fire at half ones: the server cannot take both at once (see
#: the harness).
TICK = timedelta(minutes=1)
HALF = TICK / 2
TICKS = 4
ENDS = {JobState.SUCCEEDED, JobState.UNSCHEDULABLE, JobState.KILLED}


class Event(BaseModel):
    """What happens at one tick; those of the same tick happen one right after the other."""

    tick: int
    kind: Literal["submit", "join", "lose", "cancel"]
    number: int
    cpu: int
    #: In ticks, after which a submitted job gives up; it does so half a tick later.
    patience: int | None


EVENTS = st.builds(
    Event,
    tick=st.integers(0, TICKS - 1),
    kind=st.sampled_from(["submit", "submit", "join", "join", "lose", "cancel"]),
    number=st.integers(0, 3),
    cpu=st.sampled_from([1, 3]),
    patience=st.sampled_from([None, 0, 1, 2]),
)


@pytest.mark.long
@settings(max_examples=examples(12), deadline=None, derandomize=True, database=None)
@given(st.lists(EVENTS, min_size=4, max_size=14))
async def test_every_order_of_submissions_hosts_losses_and_cancellations_leaves_nothing_held(
    events: list[Event],
) -> None:
    """Two promises at once: each job ends and does not run after its end, and no core is kept
    without a job.
    """
    try:
        await _ends_and_leaves_nothing(events)
    except ServerBrokeDown:
        reject()  # rule 4 of the harness: an attempt or a timer ended just when it was cancelled


async def _ends_and_leaves_nothing(events: list[Event]) -> None:
    async with time_skipping_cluster() as cluster:
        jobs = await _play(cluster, sorted(events, key=lambda event: event.tick))
        # At last there is room for all; who had no timeout runs now, who had one has used it up.
        await cluster.join("last", offers=some(cpu=64))
        await cluster.later(TICKS * TICK)
        ends = {job: await cluster.end(job) for job in jobs}

        assert {end.state for end in ends.values()} <= ENDS
        for job, end in ends.items():
            attempts = [
                task.attempt
                for host in cluster.hosts.values()
                for task in host.taken
                if task.job == job
            ]
            last = end.tasks[0].attempt
            assert len(attempts) == len(set(attempts))
            # Not equal: an attempt that is cancelled, or whose host is lost, on its way to the host
            # is counted and never taken.
            assert set(attempts) <= set(range(1, last + 1))
            if end.state is JobState.SUCCEEDED:
                assert last in attempts
            if end.state is JobState.UNSCHEDULABLE:
                assert attempts == []
        await cluster.until(cluster.nothing_held)


async def _play(cluster: Cluster, events: list[Event]) -> list[str]:
    """Let it happen; the jobs that were submitted."""
    start = await cluster.now()
    jobs: dict[int, str] = {}
    lives: dict[int, int] = {}
    there: set[int] = set()
    for tick in range(TICKS):
        for event in [event for event in events if event.tick == tick]:
            number = event.number
            if event.kind == "submit" and number not in jobs:
                timeout = None if event.patience is None else event.patience * TICK + HALF
                jobs[number] = await cluster.submit(
                    f"j{number}", resources=some(cpu=event.cpu), scheduling_timeout=timeout
                )
            elif event.kind == "join":
                lives[number] = lives.get(number, 0) + 1
                there.add(number)
                program = in_turn(is_preempted, is_not_taken, succeeds)
                await cluster.join(
                    f"h{number}",
                    offers=some(cpu=event.cpu),
                    program=program,
                    incarnation=f"life {lives[number]}",
                )
            elif event.kind == "lose" and number in there:
                there.remove(number)
                await _all_rest(cluster, jobs.values())
                await cluster.lose(cluster.hosts[f"h{number}"].host)
            elif event.kind == "cancel" and number in jobs:
                await _all_rest(cluster, jobs.values())
                await cluster.cancel(jobs[number])
        await cluster.later(start + (tick + 1) * TICK - await cluster.now())
    return list(jobs.values())


async def _all_rest(cluster: Cluster, jobs: Iterable[str]) -> None:
    """Nothing ends just when it is cancelled: rule 4 of the harness."""
    for job in jobs:
        await cluster.until(partial(cluster.rests, cluster.job(job)))
