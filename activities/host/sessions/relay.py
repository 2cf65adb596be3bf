"""Carries TCP connections between two sides that exchange frames. Both sides of `iris port-forward`
use it.

The two directions of a connection end independently, as with TCP. A connection that breaks on one
side is reset on the other side.
"""

import asyncio
import platform
from collections.abc import Awaitable, Callable
from pathlib import Path

from iris.messages.exec import Frame, FrameKind
from iris.messages.port_forward import BLOCK, WINDOW, connection_frame, parse
from iris.model.errors import first_line

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: After this side has passed on this many bytes of a connection, it allows the other side to send
#: as many again.
_CREDIT = WINDOW // 4


def this_machine() -> str:
    """Returns an identifier of this machine's network. It is equal for two processes that share
    their loopback ports.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:  # not Linux
        return platform.node()


class Relay:
    """Forwards the connections of one session of `iris port-forward`.

    Args:
        send: sends a frame, and waits while the other side has too many frames to read.
        say: sends a small frame without waiting.
        broken: called with the reason when the other side breaks a connection and gives a reason.
    """

    def __init__(
        self,
        send: Callable[[Frame], Awaitable[None]],
        say: Callable[[Frame], None],
        broken: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._send = send
        self._say = say
        self._broken = broken
        self._connections: dict[int, _Connection] = {}

    def __len__(self) -> int:
        """Returns the number of open connections."""
        return len(self._connections)

    def add(self, number: int, connect: Callable[[], Awaitable[Streams]]) -> None:
        """Starts to carry a connection.

        Args:
            number: a number that no other connection has had.
            connect: opens this side of the connection, and may raise OSError.
        """
        made = _Connection(number, connect, self._send, self._say)
        self._connections[number] = made
        made.task.add_done_callback(lambda _: self._connections.pop(number, None))

    def take(self, frame: Frame) -> None:
        """Passes a frame of the other side to its connection, unless the connection has ended.

        Raises:
            ValueError: the frame is malformed, or exceeds the credit of the other side.
        """
        number, data = parse(frame)
        if frame.kind is FrameKind.RESET and data:
            self._broken(data.decode(errors="replace"))
        if (connection := self._connections.get(number)) is not None:
            connection.take(frame.kind, data)

    async def close(self) -> None:
        """Breaks all connections."""
        tasks = [connection.task for connection in self._connections.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Connection:
    def __init__(
        self,
        number: int,
        connect: Callable[[], Awaitable[Streams]],
        send: Callable[[Frame], Awaitable[None]],
        say: Callable[[Frame], None],
    ) -> None:
        self._number = number
        self._connect = connect
        self._send = send
        self._say = say
        self._credit = WINDOW
        self._has_credit = asyncio.Event()
        self._has_credit.set()
        #: The received data of a connection; an empty item means that no more data follows.
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting = self._consumed = 0
        self.task = asyncio.create_task(self._run())

    def take(self, kind: FrameKind, data: bytes) -> None:
        match kind:
            case FrameKind.DATA if data:
                self._waiting += len(data)
                if self._waiting > WINDOW:
                    raise ValueError(
                        f"the other side has sent more data on connection {self._number} than its"
                        " credit allows"
                    )
                self._arrived.put_nowait(data)
            case FrameKind.END:
                self._arrived.put_nowait(b"")
            case FrameKind.CONSUMED:
                self._credit += int(data)
                self._has_credit.set()
            case FrameKind.RESET:
                self.task.cancel()

    async def _run(self) -> None:
        try:
            reader, writer = await self._connect()
        except OSError as error:
            self._reset(first_line(error))
            return
        whole = False
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._read(reader))
                both.create_task(self._write(writer))
            whole = True
        except* OSError:  # this side has broken it
            self._reset()
        finally:
            if whole:
                writer.close()
            else:
                writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            await self._has_credit.wait()
            data = await reader.read(min(BLOCK, self._credit))
            await self._send(
                connection_frame(FrameKind.DATA if data else FrameKind.END, self._number, data)
            )
            if not data:
                return
            self._credit -= len(data)
            if self._credit <= 0:
                self._has_credit.clear()

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        while data := await self._arrived.get():
            writer.write(data)
            await writer.drain()
            self._waiting -= len(data)
            self._consumed += len(data)
            if self._consumed >= _CREDIT:
                self._say(
                    connection_frame(FrameKind.CONSUMED, self._number, b"%d" % self._consumed)
                )
                self._consumed = 0
        if writer.can_write_eof():
            writer.write_eof()

    def _reset(self, reason: str = "") -> None:
        self._say(connection_frame(FrameKind.RESET, self._number, reason.encode()))
