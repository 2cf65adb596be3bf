"""Forwards ports of this machine to ports of a running task's host, through the object store."""

import asyncio
import itertools
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from iris.activities.host.sessions.relay import Relay, Streams, this_machine
from iris.client.jobs.exec.session import ExecClient, Session, TaskLocation, new_session
from iris.messages.exec import FrameKind
from iris.messages.port_forward import ForwardEnd, ForwardReady, ForwardRequest, connection_frame
from iris.model.errors import InvalidValue, Rejected, Unreachable, first_line

#: The address of this machine that accepts the forwarded connections. Other machines cannot reach
#: it.
ADDRESS = "127.0.0.1"
MAX_PORT = 65_535
_LOG = logging.getLogger(__name__)


class ForwardedPort(NamedTuple):
    """A port of this machine, and the port of the task to which it is forwarded."""

    #: The port of this machine. 0 means any free port. None means the same number as the task's
    #: port if that port is free.
    local: int | None
    #: The number or the name of the task's port.
    port: str


def parse_port(text: str) -> ForwardedPort:
    """Returns the ports in `[LOCAL:]PORT`.

    Raises:
        InvalidValue: the text has another form.
    """
    local, colon, port = text.rpartition(":")
    if re.fullmatch("[a-zA-Z][a-zA-Z0-9_-]*", port) is None and not _is_port(port):
        raise InvalidValue(
            "port",
            text,
            "is not a port",
            f"write [LOCAL:]PORT: numbers up to {MAX_PORT}, or PORT by its name",
        )
    if colon and local and local != "0" and not _is_port(local):
        raise InvalidValue(
            "port",
            text,
            f"has an invalid local port: {local!r}",
            f"write LOCAL:PORT, where LOCAL is a number up to {MAX_PORT}",
        )
    return ForwardedPort(int(local or 0) if colon else None, port)


def _is_port(text: str) -> bool:
    return re.fullmatch("[1-9][0-9]{0,4}", text) is not None and int(text) <= MAX_PORT


class PortForward:
    """A session that forwards ports of this machine to ports of a task.

    Args:
        broken: called with the reason when a connection could not be made on the host.
    """

    def __init__(
        self, session: Session[ForwardEnd], where: TaskLocation, broken: Callable[[str], None]
    ) -> None:
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
            local: the number of the port. 0 is any free port. None is the number of the task's port
                if it is free here, and any free port otherwise.
            port: the number of the task's port.

        Raises:
            InvalidValue: the port is in use, or is the task's own.
        """
        # The task may want to listen on its port later.
        own = (await self.ready()).machine == this_machine()
        if own and local == port:
            raise InvalidValue(
                "port",
                f"{local}:{port}",
                "is the task's own port: the task runs on this machine",
                f"write 0:{port}",
            )
        try:
            return await self._accept(
                0 if own and local is None else port if local is None else local, port
            )
        except OSError as error:
            if local is None:
                return await self._accept(0, port)
            why = os.strerror(error.errno) if error.errno else first_line(error)
            remedy = f"choose another one, or write 0:{port} for any free one"
            raise InvalidValue(
                "port", str(local), f"cannot be opened on this machine: {why}", remedy
            ) from None

    async def end(self) -> str:
        """Waits for the end of the session, and returns its reason.

        Raises:
            Rejected: the task no longer ran there.
            Unreachable: the host or the store does not answer.
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
                raise Unreachable(
                    f"the data from host {self._where.host} could not be read: {first_line(error)}"
                ) from None


@asynccontextmanager
async def forward_ports(
    client: ExecClient,
    where: TaskLocation,
    wanted: Sequence[ForwardedPort],
    broken: Callable[[str], None],
) -> AsyncIterator[PortForward]:
    """Forwards the ports of a task until the block is left, and yields the session.

    Args:
        broken: as for `PortForward`.

    Raises:
        Rejected: the task no longer runs on that host.
        Unreachable: the host does not answer.
    """
    asked = tuple(each.port for each in wanted)
    request = ForwardRequest(session=new_session(), job=where.job, index=where.task, ports=asked)
    async with client.forward(where, request) as session:
        forward = PortForward(session, where, broken)
        try:
            yield forward
        finally:
            await forward.close()


@asynccontextmanager
async def forwarded(
    client: ExecClient, where: TaskLocation, ports: Sequence[int | str]
) -> AsyncIterator[tuple[int, ...]]:
    """Forwards the ports of a task until the block is left, and yields the numbers of the ports of
    this machine.

    Args:
        ports: as for `parse_port`.

    Raises:
        InvalidValue: no port is given, or a port is in use here.
        Rejected: the task no longer runs on that host, or has no such port.
        Unreachable: the host or the store does not answer.
    """
    if not ports:
        raise InvalidValue("ports", "", "is empty", "pass ports, such as 8888 or 'http'")
    wanted = [parse_port(str(port)) for port in ports]
    async with forward_ports(client, where, wanted, _log_broken) as forward:
        found = (await forward.ready()).ports
        yield tuple(
            [
                await forward.listen(each.local, port)
                for each, port in zip(wanted, found, strict=True)
            ]
        )


def _log_broken(reason: str) -> None:
    _LOG.warning("a connection was closed: %s", reason)
