"""The event loop of the client that blocks."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from iris.client.blocking.event_loop import BackgroundLoop
from iris.model.errors import IrisError


async def answer() -> int:
    return 42


async def numbers(closed: threading.Event) -> AsyncIterator[int]:
    try:
        for number in range(10):
            yield number
    finally:
        closed.set()


def test_a_caller_waits_for_its_coroutine_and_gets_its_result_or_error() -> None:
    """Also where the caller's own thread runs an event loop, as a notebook's does."""
    loop = BackgroundLoop()

    async def notebook() -> int:
        return loop.run(answer())

    assert asyncio.run(notebook()) == 42
    with pytest.raises(TimeoutError):
        loop.run(asyncio.wait_for(asyncio.Event().wait(), 0.01))
    loop.close()


def test_an_iteration_that_stops_early_ends_its_generator() -> None:
    """Who breaks out of a followed log leaves nothing running."""
    loop, closed = BackgroundLoop(), threading.Event()
    for number in loop.iterate(numbers(closed)):
        if number == 3:
            break

    assert closed.wait(120)
    loop.close()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, also where the tests were started in the background by a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_an_iteration_whose_generator_ends_a_moment_later(ctrl_c: None) -> None:
    """A generator that waits for a request ends when the request has been given up. Python refuses
    to close it before.
    """
    loop, closed = BackgroundLoop(), threading.Event()

    async def waits() -> AsyncIterator[int]:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
            yield 0
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            closed.set()

    with pytest.raises(KeyboardInterrupt):
        list(loop.iterate(waits()))

    assert closed.is_set()
    loop.close()


def test_a_closed_loop_says_so_and_may_be_closed_again() -> None:
    """A client outside of its `with` block."""
    loop = BackgroundLoop()
    loop.close()
    loop.close()

    with pytest.raises(IrisError, match="this client is closed; make another one"):
        loop.run(answer())


def test_a_process_that_was_forked_is_told_to_make_a_client_of_its_own() -> None:
    """The thread stays in the parent, and a call would wait for ever. `multiprocessing` forks by
    default on Linux.
    """
    loop = BackgroundLoop()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            loop.run(answer())
        except IrisError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)

    assert b"forked from; make another one here" in os.read(read, 1000)
    os.close(read)
    loop.close()
