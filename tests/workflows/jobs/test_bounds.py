"""Requests of any size do not stop the scheduler: none of its own messages gets too large to be
sent.
"""

import asyncio
import string
from collections.abc import AsyncIterator
from random import Random

import pytest
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from iris.messages.job import JobInput
from iris.messages.scheduler import (
    Answers,
    Ask,
    Batch,
    Envelope,
    Release,
    SchedulerStart,
    Vacate,
)
from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.host.constraints import Constraint, Operator
from iris.model.job.demand_limits import BATCH_BYTES, size_of
from iris.model.job.requests import Request
from iris.model.states import JobState, TaskState
from iris.scheduling.ledger import size as ledger_size
from iris.scheduling.placement.refusals import RefusalCode
from iris.workflows.jobs.job import JobWorkflow
from tests.builders import NOON, a_request, a_spec, some
from tests.harness import Cluster, dev_server_cluster

pytestmark = pytest.mark.long

PATIENCE = 120


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """In real time: the time-skipping server knows no limits."""
    async with dev_server_cluster() as cluster:
        yield cluster


def huge(size: int = 59_000, seed: int = 0) -> tuple[Constraint, ...]:
    """One constraint of so many bytes, in which nothing repeats itself."""
    dice = Random(seed)
    zones = (
        "".join(dice.choices(string.ascii_letters + string.digits, k=60)) for _ in range(size // 63)
    )
    return (Constraint(key="zone", op=Operator.IN, values=tuple(zones)),)


def ask(name: str, **changes: object) -> Request:
    return a_request(
        f"mallory/{name}:0@1/00000000-0000",
        **{"task": f"mallory/{name}:0", "user": "mallory"} | changes,
    )


async def _serves_others(cluster: Cluster) -> None:
    """A job of another user runs, and the scheduler answers queries."""
    status = await cluster.end(await cluster.submit("honest"))
    assert status.state is JobState.SUCCEEDED
    assert (await cluster.snapshot()).total_hosts == 1


async def test_the_tasks_of_a_job_with_a_huge_constraint_are_answered_and_others_are_served(
    cluster: Cluster,
) -> None:
    """Two hundred asks come to twelve megabytes, and each quotes its constraint in the reason that
    it gets.
    """
    await cluster.join()
    constraints = huge()
    asks = [
        Envelope(message=Ask(request=ask(f"j{i}", constraints=constraints))) for i in range(200)
    ]
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(*map(cluster.outbox.exchange, asks))

    assert all(answer.refusal is not None for answer in answers)
    await _serves_others(cluster)


async def test_many_asks_with_different_huge_constraints_in_one_update_do_not_stop_the_scheduler(
    cluster: Cluster,
) -> None:
    """A client that sends messages without an outbox can fill a whole update, and each request has
    another reason.
    """
    await cluster.join()
    asks = tuple(Ask(request=ask(f"j{i}", constraints=huge(seed=i))) for i in range(20))
    async with asyncio.timeout(PATIENCE):
        reply: Answers = await cluster.scheduler.execute_update(
            "exchange", Batch(messages=asks), result_type=Answers
        )

    assert size_of(reply) < BATCH_BYTES
    codes = {answer.refusal.code for answer in reply.answers if answer.refusal is not None}
    assert codes == {RefusalCode.CONSTRAINTS}
    await _serves_others(cluster)


async def test_a_job_whose_client_checks_nothing_ends_with_what_is_wrong_and_asks_nobody(
    cluster: Cluster,
) -> None:
    """The limits hold for every client: the job's workflow looks itself."""
    await cluster.join()
    for tasks in (1, 2):
        spec = a_spec(name=f"huge{tasks}", replicas=tasks, constraints=huge())
        with pytest.raises(
            InvalidValue, match=r"^constraint: .* has 5\d,\d{3} bytes; use at most 1,024"
        ):
            await cluster.users.jobs.submit(spec)
        handle = await cluster.client.start_workflow(
            JobWorkflow.run,
            JobInput(cluster=cluster.name, spec=spec),
            id=names.job_workflow(cluster.name, spec.id),
            task_queue=names.control_queue(cluster.name),
        )
        with pytest.raises(WorkflowFailureError) as error:
            await cluster.result(handle)

        assert isinstance(error.value.cause, ApplicationError)
        assert error.value.cause.type == JobState.UNSCHEDULABLE
        status = await cluster.status(spec.id)
        assert [task.state for task in status.tasks] == [TaskState.UNSCHEDULABLE] * tasks
        assert status.reason.endswith("an attribute that no other host has, and ask for it")
    assert (await cluster.snapshot()).waiting == 0


async def test_gangs_whose_placements_are_too_large_for_one_answer_all_hear_where_they_are(
    cluster: Cluster,
) -> None:
    """A gang whose placement does not fit into the answer gets it by a signal, like a gang that
    waited.
    """
    await cluster.join(offers=some(cpu=64))
    owner, wants = f"nobody/{'x' * 4_000}", some(cpu=0.1)
    asks = [
        Ask(request=ask(f"j{i}", owner=f"{owner}/{i}", task=f"nobody/{i}:0", wants=wants))
        for i in range(150)
    ]
    reply: Answers = await cluster.scheduler.execute_update(
        "exchange", Batch(messages=tuple(asks)), result_type=Answers
    )
    answered = {answer.placement.key for answer in reply.answers if answer.placement is not None}

    assert 0 < len(answered) < len(asks)
    assert size_of(reply) < BATCH_BYTES + 1_000 * (len(asks) - len(answered))
    await cluster.until(
        lambda: (
            {each.key for each in cluster.notifier.given}
            == {each.request.key for each in asks} - answered
        )
    )
    await _serves_others(cluster)


async def test_a_message_that_the_service_does_not_take_holds_up_nobody(cluster: Cluster) -> None:
    """Every message of a control plane goes through one outbox: one that is tried again for ever
    would stop them all.
    """
    await cluster.join()
    poison = Envelope(message=Ask(request=ask("poison", constraints=huge(2_200_000))))
    others = [Envelope(message=Ask(request=ask(f"j{i}", wants=some(cpu=8)))) for i in range(20)]
    sent = asyncio.create_task(cluster.outbox.exchange(poison))
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(*map(cluster.outbox.exchange, others))
        with pytest.raises(
            ApplicationError,
            match=r"the message `ask` has [23],\d{3},\d{3} bytes; the scheduler takes at most",
        ):
            await sent
        with pytest.raises(WorkflowUpdateFailedError) as error:  # from whoever has no outbox
            await cluster.scheduler.execute_update(
                "exchange", Batch(messages=(poison.message,)), result_type=Answers
            )

    assert "bytes are too many for the scheduler" in str(error.value.cause)
    assert all(answer.refusal is not None for answer in answers)
    await _serves_others(cluster)


async def test_a_full_ledger_is_measured_as_it_travels_and_refuses_until_it_is_smaller(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reports the size of each run's history, which begins with the ledger."""
    await cluster.join()
    monkeypatch.setattr(ledger_size, "FULL", 30_000)
    monkeypatch.setattr(ledger_size, "NEAR", 30_000)
    monkeypatch.setattr(ledger_size, "STEP", 500)

    async def refused(name: str) -> bool:
        # As of any job: the owner follows from the key.
        request = ask(name, wants=some(cpu=8), owner=f"c/job/mallory/{name}")
        answer = await cluster.outbox.exchange(Envelope(message=Ask(request=request)))
        assert answer.refusal is not None
        return answer.refusal.code is RefusalCode.LEDGER_FULL

    async def accepts() -> bool:
        return not await refused("later")

    accepted: list[str] = []
    async with asyncio.timeout(PATIENCE):
        for turn in range(100):
            names_ = [f"job-{Random(turn * 100 + each).getrandbits(64):x}" for each in range(50)]
            answers = await asyncio.gather(*map(refused, names_))
            accepted += [name for name, no in zip(names_, answers, strict=True) if not no]
            if all(answers):
                break
        assert 300 < len(accepted) < 1_000
        assert (await cluster.snapshot()).waiting == len(accepted)
        releases = [Release(key=ask(name).key) for name in accepted[:200]]
        await asyncio.gather(
            *(cluster.outbox.exchange(Envelope(message=release)) for release in releases)
        )
        await cluster.until(accepts)
    await _serves_others(cluster)


async def test_messages_that_wait_for_a_new_scheduler_do_not_count_as_its_ledger(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the history of the run before its first task, beside the ledger. An empty ledger
    would say that it is full, and refuse every job until its next run.
    """
    full = 30_000
    monkeypatch.setattr(ledger_size, "FULL", full)
    monkeypatch.setattr(ledger_size, "STEP", full)
    await cluster.stop_serving()
    await cluster.scheduler.terminate("its ledger is lost")
    await cluster.start_scheduler(SchedulerStart(cluster=cluster.name))
    for number in range(200):
        key = f"ada/old-{number}:0@1/run"
        await cluster.deliver(Vacate(key=key, host_id="h1", incarnation="1", at=NOON))
    described = (await cluster.scheduler.describe()).raw_description
    assert described.workflow_execution_info.history_size_bytes > full, "the messages are too small"
    await cluster.serve()
    await cluster.join()

    await _serves_others(cluster)
