"""The connections of actors without a cluster: who proves what, and what is noticed of messages
that are changed on their way.
"""

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.client.actors.calls import Actors, first, value_of
from iris.client.actors.server import ActorServer
from iris.client.actors.wire import RUN, BrokenSeal, Calling, CallInterrupted, Served, Session
from iris.model import names
from iris.model.errors import Rejected
from iris.model.job.endpoints import Endpoint
from iris.storage.object_store import Store

TOKEN, ADDRESS, NONCES = b"t" * 32, "127.0.0.1:1", b"n" * 64


def sides(
    token: bytes = TOKEN, address: str = ADDRESS, nonces: bytes = NONCES
) -> tuple[Session, Session]:
    """The caller with the usual secrets, and a server with these."""
    return Session(TOKEN, ADDRESS, NONCES, server=False), Session(
        token, address, nonces, server=True
    )


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=4), st.data())
def test_a_side_reads_only_what_the_other_one_has_sent_and_in_its_order(
    messages: list[bytes], data: st.DataObject
) -> None:
    """Who can change what passes on the network can end a call, and cannot make another one of
    it.
    """
    caller, server = sides()
    sent = [(caller.head(each), each) for each in messages]
    mirrored = [(server.head(each), each) for each in messages]
    read = []
    for number in range(len(messages)):
        head, message = data.draw(st.sampled_from([sent[number], *sent, *mirrored]))
        message = data.draw(st.sampled_from([message, message, message + b"x", message[:-1]]))
        try:
            read.append(server.check(head[8:], message))
        except BrokenSeal:
            break

    assert read == messages[: len(read)]


@pytest.mark.parametrize(
    "other",
    [sides(token=b"x" * 32), sides(address="127.0.0.1:2"), sides(nonces=b"m" * 64)],
    ids=["token", "address", "connection"],
)
def test_a_proof_is_one_of_the_token_the_actor_and_the_connection(
    other: tuple[Session, Session],
) -> None:
    """So it can be neither repeated nor passed on to another actor."""
    caller, server = sides()
    server.check_proof(caller.proof)
    caller.check_proof(server.proof)
    for session, proof in (
        (other[1], other[0].proof),
        (other[0], other[1].proof),
        (caller, caller.proof),
    ):
        with pytest.raises(BrokenSeal):
            session.check_proof(proof)


@contextlib.asynccontextmanager
async def a_server(serve: Callable[[socket.socket, str], None]) -> AsyncIterator[str]:
    """The address of a server of one connection, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"

        def accept() -> None:
            caller, _ = listening.accept()
            with caller, contextlib.suppress(OSError, EOFError):
                serve(caller, address)

        thread = threading.Thread(target=accept)
        thread.start()
        yield address
        await asyncio.to_thread(thread.join)


def echo(caller: socket.socket, address: str) -> None:
    connection = Served(caller, TOKEN, address)
    while True:
        connection.send(connection.receive())


@pytest.mark.parametrize("size", [0, 10, 5_000_000])
async def test_messages_of_any_size_pass_between_an_actor_and_its_caller(size: int) -> None:
    """Several of them, on one connection."""
    async with a_server(echo) as address:
        connection = await Calling.connect(address, TOKEN)
        for message in (b"a" * size, b"b" * size):
            assert await connection.ask(message) == message
        connection.close()


@pytest.mark.parametrize("call_timeout", [None, 1000.0])
async def test_a_call_of_an_actor_whose_host_vanishes_is_interrupted(
    call_timeout: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system reports that with the exception of a call that takes too long. The user must not
    believe that it continues.
    """

    async def vanishes(*_: object) -> bytes:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    monkeypatch.setattr(Calling, "ask", vanishes)
    uid = "ada-train-0123456789ab"
    store = Store(tmp_path.as_uri())
    await store.put_new(names.actor_token(uid), TOKEN)
    async with a_server(echo) as address:
        found = Endpoint(
            name="replay", address=address, metadata={RUN: uid}, job="ada/train", task=0, attempt=1
        )

        async def listed(*_: object) -> list[Endpoint]:
            return [found]

        client: Any = SimpleNamespace(
            endpoints=SimpleNamespace(list=listed), record=SimpleNamespace(store=tmp_path.as_uri())
        )
        with pytest.raises(
            CallInterrupted,
            match=r"went away during replay\.add, which may have run or not: .*timed out",
        ):
            await Actors(client, "replay", None, call_timeout, 1.0).call(first, "add", b"")


async def test_what_does_not_know_the_token_gets_no_request() -> None:
    """Another program may listen at the address of an actor that has ended."""

    def stranger(caller: socket.socket, address: str) -> None:
        caller.sendall(b"SSH-2.0-" + bytes(100))
        caller.recv(1000)

    async with a_server(stranger) as address:
        with pytest.raises(Rejected, match="does not know the token of the job's actors"):
            await Calling.connect(address, TOKEN)
    async with a_server(lambda caller, address: caller.close()) as address:
        with pytest.raises(OSError, match=r"closed|reset"):
            await Calling.connect(address, TOKEN)
    async with a_server(echo) as address:
        with pytest.raises(OSError, match=r"closed|reset"):
            await Calling.connect(address, b"x" * 32)


class Counter:
    """Counts its calls, the first of which takes until `go` is set."""

    def __init__(self) -> None:
        self.calls, self.go, self.inside = 0, threading.Event(), threading.Event()

    def add(self) -> int:
        self.calls += 1
        self.inside.set()
        self.go.wait()
        return self.calls


async def test_a_server_that_was_stopped_begins_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even on a connection that a caller keeps: the actor's state may be saved by then. A call
    that runs is answered.
    """
    loop, addresses = asyncio.get_running_loop(), []
    task = SimpleNamespace(
        address="127.0.0.1",
        client=SimpleNamespace(
            parts=(
                SimpleNamespace(record=SimpleNamespace(store=tmp_path.as_uri())),
                SimpleNamespace(
                    run=lambda work: asyncio.run_coroutine_threadsafe(work, loop).result()
                ),
            )
        ),
        register_endpoint=lambda name, address, metadata: addresses.append(address),
        withdraw_endpoint=lambda name: None,
    )
    monkeypatch.setattr("iris.client.actors.server.context", lambda: task)
    monkeypatch.setenv(names.ENV_JOB_UID, "ada-train-0123456789ab")
    counter, request = Counter(), cloudpickle.dumps(("counter", "add", (), {}))
    server = ActorServer()
    server.register("counter", counter)
    await asyncio.to_thread(server.serve_background)
    token = await Store(tmp_path.as_uri()).get(names.actor_token("ada-train-0123456789ab"))
    idle, busy = [await Calling.connect(addresses[0], token or b"") for _ in range(2)]
    counter.go.set()
    assert value_of(await idle.ask(request), "counter.add") == 1
    counter.go.clear()
    counter.inside.clear()
    running = asyncio.create_task(busy.ask(request))
    await asyncio.to_thread(counter.inside.wait)
    await asyncio.to_thread(server.stop)
    counter.go.set()

    assert value_of(await running, "counter.add") == 2
    for connection in (idle, busy):
        with pytest.raises((OSError, EOFError)):
            await connection.ask(request)
        connection.close()
    assert counter.calls == 2
