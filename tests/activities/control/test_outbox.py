"""What the outbox does with a message that the scheduler or the server rejects, and with a
scheduler that is away; when it waits for more messages, and what it does with placements that it
has to pass on.
"""

import asyncio
from typing import Any, cast

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from iris.activities.control import outbox
from iris.activities.control.notifier import Notifier
from iris.activities.control.outbox import Outbox
from iris.messages.scheduler import Answer, Answers, Ask, Batch, Envelope, Message, Release
from iris.model.job.requests import Placement, Request
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from tests.builders import a_host, a_placement, a_request

REJECTED = WorkflowUpdateFailedError(ApplicationError("cannot decode the message"))
INVALID = RPCError("invalid argument", RPCStatusCode.INVALID_ARGUMENT, b"")
ENDING = WorkflowUpdateFailedError(
    ApplicationError("the workflow completed", type="AcceptedUpdateCompletedWorkflow")
)
FAILING = RPCError("unexpected workflow task failure", RPCStatusCode.FAILED_PRECONDITION, b"")
AWAY = RPCError("no server", RPCStatusCode.UNAVAILABLE, b"")


class Scheduler:
    """Answers every batch, unless one of its messages has an error: then the batch gets the error,
    so many times.
    """

    def __init__(self, errors: dict[str, Exception], times: int = 10**6) -> None:
        self._errors = errors
        self._left = dict.fromkeys(errors, times)
        self.batches: list[list[str]] = []
        #: Whether the sender of each batch has lost the answer to the one before.
        self.again: list[bool] = []

    def get_workflow_handle(self, workflow_id: str) -> "Scheduler":
        return self

    async def execute_update(self, name: str, batch: Batch, result_type: type[Answers]) -> Answers:
        keys = [message.key for message in batch.messages if isinstance(message, Release)]
        self.batches.append(keys)
        self.again.append(batch.again)
        for key in keys:
            if self._left.get(key, 0) > 0:
                self._left[key] -= 1
                raise self._errors[key]
        return Answers(answers=tuple(Answer(problem=key) for key in keys))


def an_outbox(service: object) -> Outbox:
    """An outbox for which the test plays the Temporal service."""
    client = cast(Client, service)
    return Outbox(client, "trial", Notifier(client))


async def send(scheduler: Scheduler, count: int) -> list[Any]:
    """Sends messages with the keys 0, 1, 2, … at once. Returns their answers and errors in
    order.
    """
    box = an_outbox(scheduler)
    sent = (box.exchange(Envelope(message=Release(key=str(i)))) for i in range(count))
    async with asyncio.timeout(30):
        return await asyncio.gather(*sent, return_exceptions=True)


@pytest.mark.parametrize(
    "error", [REJECTED, INVALID, ValueError("not an answer")], ids=["update", "rpc", "client"]
)
async def test_a_message_that_is_rejected_fails_alone(error: Exception) -> None:
    """Other jobs must not wait for ever because they share a batch with it."""
    scheduler = Scheduler({"5": error, "17": error})

    answers = await send(scheduler, 20)

    failed = [i for i, answer in enumerate(answers) if isinstance(answer, ApplicationError)]
    assert failed == [5, 17]
    assert "rejects the message release" in str(answers[5])
    assert [answer.problem for i, answer in enumerate(answers) if i not in failed] == [
        str(i) for i in range(20) if i not in failed
    ]
    assert len(scheduler.batches) < 20, "each rejected batch is halved"


@pytest.mark.parametrize(
    "error", [ENDING, FAILING, AWAY], ids=["continues as new", "fails its task", "away"]
)
async def test_a_batch_that_meets_a_scheduler_that_is_away_is_sent_again_whole(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is not at fault: no sender may hear of it."""
    monkeypatch.setattr(outbox, "RETRY_EVERY", 0)
    scheduler = Scheduler({"5": error}, times=3)

    answers = await send(scheduler, 20)

    assert [answer.problem for answer in answers] == [str(i) for i in range(20)]
    assert [len(batch) for batch in scheduler.batches] == [20] * 4
    assert scheduler.again == [False, True, True, True]


class Away:
    """A scheduler that never answers; as the client does, it hides a cancellation in an error of
    its own.
    """

    def __init__(self) -> None:
        self.calls, self.called = 0, asyncio.Event()

    def get_workflow_handle(self, workflow_id: str) -> "Away":
        return self

    async def execute_update(self, *_: Any, **__: Any) -> Answers:
        self.calls += 1
        self.called.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise WorkflowUpdateRPCTimeoutOrCancelledError from error
        raise AssertionError


async def exchanged(details: ActivityCancellationDetails) -> BaseException:
    """Returns the error of an exchange that is cancelled while it waits for the scheduler."""
    scheduler, environment = Away(), ActivityEnvironment()
    box = an_outbox(scheduler)
    exchange = asyncio.ensure_future(
        environment.run(box.exchange, Envelope(message=Release(key="1")))
    )
    await scheduler.called.wait()
    environment.cancel(details)
    await asyncio.wait({exchange})
    try:
        exchange.result()
    except BaseException as error:
        return error
    raise AssertionError


async def test_an_exchange_that_is_too_late_ends_without_a_traceback() -> None:
    """The SDK logs one for a cancellation that no workflow requested: for each message while the
    scheduler is away.
    """
    late = await exchanged(ActivityCancellationDetails(timed_out=True))
    assert isinstance(late, ApplicationError)
    assert late.category is ApplicationErrorCategory.BENIGN

    assert isinstance(
        await exchanged(ActivityCancellationDetails(cancel_requested=True)), asyncio.CancelledError
    )


async def test_the_sender_of_a_process_that_ends_does_not_try_again() -> None:
    """Otherwise a control plane could not end while the scheduler is away."""
    scheduler = Away()
    box = an_outbox(scheduler)
    exchange = asyncio.create_task(box.exchange(Envelope(message=Release(key="1"))))
    await scheduler.called.wait()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait(others)

    assert exchange.cancelled()
    assert scheduler.calls == 1


class Full:
    """A scheduler of a full cluster, which answers a batch when the test lets it. Each release
    makes room for the gang that has waited longest.
    """

    def __init__(self, *, alone: bool = True, refuses: frozenset[str] = frozenset()) -> None:
        self.alone, self._refuses = alone, refuses
        self._waiting: list[Request] = []
        self._may_answer = asyncio.Semaphore(0)
        self.batches: list[Batch] = []
        #: The keys of the placements that were signalled to their owners.
        self.signalled: list[str] = []

    def get_workflow_handle(self, workflow_id: str) -> "Full":
        return self

    async def signal(self, name: str, placement: Placement) -> None:
        if placement.key in self._refuses:
            raise RPCError("too many signals", RPCStatusCode.INVALID_ARGUMENT, b"")
        self.signalled.append(placement.key)

    async def execute_update(self, name: str, batch: Batch, result_type: type[Answers]) -> Answers:
        self.batches.append(batch)
        await self._may_answer.acquire()
        refusal = Refusal(code=RefusalCode.BUSY, message="the cluster is full")
        self._waiting += [each.request for each in batch.messages if isinstance(each, Ask)]
        answers = tuple(
            Answer(refusal=refusal if isinstance(each, Ask) else None) for each in batch.messages
        )
        released = sum(isinstance(each, Release) for each in batch.messages)
        placed = [placement_of(request) for request in self._waiting[:released]]
        del self._waiting[:released]
        return Answers(
            answers=answers,
            placed=tuple(placed) if batch.signals else (),
            waiting=len(self._waiting),
            alone=self.alone,
        )

    def answers(self, count: int = 1) -> None:
        """Answers so many batches, now or when they come."""
        for _ in range(count):
            self._may_answer.release()

    @property
    def sent(self) -> list[list[str]]:
        """The keys of the messages of each batch."""
        return [[key_of(message) for message in batch.messages] for batch in self.batches]


def key_of(message: Message) -> str:
    assert isinstance(message, Ask | Release)
    return message.request.key if isinstance(message, Ask) else message.key


def placement_of(request: Request) -> Placement:
    return a_placement(a_host(), key=request.key, owner=request.owner)


class Sender:
    """Sends messages through an outbox."""

    def __init__(self, scheduler: Full) -> None:
        self.box = an_outbox(scheduler)
        self.scheduler = scheduler

    async def send(self, message: Message, *, patient: bool = False) -> asyncio.Task[Answer]:
        envelope = Envelope(message=message, patient=patient)
        sent = asyncio.create_task(self.box.exchange(envelope))
        await rest()
        return sent

    async def ask(self, key: str) -> asyncio.Task[Answer]:
        return await self.send(Ask(request=a_request(key)), patient=True)

    async def release(self, key: str) -> asyncio.Task[Answer]:
        return await self.send(Release(key=key))


async def rest() -> None:
    """Lets all that can run without a clock run."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy outbox waits for ever for an urgent message, and stays busy."""
    monkeypatch.setattr(outbox, "UNHURRIED", 3600)
    monkeypatch.setattr(outbox, "BUSY", 3600)
    monkeypatch.setattr(outbox, "MAX_PAUSE", 0)
    monkeypatch.setattr(outbox, "LEAST_PLACED", 1)


async def test_messages_that_come_one_after_the_other_are_sent_at_once(unhurried: None) -> None:
    """On an idle cluster, a job must start without any wait."""
    sender = Sender(scheduler := Full())
    scheduler.answers(4)
    async with asyncio.timeout(30):
        for number in range(2):
            await (await sender.ask(f"a{number}"))
            await (await sender.release(f"r{number}"))

    assert scheduler.sent == [["a0"], ["r0"], ["a1"], ["r1"]]


async def test_a_busy_outbox_sends_requests_that_have_to_wait_with_the_next_release(
    unhurried: None,
) -> None:
    """Each exchange is five events of the scheduler, and these requests get no hosts anyway."""
    sender = Sender(scheduler := Full())
    await sender.ask("a0")
    await sender.ask("a1")
    scheduler.answers()
    await rest()
    await sender.ask("a2")
    assert scheduler.sent == [["a0"]]
    await sender.release("r0")

    assert scheduler.sent == [["a0"], ["a1", "a2", "r0"]]


async def _busy(sender: Sender, *asks: str) -> None:
    """Makes an outbox busy: it has sent these requests, and a release for the first one."""
    for key in asks:
        await sender.ask(key)
    await sender.release("first")
    sender.scheduler.answers(2)
    await rest()


async def _late(sender: Sender, *asks: str) -> asyncio.Task[Answer]:
    """Makes an outbox busy, and returns one more request, for which the scheduler has no hosts."""
    await _busy(sender, *asks)
    late = await sender.ask("late")
    await sender.release("r1")
    sender.scheduler.answers()
    await rest()
    return late


async def test_a_busy_outbox_signals_the_placements_of_others_and_confirms_them(
    unhurried: None,
) -> None:
    """An activity of the scheduler and its workflow task are six events. One that cannot be
    signalled is not confirmed, so that the scheduler signals it later.
    """
    sender = Sender(scheduler := Full(alone=False, refuses=frozenset({"a1"})))
    await _busy(sender, "a0", "a1", "a2")
    await sender.release("r1")
    await sender.release("r2")
    scheduler.answers(3)
    await rest()
    await sender.release("r3")

    assert scheduler.signalled == ["a0", "a2"]
    assert [key for batch in scheduler.batches for key in batch.signalled] == ["a0", "a2"]


async def test_placements_are_confirmed_although_no_message_follows(
    unhurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the scheduler would signal them again."""
    monkeypatch.setattr(outbox, "CONFIRM_AFTER", 0)
    sender = Sender(scheduler := Full(alone=False))
    await _busy(sender, "a0", "a1")
    scheduler.answers()
    await rest()

    assert scheduler.signalled == ["a0"]
    assert (scheduler.sent[-1], scheduler.batches[-1].signalled) == ([], ("a0",))


async def test_a_gang_that_gets_hosts_within_seconds_gets_them_as_its_answer(
    unhurried: None,
) -> None:
    """That saves a signal and a workflow task. Its placement is confirmed like one that was
    signalled.
    """
    sender = Sender(scheduler := Full())
    late = await _late(sender, "a0", "a1")
    assert not late.done()
    await sender.release("r2")
    scheduler.answers()

    answer = await asyncio.wait_for(late, 30)
    assert answer.placement is not None
    assert answer.placement.key == "late"
    assert scheduler.signalled == ["a0"]
    await sender.release("r3")
    assert "late" in scheduler.batches[-1].signalled


async def test_a_gang_learns_that_it_waits_when_no_hosts_become_free(
    unhurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its users want to know why, and its workflow answers nobody meanwhile."""
    monkeypatch.setattr(outbox, "KEEP", 1.5)
    sender = Sender(Full())
    late = await _late(sender, "a0", "a1")
    assert not late.done()

    answer = await asyncio.wait_for(late, 30)
    assert answer.refusal is not None
    assert answer.refusal.code is RefusalCode.BUSY


async def test_an_answer_that_is_kept_is_given_after_the_load_has_ended(
    unhurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal of the scheduler would wait for the answer, and the host would be idle meanwhile."""
    sender = Sender(scheduler := Full())
    late = await _late(sender, "a0", "a1")
    assert not late.done()
    sender.box._pace._busy_until = 0
    await sender.release("r2")
    scheduler.answers()

    answer = await asyncio.wait_for(late, 30)
    assert answer.placement is not None


async def test_no_answer_is_kept_beside_another_control_plane(unhurried: None) -> None:
    """The other one may get the placement, and its signal would wait for the answer."""
    sender = Sender(Full(alone=False))
    late = await _late(sender, "a0", "a1")

    assert late.done()


async def _kept(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[Answer]:
    """Returns a request whose answer is kept. The next one is sent at once."""
    late = await _late(sender, "a0", "a1")
    assert not late.done()
    monkeypatch.setattr(outbox, "UNHURRIED", 0)
    return late


async def test_kept_answers_are_given_when_another_control_plane_begins_to_run(
    unhurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one may get the placement, and its signal would wait for the answer."""
    late = await _kept(sender := Sender(scheduler := Full()), monkeypatch)
    scheduler.alone = False
    await sender.ask("next")
    scheduler.answers()
    await rest()

    assert late.done()


async def test_a_gang_that_asks_again_while_its_answer_is_kept_gets_its_hosts(
    unhurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workflow was reset, or another worker has its workflow task. Nobody reads the answer to
    the first request, so its hosts would be idle for ever.
    """
    first = await _kept(sender := Sender(scheduler := Full()), monkeypatch)
    second = await sender.ask("late")
    scheduler.answers()
    await rest()
    assert first.done()
    assert not second.done()
    await sender.release("r2")
    scheduler.answers()

    answer = await asyncio.wait_for(second, 30)
    assert answer.placement is not None


async def test_the_answer_of_a_gang_with_a_timeout_is_not_kept(unhurried: None) -> None:
    """The timeout would be noticed too late."""
    sender = Sender(scheduler := Full())
    await _busy(sender, "a0", "a1")
    late = await sender.send(Ask(request=a_request("late")))
    await sender.release("r1")
    scheduler.answers()
    await rest()

    assert late.done()


async def test_the_answer_to_the_last_of_many_is_not_kept(unhurried: None) -> None:
    """It would wait in vain: hosts do not become free fast enough for so many."""
    sender = Sender(Full())
    late = await _late(sender, *(f"a{number}" for number in range(20)))

    assert late.done()
