"""Hosts that spoil one attempt after the other take no more, until an operator has looked at
them.
"""

from datetime import timedelta

import pytest

from iris.model.host.constraints import Constraint, Operator
from iris.model.states import JobState
from iris.scheduling.placement.refusals import RefusalCode
from tests.harness import (
    Cluster,
    Held,
    Program,
    by_index,
    fails,
    in_turn,
    is_not_taken,
    is_preempted,
    is_refused,
    is_refused_by_a_leaving_host,
    meets_a_fault,
    succeeds,
)

MINUTE = timedelta(minutes=1)
#: A host that this is said of is the better one, even after it has spoilt two attempts.
PREFERRED = (
    Constraint(key="disk", op=Operator.EQ, values=("fast",), preferred=True),
    Constraint(key="disk", op=Operator.EXISTS, preferred=True),
)


async def _closed(cluster: Cluster) -> dict[str, str]:
    """Why hosts take nothing new."""
    return {view.host.id: view.closed for view in (await cluster.snapshot()).hosts if view.closed}


@pytest.mark.parametrize("spoils", [is_not_taken, meets_a_fault])
async def test_an_attempt_that_a_host_spoilt_is_tried_again_on_another_idle_host(
    cluster: Cluster, spoils: Program
) -> None:
    """A job was tried seven times on the same broken host while another one was idle."""
    broken = await cluster.join("broken", program=spoils)
    sound = await cluster.join("sound")
    end = await cluster.end(await cluster.submit(), within=MINUTE)

    assert [end.state, end.tasks[0].host] == [JobState.SUCCEEDED, "sound"]
    assert [len(broken.taken), len(sound.taken)] == [1, 1]
    assert await _closed(cluster) == {}


@pytest.mark.parametrize("spoils", [is_not_taken, meets_a_fault])
async def test_three_attempts_in_a_row_close_a_host_and_the_job_runs_elsewhere(
    cluster: Cluster, spoils: Program
) -> None:
    """One broken machine must not eat the cluster's jobs; none of it is charged to the program."""
    broken = await cluster.join("broken", program=spoils, attributes={"disk": "fast"})
    sound = await cluster.join("sound")
    job = await cluster.submit(constraints=PREFERRED, max_retries_failure=0)
    end = await cluster.end(job, within=MINUTE)

    assert [end.state, end.tasks[0].failures, end.tasks[0].host] == [JobState.SUCCEEDED, 0, "sound"]
    assert [len(broken.taken), len(sound.taken)] == [3, 1]
    assert await _closed(cluster) == {"broken": "quarantined: 3 attempts in a row failed there"}
    assert await cluster.nothing_held()


async def test_a_host_that_waits_for_an_operator_is_the_reason_of_those_who_wait_for_it(
    cluster: Cluster,
) -> None:
    """The host stays closed in its next incarnation. When it is opened again, its strikes are
    forgotten.
    """
    host = await cluster.join(
        program=in_turn(
            is_not_taken, is_not_taken, is_not_taken, is_not_taken, is_not_taken, succeeds
        )
    )
    job = await cluster.submit()
    await cluster.later(MINUTE)
    await cluster.waits(job, attempt=3)
    await cluster.join(incarnation="second")

    explanation = await cluster.users.jobs.explain(job)
    assert explanation.code == RefusalCode.CLOSED
    assert "quarantined: " in explanation.message
    assert [record.number for record in explanation.attempts[0]] == [1, 2, 3]
    await cluster.users.hosts.uncordon("h1")
    end = await cluster.end(job, within=MINUTE)
    assert [end.state, len(host.taken)] == [JobState.SUCCEEDED, 6]
    assert await _closed(cluster) == {}


async def test_attempts_that_ran_in_between_clear_a_host(cluster: Cluster) -> None:
    """Two refusals a month are the weather, and three of them are too."""
    host = await cluster.join(
        program=in_turn(
            is_not_taken, is_not_taken, is_preempted, is_not_taken, is_not_taken, succeeds
        )
    )
    end = await cluster.end(await cluster.submit(), within=MINUTE)

    assert [end.state, len(host.taken)] == [JobState.SUCCEEDED, 6]
    assert await _closed(cluster) == {}


async def test_programs_that_fail_of_themselves_close_no_host(cluster: Cluster) -> None:
    """Else one user with a broken program would close all machines, one by one."""
    host = await cluster.join(program=fails)
    end = await cluster.end(await cluster.submit(max_retries_failure=4), within=MINUTE)

    assert [end.state, len(host.taken)] == [JobState.FAILED, 5]
    assert await _closed(cluster) == {}


async def test_a_fault_is_tried_again_ever_more_slowly_and_paid_by_the_machines(
    cluster: Cluster,
) -> None:
    """One second, then two: a fault that is everywhere must not spin through the cluster."""
    for host in ("h1", "h2"):
        await cluster.join(host, program=in_turn(meets_a_fault, meets_a_fault, succeeds))
    end = await cluster.end(await cluster.submit(max_retries_failure=0), within=MINUTE)

    assert end.state is JobState.SUCCEEDED
    assert [end.tasks[0].failures, end.tasks[0].preemptions] == [0, 2]
    assert end.finished_at is not None
    assert timedelta(seconds=3) <= end.finished_at - end.submitted_at < MINUTE


async def test_of_a_gangs_hosts_only_the_one_that_spoilt_the_attempts_is_closed(
    cluster: Cluster,
) -> None:
    """The others had done their part; but without that host there is no room for the gang, and it
    says so.
    """
    faults = [Held(then=meets_a_fault) for _ in range(3)]
    hosts = await cluster.join_slice(
        program=by_index(in_turn(*(Held() for _ in range(3))), in_turn(*faults))
    )
    job = await cluster.gang()
    for number, fault in enumerate(faults, start=1):
        await cluster.until(lambda number=number: all(len(host.taken) == number for host in hosts))
        fault.let_go()
        await cluster.until(lambda number=number: _has_records(cluster, job, number))
        await cluster.later(timedelta(seconds=2 ** (number - 1)))
    await cluster.waits(job, attempt=3)

    assert list(await _closed(cluster)) == ["s1-w1"]
    explanation = await cluster.users.jobs.explain(job)
    assert explanation.code == RefusalCode.CLOSED
    assert [task.preemptions for task in (await cluster.status(job)).tasks] == [3, 3]


async def _has_records(cluster: Cluster, job: str, count: int) -> bool:
    return len(await cluster.attempts(cluster.job(job))) == count


async def test_another_agents_refusals_neither_end_nor_close_a_host(cluster: Cluster) -> None:
    """An older agent of the same host, or one that hands over, refuses tasks while the host is
    well: it used to leave the ledger for ever. The tasks are tried again until an agent of that
    incarnation takes them.
    """
    host = await cluster.join(
        program=in_turn(is_refused, is_refused, is_refused, is_refused, succeeds)
    )
    end = await cluster.end(await cluster.submit(), within=MINUTE)

    assert [end.state, end.tasks[0].preemptions, len(host.taken)] == [JobState.SUCCEEDED, 0, 5]
    assert await _closed(cluster) == {}


async def test_a_host_that_refuses_because_it_leaves_is_out_of_the_ledger_at_once(
    cluster: Cluster,
) -> None:
    """It says so of its own incarnation. Its next one takes the task."""
    host = await cluster.join(program=in_turn(is_refused_by_a_leaving_host, succeeds))
    job = await cluster.submit()
    await cluster.until(lambda: _gone(cluster, "h1"))
    await cluster.join(incarnation="second")
    end = await cluster.end(job, within=MINUTE)

    assert [end.state, len(host.taken)] == [JobState.SUCCEEDED, 2]
    assert await _closed(cluster) == {}


async def _gone(cluster: Cluster, host_id: str) -> bool:
    return host_id not in {view.host.id for view in (await cluster.snapshot()).hosts}
