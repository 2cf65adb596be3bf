"""What the outbox does with a message that the scheduler or the server rejects, and with a
scheduler that is away.
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
from iris.activities.control.outbox import Outbox
from iris.messages.scheduler import Answer, Answers, Batch, Envelope, Release

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

    def get_workflow_handle(self, workflow_id: str) -> "Scheduler":
        return self

    async def execute_update(self, name: str, batch: Batch, result_type: type[Answers]) -> Answers:
        keys = [message.key for message in batch.messages if isinstance(message, Release)]
        self.batches.append(keys)
        for key in keys:
            if self._left.get(key, 0) > 0:
                self._left[key] -= 1
                raise self._errors[key]
        return Answers(answers=tuple(Answer(problem=key) for key in keys))


async def send(scheduler: Scheduler, count: int) -> list[Any]:
    """Sends messages with the keys 0, 1, 2, … at once. Returns their answers and errors in
    order.
    """
    box = Outbox(cast(Client, scheduler), "trial")
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
    box = Outbox(cast(Client, scheduler), "trial")
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
    box = Outbox(cast(Client, scheduler), "trial")
    exchange = asyncio.create_task(box.exchange(Envelope(message=Release(key="1"))))
    await scheduler.called.wait()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait(others)

    assert exchange.cancelled()
    assert scheduler.calls == 1
