"""When the lease of an attempt begins and ends, and how often the attempt keeps contact."""

import asyncio
from datetime import timedelta

import pytest

from iris.activities.host.attempt import heartbeat
from iris.activities.host.attempt.heartbeat import RPC_TIMEOUT, handed_out
from iris.activities.host.runtimes.shim import shim
from iris.model.rules import HEARTBEATS_PER_LEASE, Contact, Rules
from iris.model.states import TaskState
from iris.scheduling.placement.place import place
from iris.scheduling.placement.queue import Queue
from tests.activities.host.attempt.test_attempt import PATIENCE, Bench, bench
from tests.builders import NOON, a_fleet, a_gang, a_host, some

__all__ = ["bench"]

#: Frontend calls that a namespace may make in a second, by default. Source: frontend.namespaceRPS
#: of the Temporal server.
NAMESPACE_LIMIT = 2400


def test_the_heartbeats_of_thousands_of_tasks_stay_far_below_the_limit_of_a_namespace() -> None:
    """5,000 tasks every two seconds used all of it. One pass may place them all, in gangs too."""
    index = a_fleet(*(a_host(f"h{n}", some(cpu=8), attributes={"zone": "a"}) for n in range(5_000)))
    gangs = [a_gang(f"g{n}", 250, some(cpu=1), group_by="zone") for n in range(20)]

    placed = place(index, [], Queue(gangs), NOON, Rules()).placed
    calls = sum(len(each.seats) / each.contact.interval for each in placed)

    assert sum(len(each.seats) for each in placed) == 5_000
    assert calls < 0.6 * NAMESPACE_LIMIT
    assert placed[0].contact.interval == 2


def test_a_lease_has_enough_heartbeats_however_many_tasks_there_are() -> None:
    """One that fails must not end a program."""
    assert Contact.of(Rules(), 10**6).interval == 50 / HEARTBEATS_PER_LEASE
    assert (
        Contact.of(Rules(lease=timedelta(minutes=5)), 10**6).interval == 300 / HEARTBEATS_PER_LEASE
    )


def test_a_lease_begins_when_the_server_hands_out_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server's timeout begins then, and an agent may take the attempt later. A wrong clock
    leaves time for one answer.
    """
    monkeypatch.setattr(shim, "now", lambda: 1000.0)

    assert handed_out(timedelta(seconds=30), 50) == 970
    assert handed_out(timedelta(seconds=-30), 50) == 1000
    assert handed_out(timedelta(hours=1), 50) == 950 + RPC_TIMEOUT.total_seconds()
    assert handed_out(timedelta(hours=1), 4) == 1000


async def test_a_program_without_contact_ends_with_its_own_lease(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with a lease that all clusters share."""
    monkeypatch.setattr(heartbeat, "ANNOUNCE_AFTER", timedelta(0))
    bench.server.away = True
    attempt = bench.attempt("sleep", "1000", contact=Contact(lease=0.5, interval=0.1))

    await asyncio.wait_for(attempt.run(), PATIENCE)

    # Shim and agent both watch the lease. If the shim is first, the agent reports it.
    assert all(outcome.state is TaskState.WORKER_FAILED for outcome in bench.server.told)
