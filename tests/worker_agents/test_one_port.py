"""The one port that a control plane's machine publishes: what goes through it arrives, and nothing
else is open.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from iris.model.errors import IrisError
from iris.processes.process import free_ports
from iris.worker_agents.local.one_port import _Caller, publishing

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A published port that leads to a service which sends everything back."""
    published, inner = free_ports()
    server = await asyncio.start_server(echo, "127.0.0.1", inner)
    async with publishing(published, ("127.0.0.1", inner)):
        yield published
    server.close()


async def test_large_messages_arrive_whole_in_both_directions(port: int) -> None:
    """Neither end may lose data when the other one is slower."""
    sent = os.urandom(8 << 20)

    async def exchange() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        received = await reader.readexactly(len(sent))
        writer.close()
        return received

    async with asyncio.timeout(60):
        assert await asyncio.gather(*(exchange() for _ in range(4))) == [sent] * 4


async def test_a_connection_ends_when_the_service_ends_it() -> None:
    """A client that waits must notice at once that the server was restarted."""
    published, inner = free_ports()

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", inner)
    async with publishing(published, ("127.0.0.1", inner)), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", published)
        assert await reader.read() == b""
        writer.close()
    server.close()


async def test_without_the_service_connections_end_at_once() -> None:
    """Clients try again, and would otherwise wait for their time limit."""
    published, inner = free_ports()
    async with publishing(published, ("127.0.0.1", inner)), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", published)
        assert await reader.read() == b""
        writer.close()


async def test_a_port_in_use_is_an_error_for_users(port: int) -> None:
    """It stands on the console of the machine."""
    with pytest.raises(
        IrisError, match=f"the Temporal service cannot be published at port {port}: "
    ):
        async with publishing(port, ("127.0.0.1", 1)):
            pass


def test_bytes_that_arrive_before_the_service_is_connected_are_kept() -> None:
    """A transport of Python 3.11.2 reads once although it was paused when the connection was
    made.
    """
    sent: list[bytes] = []

    class Transport(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            sent.append(bytes(data))

        def pause_reading(self) -> None:
            sent.append(b"paused")

    caller = _Caller("127.0.0.1", 1)
    caller.transport = Transport()
    caller.data_received(b"early")

    assert (sent, caller.early) == ([b"paused"], b"early")


async def test_a_service_that_speaks_first_is_heard() -> None:
    """A gRPC server sends its settings at once, and a client that does not get them gives the
    connection up.
    """
    published, inner = free_ports()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.read()
        writer.close()

    async def hear() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", published)
        writer.write(b"hello to you")
        heard = await reader.readexactly(5)
        writer.close()
        return heard

    server = await asyncio.start_server(greet, "127.0.0.1", inner)
    async with publishing(published, ("127.0.0.1", inner)), asyncio.timeout(60):
        assert await asyncio.gather(*(hear() for _ in range(100))) == [b"hello"] * 100
    server.close()


def test_the_limit_of_files_is_raised_before_the_port_is_published() -> None:
    """A fleet has thousands of connections, each has two files here, and shells allow 1,024."""
    script = """
import asyncio, resource
from iris.processes.process import free_ports
from iris.worker_agents.local.one_port import publishing

async def main():
    port, inner = free_ports()
    async with publishing(port, ("127.0.0.1", inner)):
        print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
asyncio.run(main())
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == "4096\n"
