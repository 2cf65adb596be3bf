"""A pool of workers for programs that are not asynchronous."""

import time
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import Executor, Future
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack, overload

from iris.client.blocking.client import IrisClient
from iris.client.build.options import JobOptions
from iris.client.pool.pool import AsyncWorkerPool, Mapped

P = ParamSpec("P")
T = TypeVar("T")


class WorkerPool(Executor):
    """Workers on the cluster that run calls of functions. It is an executor, as in
    `concurrent.futures`.

    with WorkerPool(client, 4, resources=Resources(cpu=1)) as pool:
        losses = list(pool.map(train, rates))

    A call runs at least once. It runs again if its worker is lost before the result arrives. The
    caller gets one result for each call.
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
        """Starts the workers, which are tasks of a job. Calls wait for them.

        Args:
            client: the client of the cluster.
            num_workers: how many calls run at the same time.
            idle_timeout: how long a worker may have no calls before it ends. The pool starts other
                workers for later calls. The workers of a crashed program end in this way, too.
            workspace: as for `IrisClient.submit`.
            options: as for `IrisClient.submit`; `resources` are the resources of each worker.

        Raises:
            InvalidValue, InvalidJob: an option is wrong, or `num_workers` is not a valid number.
            NameTaken: a live job has the pool's name.
            IrisError: the store does not accept the pool's files.
            Unreachable: the service does not answer.
        """
        asynchronous, self._loop = client.parts
        start = AsyncWorkerPool.start(
            asynchronous, num_workers, idle_timeout=idle_timeout, workspace=workspace, **options
        )
        self._pool = self._loop.run(start)

    @property
    def jobs(self) -> list[str]:
        """The ids of the jobs whose tasks are the workers."""
        return self._pool.jobs

    @overload
    def submit(
        self, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> "Future[T]": ...

    @overload
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]": ...

    def submit(self, fn: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> "Future[Any]":
        """Returns the future of a call, which is a `concurrent.futures.Future`.

        Args:
            fn: the function. It is passed by cloudpickle, as for `IrisClient.submit`.
            args: its arguments, which type checkers compare with its parameters.
            kwargs: its keyword arguments, which type checkers compare, too.

        Raises:
            InvalidValue: the function or an argument cannot be pickled.
            PoolBroken: the workers' job has ended.
            PoolClosed: the pool was shut down. It is a `RuntimeError`, as for every executor.
        """
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
        """Yields the results of the function's calls, in the order of the arguments.

        Submits the first calls at once.

        Args:
            fn: the function, as for `submit`.
            iterables: the arguments, one iterable for each parameter. The shortest iterable ends
                the calls.
            timeout: how many seconds from now each result may take; None for no limit.
            chunksize: how many calls travel together; None for as many as take a fraction of a
                second.
            buffersize: how many calls may be ahead of the next result; None for some hundreds for
                each worker.

        Raises:
            Exception: the error that a call has raised.
            TimeoutError: a result did not arrive in time. Calls that were sent to a worker
                continue.
            InvalidValue, PoolBroken, PoolClosed: as in `submit`.
        """
        end = None if timeout is None else time.monotonic() + timeout
        return _results(self._pool.mapped(fn, iterables, chunksize, buffersize), end)

    def resize(self, num_workers: int) -> None:
        """Changes the number of workers. Workers that run a call finish it first.

        Args:
            num_workers: the new number, 1 or more.

        Raises:
            InvalidValue: the number is not valid.
            PoolClosed: the pool was shut down.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._pool.resize(num_workers))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the pool and its workers. The pool refuses further calls. Waits for the service
        while it does not answer.

        Args:
            wait: whether to wait for the submitted calls first; otherwise they are lost.
            cancel_futures: whether to cancel the calls that have not been sent to a worker.
        """
        self._loop.run(self._pool.shutdown(wait, cancel_futures=cancel_futures))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown(wait=error is None)


def _results(futures: Mapped, end: float | None) -> Generator[Any, None, None]:
    try:
        for future in futures:
            yield future.result(None if end is None else max(0.0, end - time.monotonic()))
    finally:
        futures.close()
