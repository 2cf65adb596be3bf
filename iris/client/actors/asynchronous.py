"""Calls the methods of actors, for asynchronous programs."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

from iris.client.actors.calls import ActorResult, Actors, Choose, first, request, same, value_of
from iris.client.client import AsyncIrisClient
from iris.model.endpoints import Endpoint


class AsyncActorClient:
    """As `ActorClient`: each method is a coroutine.

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
        """As `ActorClient`."""
        self._actors = Actors(client, name, job, call_timeout, find_timeout)

    def __getattr__(self, method: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if method.startswith("_"):
            raise AttributeError(method)
        return _caller(self._actors, first, method)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._actors.close()

    def __repr__(self) -> str:
        return f"<AsyncActorClient of {self._actors.name}>"


class AsyncActorPool:
    """As `ActorPool`: each method is a coroutine, and `broadcast` needs no second wait.

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
        """As `ActorClient`."""
        self._actors = Actors(client, name, job, call_timeout, find_timeout)

    async def endpoints(self) -> Sequence[Endpoint]:
        """Returns the endpoints of the actors that there are now."""
        return await self._actors.find()

    def call(self) -> "AsyncMethods":
        """Returns an actor whose next method call is that of the next actor in turn, of those that answer."""
        return AsyncMethods(lambda method: _caller(self._actors, self._actors.any, method))

    def broadcast(self) -> "AsyncMethods":
        """Returns an actor whose next method call is that of all actors, and returns an `ActorResult` of each."""

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
        """As `ActorPool.close`."""
        self._actors.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class AsyncMethods:
    """The methods of an actor, by their names."""

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
