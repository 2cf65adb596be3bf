"""Asks the dashboard's application without a server."""

import asyncio
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.types import ASGIApp, Message


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


async def get(app: ASGIApp, address: str, **headers: str) -> Answer:
    """Returns the answer to a GET request."""
    path, _, query = address.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [
            (b"host", b"127.0.0.1"),
            *((key.replace("_", "-").encode(), value.encode()) for key, value in headers.items()),
        ],
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
        "root_path": "",
    }
    sent: list[Message] = []
    asked = False

    async def receive() -> Message:
        nonlocal asked
        if asked:  # the browser stays until the answer is complete
            await asyncio.get_running_loop().create_future()
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    return Answer(
        start["status"],
        {key.decode(): value.decode() for key, value in start["headers"]},
        b"".join(message.get("body", b"") for message in sent[1:]),
    )
