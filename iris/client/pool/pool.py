"""The asynchronous pool of workers for calls of functions. `iris.WorkerPool` is built on it."""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack, overload

from iris.client.build.options import JobOptions
from iris.client.client import AsyncIrisClient
from iris.client.functions.call import function_name, pickled
from iris.client.functions.modules import is_missing, module_of
from iris.client.pool import frames
from iris.client.pool.batches import MOST, Call, CallQueue
from iris.client.pool.crew import COUNT_INTERVAL, Crew, Prepared, check_workers, prepare
from iris.client.pool.errors import PoolBroken, PoolClosed
from iris.client.pool.exchange import Exchange
from iris.model.errors import InvalidValue, IrisError
from iris.model.units import MIB, format_bytes

P = ParamSpec("P")
T = TypeVar("T")
#: The number of batches that are sent to each worker at the same time: one runs, and one waits.
BATCHES_PER_WORKER = 2
#: The maximum total size in bytes of the arguments that a `map` sends before the caller takes the
#: results.
MAP_BYTES = 64 * MIB
_SHUT_DOWN = "this pool was shut down; make another one"
_CLIENT_CLOSED = (
    "the pool's client was closed before the pool was shut down; shut the pool down first, or put"
    " its with block inside that of the client"
)
_FORKED = "this pool belongs to the process that this one was forked from; make another one here"


class AsyncWorkerPool:
    """Workers that run calls of functions.

    async with await AsyncWorkerPool.start(client, 4) as pool:
        losses = [loss async for loss in pool.map(train, rates)]

    A call runs at least once. It runs again if its worker is lost before the result arrives. The
    caller gets one result for each call.
    """

    def __init__(self, client: AsyncIrisClient, prepared: Prepared) -> None:
        """Creates the handle of a pool. `start` does this.

        Args:
            client: the client of the cluster.
            prepared: the job of the workers, and how to reach them.
        """
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._exchange = Exchange(client.connection, prepared.queue, prepared.mail)
        self._crew = Crew(
            client.jobs, prepared.spec, prepared.queue, prepared.spec.replicas, self._break
        )
        self._missing = lru_cache(maxsize=256)(lambda module: is_missing(module, prepared.root))
        self._calls = CallQueue()
        self._has_calls = asyncio.Event()
        self._woken = False
        self._senders: dict[asyncio.Task[None], list[Call]] = {}
        self._keeping: asyncio.Task[None] | None = None
        #: The error that further calls raise; None while the pool accepts calls.
        self._problem: IrisError | None = None

    @classmethod
    async def start(
        cls,
        client: AsyncIrisClient,
        num_workers: int,
        *,
        idle_timeout: timedelta | float | str = 600,
        workspace: Path | str | bool | None = None,
        **options: Unpack[JobOptions],
    ) -> Self:
        """Starts a pool's workers, which are tasks of a job. Calls wait for them.

        Args:
            client: the client of the cluster.
            num_workers: how many calls run at the same time.
            idle_timeout: how long a worker may have no calls before it ends. The pool starts other
                workers for later calls. The workers of a crashed program end in this way, too.
            workspace: as for `AsyncIrisClient.submit`.
            options: as for `AsyncIrisClient.submit`; `resources` are the resources of each worker.

        Raises:
            InvalidValue, InvalidJob: an option is wrong, or `num_workers` is not a valid number.
            NameTaken: a live job has the pool's name.
            IrisError: the store does not accept the pool's files.
            Unreachable: the service does not answer.
        """
        pool = cls(client, await prepare(client, num_workers, idle_timeout, workspace, **options))
        await pool._crew.start()
        pool._set_senders()
        pool._keeping = asyncio.create_task(pool._keep_workers())
        return pool

    @property
    def jobs(self) -> list[str]:
        """The ids of the jobs whose tasks are the workers."""
        return self._crew.jobs

    @overload
    def submit(
        self, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> "asyncio.Future[T]": ...

    @overload
    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> "asyncio.Future[T]": ...

    def submit(
        self, fn: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> "asyncio.Future[Any]":
        """Returns the future of a call, which can be awaited.

        Args:
            fn: the function. It is passed by cloudpickle, as for `AsyncIrisClient.submit`.
            args: its arguments, which type checkers compare with its parameters.
            kwargs: its keyword arguments, which type checkers compare, too.

        Raises:
            InvalidValue: the function or an argument cannot be pickled.
            PoolBroken: the workers' job has ended.
            PoolClosed: the pool was shut down. It is a `RuntimeError`, as for every executor.
        """
        return asyncio.wrap_future(self.call(fn, args, kwargs))

    @overload
    def map(
        self,
        fn: Callable[..., Coroutine[Any, Any, T]],
        *iterables: Iterable[Any],
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> AsyncIterator[T]: ...

    @overload
    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> AsyncIterator[T]: ...

    async def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> AsyncIterator[Any]:
        """Yields the results of the function's calls, in the order of the arguments.

        Args:
            fn: the function, as for `submit`.
            iterables: the arguments, one iterable for each parameter. The shortest iterable ends
                the calls.
            chunksize: how many calls travel together; None for as many as take a fraction of a
                second.
            buffersize: how many calls may be ahead of the next result; None for some hundreds for
                each worker.

        Raises:
            Exception: the error that a call has raised.
            InvalidValue, PoolBroken, PoolClosed: as in `submit`.
        """
        results = self.mapped(fn, iterables, chunksize, buffersize)
        try:
            for future in results:
                yield await asyncio.wrap_future(future)
        finally:
            results.close()

    async def resize(self, num_workers: int) -> None:
        """Changes the number of workers. Workers that run a call finish it first.

        Args:
            num_workers: the new number, 1 or more.

        Raises:
            InvalidValue: the number is not valid.
            PoolClosed: the pool was shut down.
            Unreachable: no control plane answers.
        """
        check_workers(num_workers)
        self._check_open()
        before, self._crew.wanted = self._crew.wanted, num_workers
        self._set_senders()
        if num_workers > before:
            await self._crew.top_up()
        else:
            await self._exchange.retire(max(0, await self._crew.live() - num_workers))

    async def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the pool and its workers. The pool refuses further calls. Waits for the service
        while it does not answer.

        Args:
            wait: whether to wait for the submitted calls first; otherwise they are lost.
            cancel_futures: whether to cancel the calls that have not been sent to a worker.
        """
        if self._problem is None:
            self._problem = PoolClosed(_SHUT_DOWN)
        if cancel_futures or not wait:
            for call in self._calls.clear():
                call.future.cancel()
        self._has_calls.set()
        if wait:
            await asyncio.gather(*self._senders, return_exceptions=True)
        else:
            await self._exchange.drop()
        await self._end("the pool was shut down")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown(wait=error is None)

    # -- for callers in any thread
    # ---------------------------------------------------------------------------------------------

    def call(
        self, function: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any]
    ) -> "Future[Any]":
        """Submits a call from any thread. Programs use `submit`.

        Args:
            function: as for `submit`.
            args: as for `submit`.
            kwargs: as for `submit`.

        Raises:
            InvalidValue, PoolBroken, PoolClosed: as in `submit`.
        """
        module, name = self._module(function), function_name(function)
        packed = pickled(function, function, module)
        return self._add(
            Call(packed, _arguments(packed, (tuple(args), dict(kwargs)), function, module), name)
        )

    def mapped(
        self,
        function: Callable[..., Any],
        iterables: Iterable[Iterable[Any]],
        chunksize: int | None,
        buffersize: int | None,
    ) -> "Mapped":
        """Submits the calls of a `map` from any thread, while their results are taken.

        Args:
            function: as for `map`.
            iterables: as for `map`.
            chunksize: as for `map`.
            buffersize: as for `map`.

        Raises:
            InvalidValue: `chunksize` or `buffersize` is less than 1, or as in `submit`.
            PoolBroken, PoolClosed: as in `submit`.
        """
        for name, value in (("chunksize", chunksize), ("buffersize", buffersize)):
            if value is not None and value < 1:
                raise InvalidValue(
                    name, value, "is not a number of calls", "give 1 or more, or leave it out"
                )
        module, name = self._module(function), function_name(function)
        packed = pickled(function, function, module)

        def submit(args: tuple[Any, ...]) -> tuple[Future[Any], int]:
            arguments = _arguments(packed, (args, {}), function, module)
            return self._add(Call(packed, arguments, name, most=chunksize)), len(arguments)

        ahead = buffersize or max(MOST, chunksize or 0) * self._crew.wanted * BATCHES_PER_WORKER
        return Mapped(submit, zip(*iterables, strict=False), ahead)

    def _module(self, function: Callable[..., Any]) -> ModuleType | None:
        module = module_of(function)
        return module if module is not None and self._missing(module) else None

    def _add(self, call: Call) -> "Future[Any]":
        self._check_open()
        self._calls.add(call)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._wake)
        return call.future

    def _check_open(self) -> None:
        if self._process != os.getpid():
            raise PoolClosed(_FORKED)
        if self._problem is not None:
            raise self._problem

    # -- on the loop
    # ----------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._woken = False
        self._has_calls.set()
        if not self._senders and self._problem is not None:  # it broke meanwhile
            self._fail(self._calls.clear(), self._problem)

    def _set_senders(self) -> None:
        """Starts the missing senders for the workers. Surplus senders end after their batch."""
        for _ in range(self._crew.wanted * BATCHES_PER_WORKER - len(self._senders)):
            self._senders[asyncio.create_task(self._send())] = []

    async def _send(self) -> None:
        """Sends batches until the pool is shut down and has no more calls."""
        me = asyncio.current_task()
        assert me is not None
        try:
            while len(self._senders) <= self._crew.wanted * BATCHES_PER_WORKER:
                if batch := self._calls.take(len(self._senders)):
                    self._senders[me] = batch
                    await self._send_batch(batch)
                    self._senders[me] = []
                    self._has_calls.set()  # it may have put calls back
                elif self._problem is not None and not self._busy:
                    self._has_calls.set()  # for the other senders to end
                    return
                else:
                    self._has_calls.clear()
                    await self._has_calls.wait()
        finally:
            # The sender has a batch here only if its loop ends, because the client was closed.
            self._fail(self._senders.pop(me), self._closed)
            if not self._senders and me.cancelling():
                self._problem = self._closed
                self._fail(self._calls.clear(), self._closed)

    @property
    def _closed(self) -> IrisError:
        """The error for calls that will not end."""
        return self._problem or PoolClosed(_CLIENT_CLOSED)

    async def _send_batch(self, batch: list[Call]) -> None:
        try:
            answered = await self._exchange.run(batch)
        except IrisError as error:
            self._fail(batch, error)
            return
        if answered.calls:
            self._calls.took(batch[0].function, answered.calls, answered.seconds)
        self._calls.put_back(answered.again)

    @property
    def _busy(self) -> bool:
        """Whether a batch has been sent and has no answer yet."""
        return any(self._senders.values())

    async def _keep_workers(self) -> None:
        """Replaces workers that have ended for lack of calls, as soon as there are calls."""
        while True:
            if not self._calls and not self._busy:
                await self._has_calls.wait()
            try:
                await self._crew.top_up()
            except Exception as error:  # otherwise the calls would wait for ever
                self._break(PoolBroken.of(error))
            await asyncio.sleep(COUNT_INTERVAL.total_seconds())

    def _break(self, problem: IrisError) -> None:
        """Fails all calls, and makes the pool refuse further calls."""
        if self._problem is None:
            self._problem = problem
        for sender, batch in list(self._senders.items()):
            self._fail(batch, problem)
            sender.cancel()
        self._fail(self._calls.clear(), problem)
        if self._keeping is not None:
            self._keeping.cancel()

    def _fail(self, calls: Iterable[Call], problem: IrisError) -> None:
        for call in calls:
            if call.start() and not call.future.done():
                call.future.set_exception(problem)

    async def _end(self, reason: str) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
        await self._crew.cancel(reason)
        for sender, batch in list(self._senders.items()):
            self._fail(batch, PoolClosed(_SHUT_DOWN))
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        await self._exchange.clean()


def _arguments(
    packed: bytes, arguments: Any, function: Callable[..., Any], module: ModuleType | None
) -> bytes:
    """Pickles the arguments of a function that is pickled already. Refuses arguments that are too
    large.
    """
    data = pickled(arguments, function, module)
    if (size := len(packed) + len(data)) > frames.LARGEST:
        raise InvalidValue(
            "function",
            function_name(function),
            f"has {format_bytes(size)} of arguments; the limit is {format_bytes(frames.LARGEST)}",
            "pass a path or a URL of large data, and read it inside the function",
        )
    return data


class Mapped(Iterator["Future[Any]"]):
    """The futures of a `map`, in order. `Mapped` submits some calls before the caller takes the
    next future.

    Args:
        submit: submits a call, and returns its future and the size of its arguments.
        ahead: the maximum number of submitted calls whose futures the caller has not taken.
    """

    def __init__(
        self,
        submit: Callable[[tuple[Any, ...]], tuple["Future[Any]", int]],
        arguments: Iterator[tuple[Any, ...]],
        ahead: int,
    ) -> None:
        self._submit = submit
        self._arguments = arguments
        self._ahead = ahead
        self._bytes = 0
        self._futures: deque[tuple[Future[Any], int]] = deque()
        try:
            self._fill()
        except BaseException:  # an iterable of the caller may raise anything
            self.close()
            raise

    def __next__(self) -> "Future[Any]":
        self._fill()
        if not self._futures:
            raise StopIteration
        future, size = self._futures.popleft()
        self._bytes -= size
        return future

    def close(self) -> None:
        """Cancels the calls that were not sent to a worker and whose results were not taken."""
        while self._futures:
            self._futures.popleft()[0].cancel()

    def _fill(self) -> None:
        while len(self._futures) < self._ahead and self._bytes < MAP_BYTES:
            args = next(self._arguments, None)
            if args is None:
                return
            future, size = self._submit(args)
            self._futures.append((future, size))
            self._bytes += size
