"""Runs the file calls of `file://` stores in threads of their own.

A call to a network file system may hang for hours. In asyncio's threads, hanging calls would leave
no thread for other work, and the interpreter would wait for them when it exits, as it waits for the
threads of every `ThreadPoolExecutor`. It does not wait for these threads.
"""

import asyncio
import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

#: The maximum number of threads for file operations in one process. An operation that hangs
#: occupies one thread.
MOST_THREADS = 8
THREAD_PREFIX = "iris-store"


async def in_file_thread(call: Callable[[], T]) -> T:
    """Runs the call in a thread and returns its result. It waits while `MOST_THREADS` other calls
    run.

    If the caller is cancelled, a running call continues.

    Raises:
        Exception: the exception that `call` raises.
    """
    return await asyncio.wrap_future(_threads_of(os.getpid()).submit(call))


class _FileThreads:
    """A pool of daemon threads, which are started as needed. The interpreter does not wait for them
    when it exits.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._starting = threading.Lock()
        self._started = 0
        #: The number of started threads that run no call.
        self._free = threading.Semaphore(0)

    def submit(self, call: Callable[[], T]) -> Future[T]:
        future = Future[T]()
        self._calls.put((future, call))
        with self._starting:
            if not self._free.acquire(blocking=False) and self._started < MOST_THREADS:
                threading.Thread(
                    target=self._work, name=f"{THREAD_PREFIX}-{self._started}", daemon=True
                ).start()
                self._started += 1
        return future

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del future, call  # otherwise an idle thread would keep the result in memory
            self._free.release()


@functools.cache
def _threads_of(pid: int) -> _FileThreads:
    """Returns the threads of this process. A forked process has none of its parent's threads."""
    return _FileThreads()
