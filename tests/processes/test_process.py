"""Ports for the servers that Iris starts on this machine."""

import socket

from iris.processes.process import free_ports


def test_ports_of_servers_are_never_those_of_outgoing_connections() -> None:
    """A connection could take such a port before the server listens on it, or while the server
    restarts.
    """
    with socket.socket() as outgoing:
        outgoing.bind(("127.0.0.1", 0))
        lowest = min(outgoing.getsockname()[1], 32_768)
    assert all(1024 < port < lowest for _ in range(50) for port in free_ports())


def test_the_ports_of_before_are_returned_while_they_are_free() -> None:
    """Agents know the server by its address, so a restart keeps it."""
    before = free_ports()
    assert free_ports(before) == before
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", before[1]))
        assert set(free_ports(before)).isdisjoint({before[1]})
    assert len(set(free_ports(before))) == 2
