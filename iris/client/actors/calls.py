"""Calls actors on an event loop: finds the actors of a name, and keeps connections to them."""

import asyncio
import io
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cloudpickle

from iris.client.actors.wire import ActorUnavailable, Calling, CallInterrupted, certificate_of
from iris.client.client import AsyncIrisClient
from iris.client.functions.result import Raised, restore
from iris.model.errors import IrisError, Unreachable
from iris.model.job.endpoints import Endpoint
from iris.storage.object_store import Store

#: The time between two queries for the endpoints of actors that do not answer, in seconds.
_FIND_EVERY = 0.5
#: How long known endpoints are used without another query, in seconds.
_KNOWN_FOR = 5.0
#: How long an unused connection is kept, in seconds.
_KEPT_FOR = 60.0
#: The maximum number of connections that are opened at the same time. A server closes connections
#: if it has too many new ones.
_CONNECTING = 16
#: Identifies an actor in one attempt of a task: job, task, attempt and address.
_Key = tuple[str, int, int, str]
#: Chooses one endpoint of a list that is not empty.
Choose = Callable[[Sequence[Endpoint]], Endpoint]


class _NoConnection(Exception):
    """The actor does not answer. The call was not sent."""


class ActorResult(NamedTuple):
    """The answer of one actor to a broadcast."""

    endpoint: Endpoint
    success: bool
    #: The value that the method returned, or the exception that it raised.
    value: Any


class Actors:
    """Finds and calls the actors of one name. The methods run on the client's event loop; any
    thread may create an instance.

    Args:
        job: a job. The actors may be in this job, its topmost parent, or any job below that
            parent. None for this program's job.
        call_timeout: how many seconds a call may take; None for no limit.
        find_timeout: how many seconds a call waits for an actor that answers.
    """

    def __init__(
        self,
        client: AsyncIrisClient,
        name: str,
        job: str | None,
        call_timeout: float | None,
        find_timeout: float,
    ) -> None:
        self._client = client
        self.name = name
        self._job = job
        self._call_timeout = call_timeout
        self._find_timeout = find_timeout
        #: The unused connections of each actor, with the timers that close them.
        self._free: dict[_Key, list[tuple[Calling, asyncio.TimerHandle]]] = {}
        self._found: tuple[float, Sequence[Endpoint]] = (float("-inf"), ())
        self._turn = itertools.count()
        self._connecting = asyncio.Semaphore(_CONNECTING)
        self._closed = False

    async def find(self, known_for: float = 0.0) -> Sequence[Endpoint]:
        """Returns the endpoints. The answer may be this many seconds old."""
        at, found = self._found
        if not found or time.monotonic() - at > known_for:
            listed = await self._client.endpoints.list(self.name, self._job)
            found = [each for each in listed if each.name == self.name]
            self._found = (time.monotonic(), found)
            there = {_key(each) for each in found}
            for key in [key for key in self._free if key not in there]:
                _close(self._free.pop(key))
        return found

    async def call(self, choose: Choose, method: str, request: bytes) -> bytes:
        """Calls a method of an actor, and returns its pickled answer. Waits for an actor that
        answers.

        Raises:
            ActorUnavailable: no actor answered in time. The call was not sent.
            CallInterrupted: the actor went away during the call.
            TimeoutError: the call takes longer than `call_timeout`; it continues.
        """
        end = time.monotonic() + self._find_timeout
        while True:
            if self._closed:
                raise IrisError(
                    f"this client of the actor {self.name!r} was closed; make another one"
                )
            problem = "none is registered"
            try:
                if endpoints := await self.find(_KNOWN_FOR):
                    endpoint = choose(endpoints)
                    problem = f"that at {endpoint.address} does not answer"
                    connection = await self._connection(endpoint)
                    return await self._ask(endpoint, connection, f"{self.name}.{method}", request)
            except (_NoConnection, Unreachable) as error:
                problem = f"{problem}: {error}"
            if time.monotonic() >= end:
                raise ActorUnavailable(
                    f"no actor {self.name!r} answers: {problem}; `iris endpoints JOB` lists them"
                )
            self._found = (float("-inf"), self._found[1])  # a new attempt has another address
            await asyncio.sleep(_FIND_EVERY)

    def any(self, found: Sequence[Endpoint]) -> Endpoint:
        """Chooses each endpoint in turn."""
        return found[next(self._turn) % len(found)]

    def close(self) -> None:
        """Closes the connections. Refuses further calls. The connection of a running call closes at
        the end of the call.
        """
        self._closed = True
        free, self._free = self._free, {}
        for connections in free.values():
            _close(connections)

    async def _connection(self, endpoint: Endpoint) -> Calling:
        free = self._free.get(_key(endpoint), [])
        while free:
            connection, expiry = free.pop()
            expiry.cancel()
            if connection.is_open:
                return connection
            connection.close()
        pem = await certificate_of(Store(self._client.record.store), endpoint)
        try:
            async with self._connecting:
                return await Calling.connect(endpoint.address, pem)
        except OSError as error:
            raise _NoConnection(str(error) or type(error).__name__) from None

    async def _ask(
        self, endpoint: Endpoint, connection: Calling, what: str, request: bytes
    ) -> bytes:
        answered = False
        try:
            async with asyncio.timeout(self._call_timeout) as limit:
                answer = await connection.ask(request)
            answered = True
        except (OSError, EOFError) as error:
            if limit.expired():
                raise TimeoutError(
                    f"{what} takes longer than {self._call_timeout:g} s; the call continues"
                ) from None
            # The operating system also raises a TimeoutError: the actor's host has vanished.
            problem = (
                f"the actor at {endpoint.address} went away during {what}, which may have run or"
                f" not: {error}"
            )
            raise CallInterrupted(problem) from None
        finally:
            if answered and not self._closed:
                self._keep(_key(endpoint), connection)
            else:  # also after Ctrl-C: the answer would be that of the next call
                connection.close()
        return answer

    def _keep(self, key: _Key, connection: Calling) -> None:
        free = self._free.setdefault(key, [])

        def expire() -> None:
            connection.close()
            free.remove(kept)

        kept = connection, asyncio.get_running_loop().call_later(_KEPT_FOR, expire)
        free.append(kept)


def first(found: Sequence[Endpoint]) -> Endpoint:
    """Chooses the first endpoint, by job and task."""
    return found[0]


def same(endpoint: Endpoint) -> Choose:
    """Chooses the endpoint of the same task, which may be in a later attempt."""
    return lambda found: next(
        (each for each in found if (each.job, each.task) == (endpoint.job, endpoint.task)), endpoint
    )


def request(name: str, method: str, args: Any, kwargs: Any) -> bytes:
    """Pickles a call."""
    packed: bytes = cloudpickle.dumps((name, method, args, kwargs))
    return packed


def value_of(answer: bytes, what: str) -> Any:
    """Returns the value that a method has returned.

    Raises:
        Exception: the error that the method has raised.
    """
    value = restore(io.BytesIO(answer), what)
    if isinstance(value, Raised):
        raise value.exception(what)
    return value


def _key(endpoint: Endpoint) -> _Key:
    return endpoint.job, endpoint.task, endpoint.attempt, endpoint.address


def _close(connections: Sequence[tuple[Calling, asyncio.TimerHandle]]) -> None:
    for connection, expiry in connections:
        expiry.cancel()
        connection.close()
