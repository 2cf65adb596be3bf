"""Passes connections from one port of the network on to a port of this machine.

Temporal's dev server opens five more ports beside that of the service, all at the same address. At
127.0.0.1 only this machine reaches them, so the machine of a control plane publishes the service's
port, and no other.
"""

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from typing import cast

from iris.model.errors import IrisError

#: If this many bytes wait to be sent to one end of a forwarded connection, nothing more is read
#: from the other end.
HIGH_WATER = 256 * 1024


class _End(asyncio.Protocol):
    """One end of a forwarded connection. The data that it receives is sent to the other end."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if (
            self.other is not None
            and self.other.transport is not None
            and not self.other.transport.is_closing()
        ):
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if (
            self.other is not None
            and self.other.transport is not None
            and not self.other.transport.is_closing()
        ):
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Caller(_End):
    """The client's end of a forwarded connection. It opens the connection to the Temporal service.
    Until that connection is open, it takes only the first piece of the client's data, which it
    keeps in `early`.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._service = (host, port)
        self._connecting: asyncio.Task[None] | None = None
        self.early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            # Not in `connection_made`: a transport of Python 3.11.2 reads once even if it was
            # paused there.
            self.early += data
            if self.transport is not None:
                self.transport.pause_reading()
        else:
            super().data_received(data)

    async def _connect(self) -> None:
        assert self.transport is not None
        service = _End()
        service.other = self  # a gRPC server speaks first
        try:
            await asyncio.get_running_loop().create_connection(lambda: service, *self._service)
        except OSError:  # the service is being started; clients try again
            self.transport.close()
            return
        assert service.transport is not None
        service.transport.write(self.early)
        self.other = service
        if self.transport.is_closing():
            self.connection_lost(None)
        else:
            self.transport.resume_reading()


@contextlib.asynccontextmanager
async def publishing(port: int, service: tuple[str, int]) -> AsyncIterator[None]:
    """Passes connections to this port, from any network, on to the service.

    Raises:
        IrisError: the port is in use.
    """
    _allow_files()
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(lambda: _Caller(*service), "0.0.0.0", port)  # noqa: S104
    except OSError as error:
        raise IrisError(
            f"the Temporal service cannot be published at port {port}: {error.strerror}"
        ) from None
    try:
        yield
    finally:
        server.close()


def _allow_files() -> None:
    """Raises the soft limit of open files to the hard one, as Go programs do. Each connection has
    two; the default is 1,024.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS refuses an infinite one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
