"""A link does what its mode says: a fault that does nothing would prove nothing."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.chaos.links import Link, Mode, Network


@pytest.fixture
def link() -> Iterator[Link]:
    """It leads to a service that answers each message with the same message."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_answers, args=(listener,), daemon=True).start()
        network = Network([listener.getsockname()[1]])
        yield network.link()
        network.close()


def _answers(listener: socket.socket) -> None:
    def answers(caller: socket.socket) -> None:
        with caller:
            while message := caller.recv(100):
                heard.append(message)
                caller.sendall(message)

    heard: list[bytes] = []
    while True:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=answers, args=(caller,), daemon=True).start()


def calls(link: Link) -> socket.socket:
    caller = socket.create_connection(("127.0.0.1", link.port))
    caller.settimeout(20)
    caller.sendall(b"one")
    assert caller.recv(100) == b"one"
    return caller


@pytest.mark.parametrize("mode", [Mode.SILENT, Mode.DEAF, Mode.MUTE])
def test_what_does_not_pass_arrives_when_the_link_opens_again(link: Link, mode: Mode) -> None:
    """The connection goes on, as after lost packets."""
    with closing(calls(link)) as caller:
        link.turn(mode)
        caller.settimeout(0.3)
        caller.sendall(b"two")
        with pytest.raises(TimeoutError):
            caller.recv(100)
        caller.settimeout(20)
        link.turn()
        assert caller.recv(100) == b"two"


def test_a_cut_link_ends_connections_and_refuses_new_ones(link: Link) -> None:
    """The process has to connect again."""
    with closing(calls(link)) as caller:
        link.turn(Mode.CUT)
        assert caller.recv(100) == b""
    with socket.create_connection(("127.0.0.1", link.port)) as caller:
        assert caller.recv(100) == b""
    link.turn()
    calls(link).close()


def test_a_slow_link_delays(link: Link) -> None:
    """There and back."""
    with closing(calls(link)) as caller:
        link.turn(delay=0.2)
        began = time.monotonic()
        caller.sendall(b"two")
        assert caller.recv(100) == b"two"
        assert time.monotonic() - began >= 0.4
