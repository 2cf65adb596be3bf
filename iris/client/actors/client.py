"""Calls the methods of actors, for programs that are not asynchronous."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Self

from iris.client.actors.calls import ActorResult, Actors, Choose, first, request, same, value_of
from iris.client.blocking.client import IrisClient
from iris.model.job.endpoints import Endpoint


class _Calls:
    """Calls the actors of one name on the client's event loop, and blocks until they answer."""

    def __init__(
        self,
        client: IrisClient,
        name: str,
        job: str | None,
        call_timeout: float | None,
        find_timeout: float,
    ) -> None:
        asynchronous, self.loop = client.parts
        self.actors = Actors(asynchronous, name, job, call_timeout, find_timeout)

    def call(self, choose: Choose, method: str, args: Any, kwargs: Any) -> Any:
        packed = request(self.actors.name, method, args, kwargs)
        return value_of(
            self.loop.run(self.actors.call(choose, method, packed)), f"{self.actors.name}.{method}"
        )

    def close(self) -> None:
        async def close() -> None:
            self.actors.close()

        if not self.loop.is_closed:  # else its connections are closed
            self.loop.run(close())


class ActorClient:
    """Calls the methods of one actor. If several actors have the name, it calls the first one, by
    job and then by task.

    with ActorClient(iris.context().client, "replay") as replay:
        replay.add(sample)

    If the actor's task is retried, calls wait for the new attempt. The new attempt's actor begins
    with a new state. The end of the `with` block closes the connections. Without such a block, a
    connection closes a minute after its last call.
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
        """Creates a client of this actor. It connects at the first call.

        Args:
            client: a client of the job's cluster, such as `iris.context().client`.
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
        self._calls = _Calls(client, name, job, call_timeout, find_timeout)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)
        return lambda *args, **kwargs: self._calls.call(first, method, args, kwargs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.close()

    def __repr__(self) -> str:
        return f"<ActorClient of {self._calls.actors.name}>"


class Broadcast:
    """The running calls of a broadcast: one call of the same method for each actor of a name."""

    def __init__(self, what: str, calls: Sequence[tuple[Endpoint, "Future[bytes]"]]) -> None:
        self._what = what
        self._calls = calls

    def wait_all(self, timeout: float | None = None) -> list[ActorResult]:
        """Returns the results, in the order of jobs and tasks.

        Args:
            timeout: how many seconds all calls may take; None for no limit. A call without a result
                counts as failed, with a `TimeoutError`.
        """
        end = None if timeout is None else time.monotonic() + timeout
        results = []
        for endpoint, call in self._calls:
            try:
                value = value_of(
                    call.result(None if end is None else max(0.0, end - time.monotonic())),
                    self._what,
                )
            except Exception as error:  # of the actor, which may raise anything
                results.append(ActorResult(endpoint, success=False, value=error))
            else:
                results.append(ActorResult(endpoint, success=True, value=value))
        return results


class ActorPool:
    """Calls the methods of all actors of a name, such as one actor in each task of a job.

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
        """Creates a client of these actors. It connects at the first call, and notices new actors
        after some seconds.

        Args:
            client: a client of the job's cluster, such as `iris.context().client`.
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
        self._calls = _Calls(client, name, job, call_timeout, find_timeout)

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The endpoints of the present actors."""
        return self._calls.loop.run(self._calls.actors.find())

    def call(self) -> "Methods":
        """Returns an object whose next method call goes to the next actor in turn.

        Raises:
            ActorUnavailable, CallInterrupted, TimeoutError, Exception: the method call fails.
        """
        return Methods(
            lambda method, args, kwargs: self._calls.call(
                self._calls.actors.any, method, args, kwargs
            )
        )

    def broadcast(self) -> "Methods":
        """Returns an object whose next method call goes to all actors, as a `Broadcast`.

        Raises:
            Unreachable: at the method call: no control plane answers, so the actors are unknown. An
                error of an actor is in its `ActorResult`.
        """
        return Methods(self._broadcast)

    def close(self) -> None:
        """Closes the connections. The connection of a running call closes at the end of the call.

        A further call raises an `IrisError`.
        """
        self._calls.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _broadcast(self, method: str, args: Any, kwargs: Any) -> Broadcast:
        actors, loop = self._calls.actors, self._calls.loop
        packed = request(actors.name, method, args, kwargs)
        calls = [
            (each, loop.start(actors.call(same(each), method, packed))) for each in self.endpoints
        ]
        return Broadcast(f"{actors.name}.{method}", calls)


class Methods:
    """Has each method of an actor as an attribute with the method's name."""

    def __init__(self, call: Callable[[str, Any, Any], Any]) -> None:
        self._call = call

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)
        return lambda *args, **kwargs: self._call(method, args, kwargs)
