"""Ctrl-C, SIGTERM and SIGHUP: an interrupted command prints what it has created.

The Temporal service may accept a request although Ctrl-C ends the command before the answer
arrives. Without this module, the job would run, and its user would not know its name.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import click

from iris.model.errors import first_line
from iris.model.job.errors import JobCancelled, JobFailed

T = TypeVar("T")

#: The maximum number of seconds that an interrupted command waits for the service's answers to the
#: requests that it has already sent.
ANSWER_TIMEOUT_S = 10.0


@contextlib.asynccontextmanager
async def created(
    request: Awaitable[T],
    *,
    announce: Callable[[T], None],
    what: str,
    look: str,
    leave: Callable[[T, BaseException], None] = lambda _, __: None,
) -> AsyncIterator[T]:
    """Sends a request that creates something, and runs the block with the result.

    Announces the result as soon as it is known. After Ctrl-C, waits for the answer and announces
    it, too. A second Ctrl-C ends the wait.

    Args:
        announce: prints the result.
        what: names the object that the request creates, such as `job ada/train`.
        look: the command that shows whether the object exists.
        leave: prints how to return to the object after an error has ended the block early.
    """
    asking = asyncio.ensure_future(request)
    result = await _answer(asking, announce, leave, f"{what} may have been accepted", look)
    announce(result)
    try:
        yield result
    except (JobFailed, JobCancelled):
        raise
    except BaseException as error:
        leave(result, error)
        raise


async def _answer(
    asking: "asyncio.Future[T]",
    announce: Callable[[T], None],
    leave: Callable[[T, BaseException], None],
    unknown: str,
    look: str,
) -> T:
    """Returns the answer. After Ctrl-C, prints the answer or its absence, and raises again."""
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError as interrupt:
        try:
            await answers_of([asking])
        finally:
            if not asking.done() or asking.cancelled():
                silence = "the service did not answer; to find out, run"
                click.echo(f"{unknown}: {silence}: {look}", err=True)
            elif (error := asking.exception()) is not None:
                click.echo(f"error: {first_line(error)}", err=True)
            else:
                announce(asking.result())
                leave(asking.result(), interrupt)
        raise


async def answers_of(requests: Sequence["asyncio.Future[Any]"]) -> None:
    """Waits for the answers to an interrupted command's requests: some seconds, or until Ctrl-C.

    From here on, Ctrl-C cancels the task each time. asyncio does so only the first time, and then
    raises `KeyboardInterrupt` wherever the program is, also in the middle of a message.
    """
    if not all(each.done() for each in requests):
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        # The loop's own handlers would also be called for the first Ctrl-C, if it is still queued.
        signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(task.cancel))
        click.echo("waiting for the service's answer; Ctrl-C again does not wait", err=True)
        await asyncio.wait(requests, timeout=ANSWER_TIMEOUT_S)


@contextlib.contextmanager
def nothing_yet(done: str) -> Iterator[None]:
    """Prints that nothing was created if the block is interrupted.

    Args:
        done: the verb of the message, such as `submitted`.
    """
    try:
        yield
    except asyncio.CancelledError:
        click.echo(f"nothing was {done}", err=True)
        raise


@contextlib.contextmanager
def interrupted_start(cluster: str, stop: str) -> Iterator[None]:
    """Prints how to delete the parts of a cluster whose start is interrupted.

    Args:
        stop: the command that deletes them.
    """
    try:
        yield
    except KeyboardInterrupt:
        click.echo(
            f"cluster {cluster} may have been started in part; to delete it, run: {stop}",
            err=True,
        )
        raise


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs the work of a command. SIGTERM and SIGHUP end it as Ctrl-C does."""

    async def with_signals() -> T:
        end_like_ctrl_c()
        return await work

    with interrupts():
        return asyncio.run(with_signals())


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Turns the cancellation of the block by a signal (`end_like_ctrl_c`) into Ctrl-C."""
    try:
        yield
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def end_like_ctrl_c() -> None:
    """Lets SIGTERM and SIGHUP cancel the running task, as Ctrl-C does.

    A signal that the process ignores, as under `nohup`, stays ignored.
    """
    task = asyncio.current_task()
    assert task is not None
    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(each, task.cancel)
