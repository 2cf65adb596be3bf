"""A program lets callers of an actor connect to itself, and passes what they send on to the actor."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from iris.client.actors.server import new_certificate
from iris.client.actors.wire import Calling, Served, server_context
from iris.model.errors import IrisError

CERTIFICATE = new_certificate()


class Actor:
    """Accepts one caller."""

    def __init__(self, stack: ExitStack) -> None:
        self.callers = 0
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()
        stack.callback(self._thread.join)

    def _accept(self) -> None:
        caller = Served(self._listening.accept()[0], server_context(CERTIFICATE, self.address))
        with closing(caller), suppress(OSError, EOFError):
            caller.handshake()
            self.callers += 1

    def done(self) -> int:
        self._thread.join()
        return self.callers


def relay(stack: ExitStack, target: str) -> str:
    """Passes all bytes between its first caller and the target on; its address."""
    listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

    def copy(source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(4096):
                to.sendall(data)
        with suppress(OSError):
            to.shutdown(socket.SHUT_WR)

    def serve() -> None:
        host, _, port = target.rpartition(":")
        with listening.accept()[0] as caller, socket.create_connection((host, int(port))) as actor:
            back = threading.Thread(target=copy, args=(actor, caller))
            back.start()
            copy(caller, actor)
            back.join()

    thread = threading.Thread(target=serve)
    thread.start()
    stack.callback(thread.join)
    return f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


async def test_a_caller_of_one_address_is_refused_at_another(stack: ExitStack) -> None:
    """An actor unpickles what a caller sends that has proved that it has the key."""
    actor = Actor(stack)
    between = relay(stack, actor.address)
    with pytest.raises((IrisError, OSError)):
        (await Calling.connect(between, CERTIFICATE)).close()

    assert actor.done() == 0


async def test_a_caller_that_connects_to_the_actor_itself_is_accepted(stack: ExitStack) -> None:
    """The same test without the one between."""
    actor = Actor(stack)
    (await Calling.connect(actor.address, CERTIFICATE)).close()

    assert actor.done() == 1
