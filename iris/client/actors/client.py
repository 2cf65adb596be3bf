"""Calls the methods of actors: of one, or of all that have a name."""

import io
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle

from iris.client.actors.wire import ActorUnavailable, CallInterrupted, connected, token_of
from iris.client.blocking.client import IrisClient
from iris.client.functions.result import Raised, RemoteTraceback, restore
from iris.model.endpoints import Endpoint
from iris.model.errors import IrisError
from iris.storage.object_store import Store

#: The seconds between two questions for the endpoints of actors that do not answer.
_FIND_EVERY = 0.5
#: How long a pool uses the endpoints that it knows, in seconds.
_KNOWN_FOR = 5.0


#: An actor of an attempt of a task: its job, task, attempt and address.
_Key = tuple[str, int, int, str]


def _key(endpoint: Endpoint) -> _Key:
    return endpoint.job, endpoint.task, endpoint.attempt, endpoint.address


class _Actors:
    """The actors of one name: their endpoints, and connections that no call uses. Any thread may use them."""

    def __init__(self, client: IrisClient, name: str, job: str | None, call_timeout: float | None, find_timeout: float) -> None:
        self._client, self._loop = client.parts
        self.name = name
        self._job = job
        self._call_timeout = call_timeout
        self._find_timeout = find_timeout
        self._lock = threading.Lock()
        self._free: dict[_Key, list[Connection]] = {}
        self._found: tuple[float, Sequence[Endpoint]] = (float("-inf"), ())

    def find(self, known_for: float = 0.0) -> Sequence[Endpoint]:
        """Returns the endpoints, which may be known from some seconds before."""
        at, found = self._found
        if not found or time.monotonic() - at > known_for:
            listed = self._loop.run(self._client.endpoints.list(self.name, self._job))
            found = [each for each in listed if each.name == self.name]
            self._found = (time.monotonic(), found)
            with self._lock:
                there = {_key(each) for each in found}
                gone = [self._free.pop(key) for key in list(self._free) if key not in there]
            for connection in itertools.chain.from_iterable(gone):
                connection.close()
        return found

    def call(self, choose: Callable[[Sequence[Endpoint]], Endpoint], method: str, args: Any, kwargs: Any) -> Any:
        """Calls a method of an actor. Waits for one that answers.

        Raises:
            Exception: what the method raised.
            ActorUnavailable: no actor answered in time.
            CallInterrupted: the actor went away during the call.
            TimeoutError: the call takes longer than the call's timeout; it continues.
        """
        end, problem = time.monotonic() + self._find_timeout, "none is registered"
        request = cloudpickle.dumps((self.name, method, args, kwargs))
        while True:
            if endpoints := self.find(_KNOWN_FOR):
                endpoint = choose(endpoints)
                try:
                    connection = self._connection(endpoint)
                except OSError as error:
                    problem = f"that at {endpoint.address} does not answer: {error}"
                else:
                    return self._exchange(endpoint, connection, request, method)
            if time.monotonic() >= end:
                raise ActorUnavailable(f"no actor {self.name!r} answers: {problem}; `iris endpoints JOB` lists them")
            self._found = (float("-inf"), ())  # a new attempt has another address
            time.sleep(_FIND_EVERY)

    def close(self) -> None:
        """Closes the connections that no call uses."""
        with self._lock:
            free, self._free = self._free, {}
        for connection in itertools.chain.from_iterable(free.values()):
            connection.close()

    def _connection(self, endpoint: Endpoint) -> Connection:
        with self._lock:
            free = self._free.get(_key(endpoint), [])
            while free:
                connection = free.pop()
                if not connection.poll(0):  # the other side sends nothing unasked: it has closed the connection
                    return connection
                connection.close()
        return connected(endpoint.address, self._loop.run(token_of(Store(self._client.record.store), endpoint)))

    def _exchange(self, endpoint: Endpoint, connection: Connection, request: bytes, method: str) -> Any:
        what, answer = f"{self.name}.{method}", None
        try:
            connection.send_bytes(request)
            if connection.poll(self._call_timeout):
                answer = connection.recv_bytes()
        except (OSError, EOFError) as error:
            connection.close()
            raise CallInterrupted(
                f"the actor at {endpoint.address} went away during {what}, which may have run or not: {error}"
            ) from None
        except BaseException:  # such as Ctrl-C: the answer would be that of the next call
            connection.close()
            raise
        if answer is None:
            connection.close()
            raise TimeoutError(f"{what} takes longer than {self._call_timeout:g} s; it continues")
        with self._lock:
            self._free.setdefault(_key(endpoint), []).append(connection)
        value = restore(io.BytesIO(answer), what)
        if not isinstance(value, Raised):
            return value
        raised = value.error if value.error is not None else IrisError(f"{what} raised {value.text}")
        raise raised from RemoteTraceback(value.traceback)


class ActorClient:
    """Calls the methods of the actor of a name: of the first, by job and task, if several have it.

    replay = ActorClient(iris.context().client, "replay")
    replay.add(sample)

    If the actor's task is retried, calls wait for the new attempt, whose actor has a new state.
    """

    def __init__(
        self,
        client: IrisClient,
        name: str,
        *,
        job: str | None = None,
        call_timeout: float | None = None,
        find_timeout: float = 60.0,
    ) -> None:
        """Connects at the first call.

        Args:
            job: a job of the family that has the actor; None: that of this program.
            call_timeout: the most seconds of a call; None: no limit.
            find_timeout: how many seconds a call waits for an actor that answers.
        """
        self._actors = _Actors(client, name, job, call_timeout, find_timeout)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)
        return lambda *args, **kwargs: self._actors.call(lambda found: found[0], method, args, kwargs)

    def __repr__(self) -> str:
        return f"<ActorClient of {self._actors.name}>"


class ActorResult(NamedTuple):
    """What one actor of a broadcast answered."""

    endpoint: Endpoint
    success: bool
    #: The value, or the exception.
    value: Any


class Broadcast:
    """Calls of one method of all actors, which run."""

    def __init__(self, calls: Sequence[tuple[Endpoint, Callable[[], Any]]]) -> None:
        self._threads = ThreadPoolExecutor(max(1, len(calls)), thread_name_prefix="iris-broadcast")
        self._calls = [(endpoint, self._threads.submit(call)) for endpoint, call in calls]
        self._threads.shutdown(wait=False)

    def wait_all(self, timeout: float | None = None) -> list[ActorResult]:
        """Returns the results, in the order of jobs and tasks.

        Args:
            timeout: the seconds after which a call that has no result counts as failed, with a `TimeoutError`.
        """
        end = None if timeout is None else time.monotonic() + timeout
        results = []
        for endpoint, call in self._calls:
            try:
                value = call.result(None if end is None else max(0.0, end - time.monotonic()))
            except Exception as error:  # of the actor, which may raise anything
                results.append(ActorResult(endpoint, success=False, value=error))
            else:
                results.append(ActorResult(endpoint, success=True, value=value))
        return results


class ActorPool:
    """All actors of a name, such as one in each task of a job.

    workers = ActorPool(iris.context().client, "worker")
    loss = workers.call().train(batch)                 # the next one, in turn
    results = workers.broadcast().load(checkpoint).wait_all()
    """

    def __init__(
        self,
        client: IrisClient,
        name: str,
        *,
        job: str | None = None,
        call_timeout: float | None = None,
        find_timeout: float = 60.0,
    ) -> None:
        """As `ActorClient`. New actors are noticed after some seconds."""
        self._actors = _Actors(client, name, job, call_timeout, find_timeout)
        self._turn = itertools.count()

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The endpoints of the actors that there are now."""
        return self._actors.find()

    def call(self) -> "_Methods":
        """Returns an actor whose next method call is that of the next actor in turn, of those that answer."""
        return _Methods(lambda method, args, kwargs: self._actors.call(self._next, method, args, kwargs))

    def broadcast(self) -> "_Methods":
        """Returns an actor whose next method call is that of all actors, as a `Broadcast`."""
        return _Methods(self._broadcast)

    def _next(self, found: Sequence[Endpoint]) -> Endpoint:
        return found[next(self._turn) % len(found)]

    def _broadcast(self, method: str, args: Any, kwargs: Any) -> Broadcast:
        def call_of(endpoint: Endpoint) -> Callable[[], Any]:
            return lambda: self._actors.call(lambda found: _same(endpoint, found), method, args, kwargs)

        return Broadcast([(endpoint, call_of(endpoint)) for endpoint in self._actors.find()])


class _Methods:
    """The methods of an actor, by their names."""

    def __init__(self, call: Callable[[str, Any, Any], Any]) -> None:
        self._call = call

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)
        return lambda *args, **kwargs: self._call(method, args, kwargs)


def _same(endpoint: Endpoint, found: Sequence[Endpoint]) -> Endpoint:
    """Returns the endpoint of the same task, which may be in a later attempt."""
    return next((each for each in found if (each.job, each.task) == (endpoint.job, endpoint.task)), endpoint)
