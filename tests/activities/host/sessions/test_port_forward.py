"""Connections to ports beside a task: through the store, several at once, and nothing is left of
them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Self

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from iris.activities.host.runtimes.base import Launch
from iris.activities.host.sessions.port_forward import PortForwards
from iris.activities.host.sessions.relay import Relay, Streams
from iris.activities.host.sessions.sessions import SILENCE
from iris.activities.host.sessions.store_stream import StoreStream
from iris.messages.exec import Frame, FrameKind, chunks_prefix
from iris.messages.port_forward import MAX_CONNECTIONS, ForwardEnd, ForwardRequest, connection_frame
from iris.model import names, store_paths
from iris.storage.object_store import Store
from tests.activities.host.sessions.test_exec import JOB, KEY, PATIENCE, Beside, Here, becomes

#: The folder of the session in the store.
FOLDER = store_paths.exec_files(JOB, "s1")
LARGE = bytes(range(256)) * 16_384  # 4 MiB: several windows
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Client:
    """A client's side, with connections whose own ends are in this process."""

    def __init__(
        self, store: Store, here: Here, port: int | str, silence: timedelta = SILENCE
    ) -> None:
        self.request = ForwardRequest(session="s1", job=JOB, index=0, ports=(str(port),))
        self.port = port
        self.reasons: list[str] = []
        self.stream = StoreStream(store, self.request.folder, writes="in")
        self.relay = Relay(self.stream.send_in_turn, self.stream.send, self.reasons.append)
        forwards = PortForwards(store, here, silence)
        self.environment = ActivityEnvironment()
        self.end = asyncio.create_task(self.environment.run(forwards.forward_ports, self.request))
        self.tasks = [asyncio.create_task(self.stream.write()), asyncio.create_task(self._hear())]

    async def _hear(self) -> None:
        while (frames := await self.stream.receive()) is not None:
            for frame in frames:
                if frame.kind is not FrameKind.READY:
                    self.relay.take(frame)
            self.stream.acknowledge(self.stream.received)

    async def connect(self, number: int) -> Streams:
        """Returns the user's end of a new connection."""
        accepted: asyncio.Queue[Streams] = asyncio.Queue()
        server = await asyncio.start_server(
            lambda *streams: accepted.put_nowait(streams), "127.0.0.1", 0
        )
        async with server:
            user = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
            await self.stream.send_in_turn(
                connection_frame(FrameKind.CONNECT, number, str(self.port).encode())
            )
            self.relay.add(number, accepted.get)
        return user

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.relay.close()
        for each in (self.end, *self.tasks):
            each.cancel()
        await asyncio.gather(self.end, *self.tasks, return_exceptions=True)


@asynccontextmanager
async def a_client(
    store: Store, here: Here, serve: Serve, silence: timedelta = SILENCE
) -> AsyncIterator[Client]:
    """A client that forwards the port of a server in the job."""
    async with (
        asyncio.timeout(PATIENCE),
        await asyncio.start_server(serve, "127.0.0.1", 0) as server,
        Client(store, here, server.sockets[0].getsockname()[1], silence) as client,
    ):
        yield client


async def chunks(store: Store) -> list[str]:
    return [
        path for side in ("in", "out") for path in await store.objects(chunks_prefix(FOLDER, side))
    ]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"file://{tmp_path / 'store'}", create=True)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(Beside(KEY, 1, tmp_path, Launch(env={names.env_port("http"): "31000"}), None))


async def echo_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers only after the client has half-closed its connection."""
    writer.write(await reader.read())
    writer.close()


async def test_connections_are_carried_whole_beside_one_that_is_not_read(
    store: Store, here: Here
) -> None:
    """A half-closed connection still brings the answer; a paused download delays no other one;
    consumed chunks are deleted.
    """
    async with a_client(store, here, echo_at_the_end) as client:
        paused, unread = await client.connect(0)
        unread.write(LARGE)
        unread.write_eof()

        async def echoed(number: int) -> bytes:
            reader, writer = await client.connect(number)
            writer.write(LARGE)
            writer.write_eof()
            try:
                return await reader.read()
            finally:
                writer.close()

        assert await asyncio.gather(echoed(1), echoed(2)) == [LARGE, LARGE]
        assert await paused.read() == LARGE
        client.stream.send(Frame(FrameKind.HANG_UP))
        assert await client.end == ForwardEnd(
            reason="the client disconnected", chunks=client.end.result().chunks
        )
        assert len(await store.objects(chunks_prefix(FOLDER, "in"))) < client.stream.sent


async def test_a_port_without_a_program_closes_the_connection_and_the_end_of_the_attempt_all(
    store: Store, here: Here
) -> None:
    """Both with a reason for the user."""
    async with asyncio.timeout(PATIENCE):
        async with await asyncio.start_server(echo_at_the_end, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
        async with Client(store, here, port) as client:
            reader, writer = await client.connect(0)
            assert await reader.read() == b""
            writer.close()
            assert client.reasons == [f"no program listens on port {port}"]
            here.attempt = None
            assert (await client.end).reason == "the task's attempt has ended"


async def test_a_client_that_was_killed_leaves_neither_connections_nor_objects(
    store: Store, here: Here
) -> None:
    """It cannot hang up, so the host ends what it no longer hears from."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    async with a_client(store, here, serve, silence=timedelta(seconds=1)) as client:
        _, writer = await client.connect(0)
        assert (await client.end).reason == "the client sent nothing for too long"
        await ended.wait()
        assert not await chunks(store)
        writer.close()


async def test_a_client_that_does_not_wait_for_the_end_leaves_no_objects(
    store: Store, here: Here
) -> None:
    """It cancels the activity when a busy host takes too long to end the session."""
    async with a_client(store, here, echo_at_the_end) as client:
        _, writer = await client.connect(0)
        await becomes(lambda: client.stream.received > 0)
        client.environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await client.end
        assert not await chunks(store)
        writer.close()


async def test_a_client_cannot_open_more_connections_than_the_host_holds_buffers_for(
    store: Store, here: Here
) -> None:
    """Each may need the memory of its windows; those beyond the limit are refused with the
    reason.
    """
    async with a_client(store, here, echo_at_the_end) as client:
        users = [await client.connect(number) for number in range(MAX_CONNECTIONS + 1)]
        reader, writer = users[-1]
        assert await reader.read() == b""
        assert client.reasons == [
            f"{MAX_CONNECTIONS} connections are open, which is the most that one port forward"
            " carries at a time"
        ]
        for _, other in [*users[:-1], (reader, writer)]:
            other.close()


async def test_a_port_that_the_job_has_not_is_refused(store: Store, here: Here) -> None:
    """With its name, and what to do."""
    async with Client(store, here, "https") as client:
        with pytest.raises(ApplicationError, match="no port named 'https'; name it by its number"):
            await client.end
