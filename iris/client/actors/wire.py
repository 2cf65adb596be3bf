"""The connection between an actor and its caller. Both sides prove that they know the token of the
actor's job. Each message is sealed with a key of this connection, its direction and its number. The
token is in the object store.

Neither side unpickles anything before it has checked the seal. A message that was changed, repeated
or left out ends the connection.
"""

import asyncio
import hmac
import secrets
import socket
import struct
import time

from iris.model import names
from iris.model.errors import IrisError, Rejected
from iris.model.job.endpoints import Endpoint
from iris.storage.object_store import Store

#: The key in the metadata of an actor's endpoint. The value is the unique id of the run of the
#: actor's job. The token's name in the store contains this id.
RUN = "iris.run"
#: How long the other program may take to prove that it knows the token, in seconds.
HANDSHAKE_TIMEOUT = 10.0
#: The TCP keep-alive settings that close a connection to a host that has vanished: two times in
#: seconds, and a number of attempts. The keys are names of socket options, because a system may
#: lack an option.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
#: The sizes of the random number and of the proof of a handshake, in bytes.
_NONCE = _PROOF = 32
#: The format of the header of each message: the length and the seal of the message.
_HEAD = struct.Struct("!Q32s")
#: The most bytes of a message that are sent or received in one step.
_BLOCK = 1024 * 1024


class ActorUnavailable(IrisError, ConnectionError):
    """No actor of this name answers. The call was not sent."""


class CallInterrupted(IrisError, ConnectionError):
    """The connection to the actor broke during the call. The call may have run or not."""


class BrokenSeal(ConnectionError):
    """The other program does not know the token, or a received message was changed, left out or
    repeated.
    """


async def make_token(store: Store, run: str) -> bytes:
    """Returns the token of a job's actors. The first task that asks for the token creates it."""
    path = names.actor_token(run)
    await store.put_new(path, secrets.token_bytes(32))
    return await _token(store, path)


async def token_of(store: Store, endpoint: Endpoint) -> bytes:
    """Returns the token for an actor's endpoint.

    Raises:
        Rejected: the endpoint is not an actor's endpoint.
    """
    run = endpoint.metadata.get(RUN, "")
    if not names.is_job_uid(run, endpoint.job):
        raise Rejected(
            f"endpoint {endpoint.name} of {endpoint.job} is not an actor's: an ActorServer did not"
            " register it"
        )
    return await _token(store, names.actor_token(run))


async def _token(store: Store, path: str) -> bytes:
    token = await store.get(path)
    if token is None:
        raise Rejected(f"the store {store.url} has no {path}, the token of the job's actors")
    return token


class Session:
    """Computes and checks the seals of the messages of one connection.

    Args:
        address: the address of the actor. A caller that was led to another actor notices the
            difference.
        nonces: a random number of the server, then a random number of the caller. They make the
            seals of each connection different.
        server: whether this side is the actor's side.
    """

    def __init__(self, token: bytes, address: str, nonces: bytes, *, server: bool) -> None:
        def key(purpose: str) -> bytes:
            return hmac.digest(token, f"{purpose} {address} ".encode() + nonces, "sha256")

        mine, other = ("server", "caller") if server else ("caller", "server")
        self.proof, self._other_proof = key(f"proof of {mine}"), key(f"proof of {other}")
        self._sending, self._receiving = key(f"messages of {mine}"), key(f"messages of {other}")
        self._sent = self._received = 0

    def check_proof(self, proof: bytes) -> None:
        """Checks that the other side knows the token.

        Raises:
            BrokenSeal: it does not know the token.
        """
        if not hmac.compare_digest(proof, self._other_proof):
            raise BrokenSeal("the other side does not know the token")

    def head(self, message: bytes) -> bytes:
        """Returns the bytes that are sent before the next message."""
        self._sent += 1
        return _HEAD.pack(len(message), _seal(self._sending, self._sent, message))

    def check(self, seal: bytes, message: bytes) -> bytes:
        """Checks the next message of the other side, and returns it.

        Raises:
            BrokenSeal: this is not the next message of the other side.
        """
        self._received += 1
        if not hmac.compare_digest(seal, _seal(self._receiving, self._received, message)):
            raise BrokenSeal(f"message {self._received} of this connection was changed on its way")
        return message


def _seal(key: bytes, number: int, message: bytes) -> bytes:
    made = hmac.new(key, struct.pack("!Q", number), "sha256")
    made.update(message)
    return made.digest()


class Served:
    """The server's side of a connection. A thread of the server uses it.

    Raises:
        BrokenSeal, OSError, EOFError: the caller does not know the token, or has gone away. Its
            socket is still open.
    """

    def __init__(self, caller: socket.socket, token: bytes, address: str) -> None:
        self._socket = caller
        keep_alive(caller)
        end, nonce = time.monotonic() + HANDSHAKE_TIMEOUT, secrets.token_bytes(_NONCE)
        caller.settimeout(HANDSHAKE_TIMEOUT)
        caller.sendall(nonce)
        hello = self._exactly(_NONCE + _PROOF, end)
        self._session = Session(token, address, nonce + hello[:_NONCE], server=True)
        self._session.check_proof(hello[_NONCE:])
        caller.sendall(self._session.proof)
        caller.settimeout(None)

    def receive(self) -> bytes:
        """Returns the caller's next message.

        Raises:
            BrokenSeal, OSError, EOFError: no valid message arrives any more.
        """
        length, seal = _HEAD.unpack(self._exactly(_HEAD.size))
        return self._session.check(seal, self._exactly(length))

    def send(self, message: bytes) -> None:
        """Sends a message.

        Raises:
            OSError: the caller has gone away.
        """
        self._socket.sendall(self._session.head(message))
        self._socket.sendall(message)

    def _exactly(self, size: int, end: float | None = None) -> bytes:
        found = bytearray()
        while len(found) < size:
            if end is not None:
                self._socket.settimeout(max(0.001, end - time.monotonic()))
            if not (block := self._socket.recv(min(size - len(found), _BLOCK))):
                raise EOFError("the caller has closed the connection")
            found += block
        return bytes(found)


class Calling:
    """The caller's side of a connection. One call uses it at a time. `connect` creates it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: Session
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._session = session

    @classmethod
    async def connect(cls, address: str, token: bytes) -> "Calling":
        """Connects to an actor, which must prove that it knows the token.

        Raises:
            Rejected: the other side does not know the token.
            OSError: the actor does not answer.
        """
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(HANDSHAKE_TIMEOUT):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                keep_alive(writer.get_extra_info("socket"))
                nonce = secrets.token_bytes(_NONCE)
                session = Session(
                    token, address, await reader.readexactly(_NONCE) + nonce, server=False
                )
                writer.write(nonce + session.proof)
                session.check_proof(await reader.readexactly(_PROOF))
            except BrokenSeal:
                writer.close()
                raise Rejected(
                    f"what answers at {address} does not know the token of the job's actors;"
                    " nothing is unpickled"
                ) from None
            except asyncio.IncompleteReadError:
                writer.close()
                raise ConnectionResetError(f"{address} closed the connection") from None
            except BaseException:
                writer.close()
                raise
        return cls(reader, writer, session)

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
        self._writer.write(self._session.head(request) + request[:_BLOCK])
        # In parts, because asyncio copies the whole rest after each part that it has sent.
        for at in range(_BLOCK, len(request), _BLOCK):
            await self._writer.drain()
            self._writer.write(request[at : at + _BLOCK])
        await self._writer.drain()
        length, seal = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
        return self._session.check(seal, await self._reader.readexactly(length))

    def close(self) -> None:
        self._writer.close()


def keep_alive(connected: socket.socket) -> None:
    """Makes the socket send small messages at once, and notice that the other side has vanished."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if (number := getattr(socket, option, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, number, value)
