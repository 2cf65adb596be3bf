"""Serves Temporal's Web UI to users of this machine, and refuses requests that a web page elsewhere
causes.

The Web UI has no access control: whoever reaches it can start a job. A page in the user's browser
can reach servers of the machine under the name of its own site, if that name resolves to 127.0.0.1
by then (DNS rebinding). The browser then considers the Web UI part of the site. The `Host` header
still has the site's name, so the guard passes on only requests with a name of this machine.

The Web UI itself listens at a loopback address that no page can find (`hidden_address`): there are
2^24 addresses, each with thousands of ports. Programs on this machine can find it, but these can
also use the Temporal service itself.
"""

import asyncio
import contextlib
import errno
import logging
import random
import socket
from collections.abc import AsyncIterator

from iris.model.errors import IrisError, Rejected
from iris.model.ip_address import host_of
from iris.processes.process import SERVER_PORTS, stop_event

logger = logging.getLogger(__name__)

#: The host names with which users may open the Web UI. The port may be any, because an SSH tunnel
#: has another port on the user's machine.
OWN_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
#: The size limit of the head of a request, in bytes.
HEAD_LIMIT = 64 * 1024
#: The time limit for receiving the head of a request, in seconds. It is long, because browsers open
#: connections before they need them.
HEAD_TIMEOUT = 120
CHUNK = 64 * 1024
#: The headers that are about one connection. The guard does not pass them on: each of its
#: connections carries only one request, so that each request is checked.
_OF_CONNECTION = frozenset({"connection", "keep-alive", "proxy-connection", "upgrade"})


def hidden_address() -> str | None:
    """Returns a random loopback address and port, as `HOST:PORT`; None: this system has no other
    address than 127.0.0.1.
    """
    draw = random.SystemRandom()
    host = f"127.{draw.randint(1, 255)}.{draw.randint(0, 255)}.{draw.randint(1, 254)}"
    while True:
        port = draw.choice(SERVER_PORTS)
        with socket.socket() as trial:
            try:
                trial.bind((host, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                return None
        return f"{host}:{port}"


def checked_head(head: bytes) -> bytes:
    """Returns the head of a request as it is passed on.

    Args:
        head: the request line and the headers, with the empty line at their end.

    Raises:
        Rejected: the request is not for this machine, or comes from a page of another site.
    """
    request, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = request.split(" ")
    if (
        len(parts) != 3
        or not parts[1].startswith("/")
        or any(each in line for line in (request, *lines) for each in "\r\n\0")
    ):
        raise Rejected("the request is malformed")
    hosts, origins, kept = [], [], []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise Rejected("the request is malformed")
        match name.lower():
            case "host":
                hosts.append(value.strip())
            case "origin":
                origins.append(value.strip())
        if name.lower() not in _OF_CONNECTION:
            kept.append(line)
    if len(hosts) != 1 or host_of(hosts[0]) not in OWN_NAMES:
        raise Rejected(
            f"the Web UI does not accept the host name {' or '.join(hosts) or '(none)'}; open it at"
            " 127.0.0.1 or localhost"
        )
    # A page at another port of this machine, such as that of a job, is not the Web UI either.
    if other := [each for each in origins if each.lower() != f"http://{hosts[0]}".lower()]:
        raise Rejected(
            f"the request was sent by a page of another site ({other[0]}), and the Web UI refuses"
            " such requests"
        )
    return "\r\n".join([request, *kept, "Connection: close", "", ""]).encode("latin-1")


@contextlib.asynccontextmanager
async def guarding(address: str, backend: str) -> AsyncIterator[None]:
    """Serves the Web UI at `backend` to users at `address`. Both are `HOST:PORT`.

    Raises:
        IrisError: the address is in use.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            try:
                await _pass_on(reader, writer, backend)
            finally:
                writer.close()

    host, port = split(address)
    try:
        server = await asyncio.start_server(serve, host, port, limit=HEAD_LIMIT)
    except OSError as error:
        raise IrisError(f"the Web UI cannot be served at {address}: {error.strerror}") from None
    try:
        yield
    finally:
        server.close()


async def serve(address: str, backend: str) -> None:
    """Guards the Web UI until SIGTERM or SIGINT.

    Raises:
        IrisError: the address is in use.
    """
    stop = stop_event()
    async with guarding(address, backend):
        logger.info("serves the Web UI of %s at %s", backend, address)
        await stop.wait()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, backend: str
) -> None:
    """Passes one request and its answer on, or refuses it."""
    try:
        head = checked_head(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_TIMEOUT))
    except asyncio.LimitOverrunError:
        return await _answer(
            writer, "431 Request Header Fields Too Large", "the request's headers are too large"
        )
    except Rejected as refusal:
        logger.warning("the Web UI refused a request: %s", refusal)
        return await _answer(writer, "403 Forbidden", str(refusal))
    try:
        from_ui, to_ui = await asyncio.open_connection(*split(backend))
    except OSError:
        return await _answer(
            writer, "502 Bad Gateway", "the Temporal server does not run; it is being started again"
        )
    try:
        to_ui.write(head)
        body = asyncio.create_task(_copy(reader, to_ui))
        try:
            await _copy(from_ui, writer)
        finally:
            body.cancel()
            await asyncio.wait({body})
    finally:
        to_ui.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copies until the end of the source, or until the target is gone."""
    with contextlib.suppress(OSError):
        while chunk := await source.read(CHUNK):
            target.write(chunk)
            await target.drain()


async def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    headers = (
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    writer.write("\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body)
    await writer.drain()


def split(address: str) -> tuple[str, int]:
    """Returns the host and the port of `HOST:PORT`."""
    host, _, port = address.rpartition(":")
    return host, int(port)
