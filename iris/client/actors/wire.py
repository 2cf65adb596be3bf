"""Connections between actors and their callers: framed and authenticated by the standard library's `multiprocessing.connection`.

Both sides prove that they know the token of the actor's job before either unpickles anything. The token is in the object store.
"""

import hmac
import secrets
import socket
import struct
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from iris.model import names
from iris.model.endpoints import Endpoint
from iris.model.errors import IrisError, Rejected
from iris.storage.object_store import Store

#: The metadata of an actor's endpoint: the unique id of its job's run, which names the token.
RUN = "iris.run"
#: How long the other side may take to prove that it knows the token, in seconds.
HANDSHAKE_TIMEOUT = 10
#: When a host that has vanished counts as gone: after so many idle seconds, then tries at this interval.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


class ActorUnavailable(IrisError, ConnectionError):
    """No actor of this name answers. The call was not sent."""


class CallInterrupted(IrisError, ConnectionError):
    """The actor went away during the call, which may have run or not."""


async def make_token(store: Store, run: str) -> bytes:
    """Returns the token of a job's actors; the first of its tasks makes it."""
    path = names.actor_token(run)
    await store.put_new(path, secrets.token_bytes(32))
    return await _token(store, path)


async def token_of(store: Store, endpoint: Endpoint) -> bytes:
    """Returns the token for an actor's endpoint.

    Raises:
        Rejected: the endpoint is not that of an actor.
    """
    run = endpoint.metadata.get(RUN, "")
    if not names.is_job_uid(run, endpoint.job):
        raise Rejected(f"endpoint {endpoint.name} of {endpoint.job} is not an actor's: an ActorServer did not register it")
    return await _token(store, names.actor_token(run))


async def _token(store: Store, path: str) -> bytes:
    token = await store.get(path)
    if token is None:
        raise Rejected(f"the store {store.url} has no {path}, the token of the job's actors")
    return token


def accepted(accepted: socket.socket, token: bytes, address: str) -> Connection:
    """Returns the connection of a caller that knows the token.

    Args:
        address: that of the actor's endpoint.

    Raises:
        AuthenticationError, OSError, EOFError: it does not, or went away.
    """
    connection, key = _connection(accepted), _key(token, address)
    try:
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
        _set_timeout(connection, 0)
    except BaseException:
        connection.close()
        raise
    return connection


def connected(address: str, token: bytes) -> Connection:
    """Connects to an actor that knows the token.

    Raises:
        Rejected: it does not know it.
        OSError: it does not answer.
    """
    host, _, port = address.rpartition(":")
    key = _key(token, address)
    connection = _connection(socket.create_connection((host.strip("[]"), int(port)), HANDSHAKE_TIMEOUT))
    try:
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
        _set_timeout(connection, 0)
    except AuthenticationError:
        connection.close()
        raise Rejected(f"what answers at {address} does not know the token of the job's actors; nothing is unpickled") from None
    except EOFError as error:
        connection.close()
        raise ConnectionResetError(f"{address} closed the connection") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _key(token: bytes, address: str) -> bytes:
    """Returns what both sides prove to know.

    A proof for one address is none for another, so a program that lets callers connect to itself cannot pass their proofs on.
    """
    return hmac.digest(token, address.encode(), "sha256")


def _connection(connected: socket.socket) -> Connection:
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        connected.setsockopt(socket.IPPROTO_TCP, option, value)
    connection = Connection(connected.detach())
    _set_timeout(connection, HANDSHAKE_TIMEOUT)
    return connection


def _set_timeout(connection: Connection, seconds: int) -> None:
    """Limits how long a read may take. 0: no limit."""
    with socket.socket(fileno=socket.dup(connection.fileno())) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))
