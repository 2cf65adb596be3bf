"""The TLS connection between an actor and its caller.

Both sides have the same certificate and private key: those of the run of the actor's job, which are
in the object store. Neither side accepts another certificate, so neither unpickles anything from a
program without the key. A message that was changed, repeated or left out ends the connection.
"""

import asyncio
import contextlib
import functools
import socket
import ssl
import struct
import tempfile

from iris.model import store_paths
from iris.model.errors import IrisError, Rejected
from iris.model.job.endpoints import Endpoint
from iris.storage.object_store import Store

#: The metadata key under which an actor's endpoint has the unique id of the run of the actor's job.
#: This id is part of the name that the certificate of the job's actors has in the store.
RUN = "iris.run"
#: How long the other side of a new connection may take to prove that it has the key of the job's
#: actors, in seconds.
HANDSHAKE_TIMEOUT = 10.0
#: The TCP keep-alive settings that close a connection to a host that has vanished: two times in
#: seconds, and a number of attempts. The keys are names of socket options, because a system may
#: lack an option.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
#: The format of each message's header: the length of the message in bytes, as an 8-byte number.
_HEAD = struct.Struct("!Q")
#: The maximum number of bytes of a message that are sent in one step.
_BLOCK = 1024 * 1024


class ActorUnavailable(IrisError, ConnectionError):
    """No actor of this name answers. The call was not sent."""


class CallInterrupted(IrisError, ConnectionError):
    """The connection to the actor broke during the call. The call may have run or not."""


async def certificate_of(store: Store, endpoint: Endpoint) -> bytes:
    """Returns the certificate and the private key for an actor's endpoint, as PEM.

    Raises:
        Rejected: the endpoint is not an actor's endpoint.
    """
    run = endpoint.metadata.get(RUN, "")
    if not store_paths.is_job_uid(run, endpoint.job):
        raise Rejected(
            f"endpoint {endpoint.name} of {endpoint.job} is not an actor's: an ActorServer did not"
            " register it"
        )
    return await stored_certificate(store, run)


async def stored_certificate(store: Store, run: str) -> bytes:
    """Returns the certificate and the private key of the actors of a job's run, as PEM.

    Raises:
        Rejected: the store does not have them.
    """
    path = store_paths.actor_certificate(run)
    pem = await store.get(path)
    if pem is None:
        raise Rejected(f"the store {store.url} has no {path}, the certificate of the job's actors")
    return pem


def server_context(pem: bytes, address: str) -> ssl.SSLContext:
    """Returns the context for the connections of an actor at this address.

    A caller names the address of the actor in its handshake (SNI). An actor that a caller reaches
    through another address refuses the connection: the caller was led to it.
    """

    def check_address(_: object, called: str | None, __: object) -> int | None:
        return None if called == address else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    context = _context(ssl.PROTOCOL_TLS_SERVER, pem)
    context.num_tickets = 0  # connections are not resumed
    context.sni_callback = check_address
    return context


@functools.lru_cache(maxsize=16)
def caller_context(pem: bytes) -> ssl.SSLContext:
    """Returns the context for connections to actors with this certificate."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, pem)


def _context(protocol: int, pem: bytes) -> ssl.SSLContext:
    """Returns a context that has this certificate and accepts no other one."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate belongs to a job, not to a host
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=pem.decode("ascii"))
    with tempfile.NamedTemporaryFile() as file:  # `ssl` reads private keys only from files
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context


class Served:
    """The server's side of a connection. A thread of the server uses it.

    Raises:
        OSError: the caller has gone away.
    """

    def __init__(self, caller: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = context.wrap_socket(caller, server_side=True, do_handshake_on_connect=False)
        self._reader = self._socket.makefile("rb")

    def handshake(self) -> None:
        """Waits until the caller has proved that it has the key.

        Raises:
            OSError: the caller does not have the key, or has gone away.
        """
        _keep_alive(self._socket)
        self._socket.settimeout(HANDSHAKE_TIMEOUT)
        self._socket.do_handshake()
        # In TLS 1.3, the caller's handshake ends before the server has checked its certificate. The
        # empty message tells the caller that it was accepted.
        self.send(b"")
        self._socket.settimeout(None)

    def receive(self) -> bytes:
        """Returns the caller's next message.

        Raises:
            OSError, EOFError: no valid message arrives any more.
        """
        (length,) = _HEAD.unpack(self._exactly(_HEAD.size))
        return self._exactly(length)

    def send(self, message: bytes) -> None:
        """Sends a message.

        Raises:
            OSError: the caller has gone away.
        """
        self._socket.sendall(_HEAD.pack(len(message)) + message[:_BLOCK])
        if len(message) > _BLOCK:
            self._socket.sendall(memoryview(message)[_BLOCK:])

    def shut_down(self, how: int) -> None:
        """Ends one or both directions, as `socket.shutdown` does. Any thread may call it."""
        with contextlib.suppress(OSError):
            # `SSLSocket.shutdown` also ends TLS, so a later message would be sent as plain text.
            socket.socket.shutdown(self._socket, how)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        found = self._reader.read(size)
        if len(found) < size:
            raise EOFError("the caller has closed the connection")
        return found


class Calling:
    """The caller's side of a connection. One call uses it at a time. `connect` creates it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, address: str, pem: bytes) -> "Calling":
        """Connects to an actor, which must prove that it has the key.

        Args:
            pem: the certificate and the private key of the job's actors.

        Raises:
            Rejected: the other side does not speak TLS, or is another actor of the job.
            OSError: the actor does not answer, or an actor of another job has its address now.
        """
        host, _, port = address.rpartition(":")
        context = caller_context(pem)
        unproved = f"the program at {address} does not have the key of the job's actors"
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT):
                reader, writer = await asyncio.open_connection(
                    host.strip("[]"), int(port), ssl=context, server_hostname=address
                )
                connection = cls(reader, writer)
                try:
                    _keep_alive(writer.get_extra_info("socket"))
                    await connection._receive()
                except BaseException:
                    connection.close()
                    raise
        except ssl.SSLCertVerificationError:  # an actor of another job has the address now
            raise ConnectionAbortedError(unproved) from None
        except ssl.SSLError as error:
            raise Rejected(f"{unproved} ({error.reason}); no data from it is unpickled") from None
        except (ConnectionResetError, EOFError):
            raise ConnectionResetError(f"{address} closed the connection") from None
        return connection

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as this side knows."""
        return (
            not self._reader.at_eof()
            and self._reader.exception() is None
            and not self._writer.is_closing()
        )

    async def ask(self, request: bytes) -> bytes:
        """Sends a request and returns the answer.

        Raises:
            OSError, EOFError: the connection is lost.
        """
        self._writer.write(_HEAD.pack(len(request)) + request[:_BLOCK])
        # In parts, because asyncio copies the whole rest after each part that it has sent.
        for at in range(_BLOCK, len(request), _BLOCK):
            await self._writer.drain()
            self._writer.write(request[at : at + _BLOCK])
        return await self._receive()

    def close(self) -> None:
        # `close` of the writer would wait until the actor, which may be busy, closes TLS, too.
        self._writer.transport.abort()

    async def _receive(self) -> bytes:
        (length,) = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
        return await self._reader.readexactly(length)


def _keep_alive(connected: socket.socket) -> None:
    """Makes the socket send small messages at once, and notice that the other side has vanished."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if (number := getattr(socket, option, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, number, value)
