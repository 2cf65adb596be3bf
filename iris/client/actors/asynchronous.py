"""Calls the methods of actors, for asynchronous programs."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self

from iris.client.actors.calls import ActorResult, Actors, Choose, first, request, same, value_of
from iris.client.client import AsyncIrisClient
from iris.model.job.endpoints import Endpoint


class AsyncActorClient:
    """Calls the methods of one actor. It is an `ActorClient` whose methods are coroutines.

    async with AsyncActorClient(client, "replay") as replay:
        await replay.add(sample)
    """

    def __init__(
        self,
        client: AsyncIrisClient,
        name: str,
        *,
        job: str | None = None,
        call_timeout: float | None = None,
        find_timeout: float = 60.0,
    ) -> None:
        """Creates a client of this actor. It connects at the first call.

        Args:
            client: a client of the job's cluster, such as `AsyncIrisClient.from_env()`.
            name: the name of the actor.
            job: a job. The actor may be in this job, its topmost parent, or any job below that
                parent. None for this program's job.
            call_timeout: how many seconds a call may take; None for no limit.
            find_timeout: how many seconds a call waits for an actor that answers.

        Raises:
            InvalidValue: at the first call: `job` is None, but the program does not run in a job.
            ActorUnavailable: at a call: no actor answered in time. The call was not sent.
            CallInterrupted: at a call: the actor has gone away. The call may have run or not.
            TimeoutError: at a call: the call takes longer than `call_timeout`. It continues.
            Exception: at a call: the error that the method has raised.
        """
        self._actors = Actors(client, name, job, call_timeout, find_timeout)

    def __getattr__(self, method: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if method.startswith("_"):
            raise AttributeError(method)
        return _caller(self._actors, first, method)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._actors.close()

    def __repr__(self) -> str:
        return f"<AsyncActorClient of {self._actors.name}>"


class AsyncActorPool:
    """Calls the methods of all actors of a name. It is an `ActorPool` whose methods are coroutines;
    `broadcast` returns the results directly.

    workers = AsyncActorPool(client, "worker")
    loss = await workers.call().train(batch)
    results = await workers.broadcast().load(checkpoint)
    """

    def __init__(
        self,
        client: AsyncIrisClient,
        name: str,
        *,
        job: str | None = None,
        call_timeout: float | None = None,
        find_timeout: float = 60.0,
    ) -> None:
        """Creates a client of these actors. It connects at the first call, and notices new actors
        after some seconds.

        Args:
            client: a client of the job's cluster, such as `AsyncIrisClient.from_env()`.
            name: the name of the actors.
            job: a job. The actors may be in this job, its topmost parent, or any job below that
                parent. None for this program's job.
            call_timeout: how many seconds a call may take; None for no limit.
            find_timeout: how many seconds a call waits for an actor that answers.

        Raises:
            InvalidValue: at the first call: `job` is None, but the program does not run in a job.
            ActorUnavailable: at a call: no actor answered in time. The call was not sent.
            CallInterrupted: at a call: the actor has gone away. The call may have run or not.
            TimeoutError: at a call: the call takes longer than `call_timeout`. It continues.
            Exception: at a call: the error that the method has raised.
        """
        self._actors = Actors(client, name, job, call_timeout, find_timeout)

    async def endpoints(self) -> Sequence[Endpoint]:
        """Returns the endpoints of the present actors.

        Raises:
            NotFound: there is no such job.
            Unreachable: no control plane answers.
        """
        return await self._actors.find()

    def call(self) -> "AsyncMethods":
        """Returns an object whose next method call goes to the next actor in turn.

        Raises:
            ActorUnavailable, CallInterrupted, TimeoutError, Exception: the method call fails.
        """
        return AsyncMethods(lambda method: _caller(self._actors, self._actors.any, method))

    def broadcast(self) -> "AsyncMethods":
        """Returns an object whose next method call goes to all actors, with an `ActorResult` from
        each.

        Raises:
            Unreachable: at the method call: no control plane answers, so the actors are unknown. An
                error of an actor is in its `ActorResult`.
        """

        def broadcast(method: str) -> Callable[..., Coroutine[Any, Any, list[ActorResult]]]:
            async def calls(*args: Any, **kwargs: Any) -> list[ActorResult]:
                async def one(endpoint: Endpoint) -> ActorResult:
                    try:
                        value = await _caller(self._actors, same(endpoint), method)(*args, **kwargs)
                    except Exception as error:  # of the actor, which may raise anything
                        return ActorResult(endpoint, success=False, value=error)
                    return ActorResult(endpoint, success=True, value=value)

                return await asyncio.gather(*map(one, await self.endpoints()))

            return calls

        return AsyncMethods(broadcast)

    def close(self) -> None:
        """Closes the connections. The connection of a running call closes at the end of the call.

        A further call raises an `IrisError`.
        """
        self._actors.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class AsyncMethods:
    """Has each method of an actor as an attribute with the method's name. A call returns a
    coroutine.
    """

    def __init__(self, method: Callable[[str], Callable[..., Coroutine[Any, Any, Any]]]) -> None:
        self._method = method

    def __getattr__(self, method: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if method.startswith("_"):
            raise AttributeError(method)
        return self._method(method)


def _caller(actors: Actors, choose: Choose, method: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        answer = await actors.call(choose, method, request(actors.name, method, args, kwargs))
        return value_of(answer, f"{actors.name}.{method}")

    return call
