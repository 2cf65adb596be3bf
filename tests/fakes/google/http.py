"""A small HTTP/1.1 server: one request, one reply."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.fakes.google.faults import Dropped


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """A response in JSON."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Asked], Awaitable[Answer]]


async def listen(handler: Handler, port: int) -> asyncio.Server:
    """Serve on loopback. A handler that raises Dropped has the connection cut."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while asked := await _read(reader):
                answer = await _unless_gone(handler(asked), reader)
                if answer is None:
                    return
                writer.write(_written(answer))
                await writer.drain()
        except (Dropped, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 22)


async def _unless_gone(answer: Awaitable[Answer], reader: asyncio.StreamReader) -> Answer | None:
    """The answer; None when the client has hung up meanwhile."""
    making = asyncio.ensure_future(answer)
    while True:
        done, _ = await asyncio.wait([making], timeout=0.2)
        if done:
            return making.result()
        if reader.at_eof():
            making.cancel()
            return None


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    return Asked(
        method, unquote(url.path), dict(parse_qsl(url.query, keep_blank_values=True)), body
    )


def _written(answer: Answer) -> bytes:
    body = json.dumps(answer.body).encode() + b"\n"
    headers = {
        "Content-Type": "application/json; charset=UTF-8",
        "Server": "ESF",
        "Content-Length": str(len(body)),
        **answer.headers,
    }
    head = [
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body
