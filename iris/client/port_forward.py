"""Forwards ports of this machine to ports of a running task's host, through the object store."""

import asyncio
import itertools
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from iris.activities.host.relay import Relay, Streams, this_machine
from iris.client.exec import ExecClient, Session, TaskLocation
from iris.messages.exec import FrameKind
from iris.messages.port_forward import ForwardEnd, ForwardReady, ForwardRequest, connection_frame
from iris.model.errors import InvalidValue, Rejected, Unreachable, first_line

#: Forwarded ports are for this machine only.
ADDRESS = "127.0.0.1"


class PortForward:
    """A session that forwards ports.

    Args:
        broken: called with the reason when a connection could not be made on the host.
    """

    def __init__(self, session: Session[ForwardEnd], where: TaskLocation, broken: Callable[[str], None]) -> None:
        self._session = session
        self._where = where
        self._relay = Relay(session.send, session.say, broken)
        self._numbers = itertools.count()
        self._servers: list[asyncio.Server] = []
        self._ready: asyncio.Future[ForwardReady] = asyncio.get_running_loop().create_future()
        self._carrying = asyncio.create_task(self._carry())

    async def ready(self) -> ForwardReady:
        """Waits until the host accepts connections.

        Raises:
            Rejected: the task no longer ran there, or has no such port.
            Unreachable: the host or the store does not answer.
        """
        ways: list[asyncio.Future[Any]] = [self._ready, self._carrying]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            raise Rejected(f"{self._where} cannot be reached: {await self.end()}")
        return self._ready.result()

    async def listen(self, local: int | None, port: int) -> int:
        """Accepts connections on a port of this machine, and returns its number.

        Args:
            local: its number; 0: any free port; None: that of the task's port if it is free here, else any free port.
            port: the number of the task's port.

        Raises:
            InvalidValue: the port is in use, or is the task's own.
        """
        own = (await self.ready()).machine == this_machine()  # the task may yet want to listen on its port
        if own and local == port:
            raise InvalidValue("port", f"{local}:{port}", "is the task's own: it runs on this machine", f"write 0:{port}")
        try:
            return await self._accept(0 if own and local is None else port if local is None else local, port)
        except OSError as error:
            if local is None:
                return await self._accept(0, port)
            why = os.strerror(error.errno) if error.errno else first_line(error)
            remedy = f"choose another one, or write 0:{port} for any free one"
            raise InvalidValue("port", str(local), f"cannot be opened on this machine: {why}", remedy) from None

    async def end(self) -> str:
        """Waits for the end of the session, and returns its reason.

        Raises:
            Rejected: the task no longer ran there.
            Unreachable: the host or the store does not answer, or no longer does.
        """
        await asyncio.shield(self._carrying)
        return (await self._session.end()).reason

    async def close(self) -> None:
        """Closes the ports and all connections."""
        for server in self._servers:
            server.close()
        await self._relay.close()
        self._carrying.cancel()
        await asyncio.gather(self._carrying, return_exceptions=True)

    async def _accept(self, local: int, port: int) -> int:
        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async def connected() -> Streams:
                return reader, writer

            number = next(self._numbers)
            await self._session.send(connection_frame(FrameKind.CONNECT, number, b"%d" % port))
            self._relay.add(number, connected)

        server = await asyncio.start_server(take, ADDRESS, local, family=socket.AF_INET)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _carry(self) -> None:
        async for frame in self._session.output():
            try:
                if frame.kind is FrameKind.READY:
                    self._ready.set_result(ForwardReady.model_validate_json(frame.data))
                else:
                    self._relay.take(frame)
            except ValueError as error:
                raise Unreachable(f"what host {self._where.host} sent could not be read: {first_line(error)}") from None


@asynccontextmanager
async def forward_ports(
    client: ExecClient, where: TaskLocation, request: ForwardRequest, broken: Callable[[str], None]
) -> AsyncIterator[PortForward]:
    """Starts to forward the ports of a task, and ends it when the block is left.

    Raises:
        Rejected: the task no longer runs on that host.
        Unreachable: the host does not answer.
    """
    async with client.forward(where, request) as session:
        forward = PortForward(session, where, broken)
        try:
            yield forward
        finally:
            await forward.close()
