"""An event loop in a thread of its own, for programs that are not asynchronous, and for notebooks,
whose own event loop is busy.
"""

import asyncio
import atexit
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from iris.model.errors import IrisError

T = TypeVar("T")

#: The maximum time in seconds that closing an event loop waits for its coroutines to end after
#: their cancellation. After that, it waits at most the same time for the end of the loop's thread.
STOP_TIMEOUT = 5.0
_CLOSED = "this client is closed; make another one"
_FORKED = "this client belongs to the process that this one was forked from; make another one here"


class BackgroundLoop:
    """Runs coroutines for callers in any thread."""

    def __init__(self) -> None:
        """Starts the thread. The thread ends with `close`, or at the end of the program."""
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="iris-client", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    @property
    def forked(self) -> bool:
        """Whether this process was forked from the process that has the thread."""
        return self._pid != os.getpid()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns the coroutine's result. If an exception interrupts the caller meanwhile, such as
        Ctrl-C, it cancels the coroutine.

        Raises:
            IrisError: the loop is closed, or belongs to the process from which this one was forked.
        """
        future = self.start(coroutine)
        try:
            return future.result()
        finally:
            future.cancel()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Returns the future of the coroutine's result.

        Raises:
            IrisError: the loop is closed, or belongs to another process, as in `run`.
        """
        if self.is_closed or self.forked:
            coroutine.close()
            raise IrisError(_FORKED if self.forked else _CLOSED)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    @property
    def is_closed(self) -> bool:
        """Whether the loop was closed."""
        return self._loop.is_closed()

    def iterate(self, values: AsyncIterator[T], end: float | None = None) -> Iterator[T]:
        """Yields the values. Ends the asynchronous generator if the caller stops early.

        Args:
            end: the time of `time.monotonic` at which to give up; None for no limit.

        Raises:
            TimeoutError: the next value did not arrive in time.
        """
        running: asyncio.Task[Any] | None = None

        async def following() -> tuple[T, ...]:
            nonlocal running
            running = asyncio.current_task()
            async with asyncio.timeout(None if end is None else max(0.0, end - time.monotonic())):
                async for value in values:
                    return (value,)
            return ()

        async def ending() -> None:
            # After an interruption such as Ctrl-C, the task may go on for a moment, and Python
            # refuses to close a generator that runs.
            if running is not None and not running.done():
                # A second cancellation would cut off the clean-up after the first one.
                if not running.cancelling():
                    running.cancel()
                await asyncio.wait([running])
            if (close := getattr(values, "aclose", None)) is not None:
                await close()

        try:
            while value := self.run(following()):
                yield value[0]
        finally:
            self.run(ending())

    @contextmanager
    def entered(self, block: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enters the asynchronous context manager for a block, and yields its value."""
        value = self.run(block.__aenter__())
        try:
            yield value
        finally:
            self.run(block.__aexit__(None, None, None))

    def close(self) -> None:
        """Cancels the running coroutines, and ends the thread. Further calls have no effect."""
        atexit.unregister(self.close)
        if self._loop.is_closed() or self.forked:
            return
        # A call that does not end stays behind with its thread.
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(STOP_TIMEOUT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT)
        if not self._thread.is_alive():
            self._loop.close()


class Blocking:
    """The base of the blocking classes. An instance wraps an object of the asynchronous client, and
    has the event loop that runs the object's coroutines.

    The wrapped object has the type `Any` here, because `scripts/make-blocking.py` writes the
    methods of the subclasses with the signatures of the asynchronous classes.
    """

    def __init__(self, asynchronous: Any, loop: BackgroundLoop) -> None:
        self._asynchronous = asynchronous
        self._loop = loop


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
