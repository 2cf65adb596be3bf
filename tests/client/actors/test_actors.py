"""The connections of actors without a cluster: who proves what, and what is noticed of messages
that are changed on their way.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
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
from iris.client.actors.server import ActorServer, new_certificate
from iris.client.actors.wire import (
    RUN,
    Calling,
    CallInterrupted,
    Served,
    caller_context,
    server_context,
    stored_certificate,
)
from iris.model import names, store_paths
from iris.model.errors import Rejected
from iris.model.job.endpoints import Endpoint
from iris.storage.object_store import Store

CERTIFICATE, ADDRESS = new_certificate(), "127.0.0.1:1"
NO_CERTIFICATE = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
NO_CERTIFICATE.check_hostname, NO_CERTIFICATE.verify_mode = False, ssl.CERT_NONE
EARLIER_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
EARLIER_TLS.maximum_version = ssl.TLSVersion.TLSv1_2
EARLIER_TLS.check_hostname, EARLIER_TLS.verify_mode = False, ssl.CERT_NONE


class Side:
    """One side of a connection, without a network."""

    def __init__(self, context: ssl.SSLContext, called: str | None, *, server: bool) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server, server_hostname=called
        )

    def shake_hands(self, received: bytes) -> bytes:
        """Returns what this side sends next in the handshake."""
        self._incoming.write(received)
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()

    def records_of(self, message: bytes) -> bytes:
        """Returns what passes on the network for a message."""
        self._tls.write(message)
        return self._outgoing.read()

    def read(self, records: bytes) -> bytes:
        self._incoming.write(records)
        return self._tls.read(1000)


def sides(
    context: ssl.SSLContext | None = None, called: str = ADDRESS, actor: bytes = CERTIFICATE
) -> tuple[Side, Side, list[bytes]]:
    """A caller and an actor after their handshake, and what the caller has sent in it."""
    caller = Side(context or caller_context(CERTIFICATE), called, server=False)
    server = Side(server_context(actor, ADDRESS), None, server=True)
    sent = [caller.shake_hands(b"")]
    sent.append(caller.shake_hands(server.shake_hands(sent[0])))
    assert server.shake_hands(sent[1]) == b""
    return caller, server, sent


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=4), st.data())
def test_a_side_reads_only_what_the_other_one_has_sent_and_in_its_order(
    messages: list[bytes], data: st.DataObject
) -> None:
    """Who can change what passes on the network can end a call, and cannot make another one of
    it.
    """
    caller, server, _ = sides()
    sent = [caller.records_of(each) for each in messages]
    mirrored = [server.records_of(each) for each in messages]
    read = []
    for number in range(len(messages)):
        records = data.draw(st.sampled_from([sent[number], *sent, *mirrored]))
        changed = bytes([*records[:-1], records[-1] ^ 1])
        records = data.draw(st.sampled_from([records, records, changed, records[:-1]]))
        try:
            read.append(server.read(records))
        except ssl.SSLError:
            break

    assert read == messages[: len(read)]


def test_what_passes_on_the_network_cannot_be_read() -> None:
    """Neither the requests nor the answers."""
    caller, server, _ = sides()

    assert b"of the user" not in caller.records_of(b"of the user") + server.records_of(
        b"of the user"
    )


@pytest.mark.parametrize(
    ("caller", "reason"),
    [
        ({"context": caller_context(new_certificate())}, "CERTIFICATE_VERIFY_FAILED"),
        ({"actor": new_certificate()}, "CERTIFICATE_VERIFY_FAILED"),
        ({"context": NO_CERTIFICATE}, "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        ({"context": EARLIER_TLS}, "UNSUPPORTED_PROTOCOL"),
        ({"called": "127.0.0.1:2"}, "CALLBACK_FAILED"),
        ({"called": None}, "CALLBACK_FAILED"),
    ],
    ids=["other caller", "other actor", "no certificate", "earlier TLS", "address", "no address"],
)
def test_a_connection_needs_the_certificate_on_both_sides_and_the_address_of_the_actor(
    caller: dict[str, Any], reason: str
) -> None:
    """A caller that was led to another actor of its job is refused, too."""
    sides()
    with pytest.raises(ssl.SSLError) as refused:
        sides(**caller)

    assert refused.value.reason == reason


def test_a_recorded_connection_cannot_be_repeated() -> None:
    """The certificate and its proof pass on the network, but the proof is for one connection."""
    caller, _, handshake = sides()
    request = caller.records_of(b"request")
    server = Side(server_context(CERTIFICATE, ADDRESS), None, server=True)
    server.shake_hands(handshake[0])
    with pytest.raises(ssl.SSLError):
        server.shake_hands(handshake[1] + request)


@contextlib.asynccontextmanager
async def a_server(serve: Callable[[socket.socket, str], None]) -> AsyncIterator[str]:
    """The address of a server of one connection, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"

        def accept() -> None:
            with contextlib.suppress(OSError, EOFError):
                caller, _ = listening.accept()
                with caller:
                    serve(caller, address)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield address
        finally:
            with contextlib.suppress(OSError):  # the test may have failed before it connected
                listening.shutdown(socket.SHUT_RDWR)
            await asyncio.to_thread(thread.join)


def echo(caller: socket.socket, address: str) -> None:
    connection = Served(caller, server_context(CERTIFICATE, address))
    with contextlib.closing(connection):
        connection.handshake()
        while True:
            connection.send(connection.receive())


@pytest.mark.parametrize("size", [0, 10, 5_000_000])
async def test_messages_of_any_size_pass_between_an_actor_and_its_caller(size: int) -> None:
    """Several of them, on one connection."""
    async with a_server(echo) as address:
        connection = await Calling.connect(address, CERTIFICATE)
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
    uid = "ada-train-01234567-89ab"
    store = Store(tmp_path.as_uri())
    await store.put_new(store_paths.actor_certificate(uid), CERTIFICATE)
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


async def test_what_does_not_have_the_key_gets_no_request() -> None:
    """Another program may listen at the address of an actor that has ended."""

    def stranger(caller: socket.socket, address: str) -> None:
        caller.sendall(b"SSH-2.0-" + bytes(100))
        caller.recv(1000)

    def closes_before_it_accepts(caller: socket.socket, address: str) -> None:
        server_context(CERTIFICATE, address).wrap_socket(caller, server_side=True).close()

    async with a_server(stranger) as address:
        with pytest.raises(Rejected, match="does not have the key of the job's actors"):
            await Calling.connect(address, CERTIFICATE)
    async with a_server(lambda caller, address: caller.close()) as address:
        with pytest.raises(OSError, match=r"closed|reset"):
            await Calling.connect(address, CERTIFICATE)
    async with a_server(closes_before_it_accepts) as address:
        with pytest.raises(OSError, match="closed the connection"):
            await Calling.connect(address, CERTIFICATE)
    async with a_server(echo) as address:
        with pytest.raises(OSError, match="does not have the key of the job's actors"):
            await Calling.connect(address, new_certificate())


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
    monkeypatch.setenv(names.ENV_JOB_UID, "ada-train-01234567-89ab")
    counter, request = Counter(), cloudpickle.dumps(("counter", "add", (), {}))
    server = ActorServer()
    server.register("counter", counter)
    await asyncio.to_thread(server.serve_background)
    certificate = await stored_certificate(Store(tmp_path.as_uri()), "ada-train-01234567-89ab")
    idle, busy = [await Calling.connect(addresses[0], certificate) for _ in range(2)]
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
