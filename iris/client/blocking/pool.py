"""A pool of workers for programs that are not asynchronous."""

import time
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import Executor, Future
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack, overload

from iris.client.blocking.client import IrisClient
from iris.client.job_options import JobOptions
from iris.client.pool.pool import AsyncWorkerPool, Mapped

P = ParamSpec("P")
T = TypeVar("T")


class WorkerPool(Executor):
    """Workers on the cluster that run calls of functions: an executor as those of `concurrent.futures`.

    with WorkerPool(client, 4, resources=Resources(cpu=1)) as pool:
        losses = list(pool.map(train, rates))

    A call is run at least once: again, if its worker is lost before its result has arrived. It has one result.
    """

    def __init__(
        self,
        client: IrisClient,
        num_workers: int,
        *,
        idle_timeout: timedelta | float | str = 600,
        workspace: Path | str | bool | None = None,
        **options: Unpack[JobOptions],
    ) -> None:
        """Starts the workers: as `AsyncWorkerPool.start`."""
        asynchronous, self._loop = client.parts
        start = AsyncWorkerPool.start(asynchronous, num_workers, idle_timeout=idle_timeout, workspace=workspace, **options)
        self._pool = self._loop.run(start)

    @property
    def jobs(self) -> list[str]:
        """As `AsyncWorkerPool.jobs`."""
        return self._pool.jobs

    @overload
    def submit(self, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]": ...

    @overload
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]": ...

    def submit(self, fn: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> "Future[Any]":
        """As `AsyncWorkerPool.submit`. The future is one of `concurrent.futures`."""
        return self._pool.call(fn, args, kwargs)

    @overload
    def map(
        self,
        fn: Callable[..., Coroutine[Any, Any, T]],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Generator[T, None, None]: ...

    @overload
    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Generator[T, None, None]: ...

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Generator[Any, None, None]:
        """As `AsyncWorkerPool.map`. The first calls are submitted at once.

        Args:
            timeout: the seconds from now in which each result has to be there; None: no limit.

        Raises:
            TimeoutError: a result was not there in time. The calls continue that were sent to a worker.
        """
        end = None if timeout is None else time.monotonic() + timeout
        return _results(self._pool.mapped(fn, iterables, chunksize, buffersize), end)

    def resize(self, num_workers: int) -> None:
        """As `AsyncWorkerPool.resize`."""
        self._loop.run(self._pool.resize(num_workers))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `AsyncWorkerPool.shutdown`."""
        self._loop.run(self._pool.shutdown(wait, cancel_futures=cancel_futures))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shutdown(wait=error is None)


def _results(futures: Mapped, end: float | None) -> Generator[Any, None, None]:
    try:
        for future in futures:
            yield future.result(None if end is None else max(0.0, end - time.monotonic()))
    finally:
        futures.close()
