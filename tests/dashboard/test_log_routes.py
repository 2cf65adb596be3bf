"""The requests that carry a log alone: how many there may be, and what refuses them."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from iris.client.client import AsyncIrisClient
from iris.dashboard import log_routes
from iris.dashboard.log_routes import LogRoutes
from iris.dashboard.reader import Reader
from iris.model.errors import InvalidValue, IrisError, NotFound, Rejected, Unreachable
from tests.dashboard.test_hostile_texts import JOB, a_log


async def ask(routes: LogRoutes, kind: str) -> Any:
    """The answer to a request for the log of the job."""
    (route,) = (each for each in routes.routes if each.path.startswith(f"/{kind}/"))
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"/{kind}/{quote(JOB)}",
        "query_string": b"",
        "headers": [],
        "path_params": {"job": JOB},
    }
    return await route.endpoint(Request(scope))


@pytest.mark.parametrize("kind", ["log-text", "log-stream"])
@pytest.mark.parametrize("other", ["log-text", "log-stream"])
async def test_downloads_and_followed_logs_have_one_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, other: str
) -> None:
    """Each reads the store, and a browser may keep a download open for as long as it likes."""
    monkeypatch.setattr(log_routes, "MOST_READERS", 1)
    routes = LogRoutes(Reader(await a_log(tmp_path, "a line")), asyncio.Event())

    first, second = await ask(routes, kind), await ask(routes, kind)
    assert isinstance(first, StreamingResponse)
    chunks = first.body_iterator
    assert await anext(aiter(chunks))
    refused = await ask(routes, other)
    assert (refused.status_code, refused.body) == (503, b"too many logs are read\n")
    # It asked at the same moment, so it was not refused before.
    assert [each async for each in second.body_iterator] == []

    await chunks.aclose()
    assert (await ask(routes, other)).status_code == 200


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("there is no such job"), 404),
        (InvalidValue("task", "x", "is no number", "write 0"), 400),
        (Rejected("the service refuses this client"), 403),
        (Unreachable("no answer"), 503),
    ],
)
async def test_an_error_has_the_status_that_the_page_of_the_log_has(
    error: IrisError, status: int
) -> None:
    """A program that downloads logs repeats what may succeed later, and nothing else."""

    async def log_source(*_: Any) -> None:
        raise error

    client = cast(AsyncIrisClient, SimpleNamespace(jobs=SimpleNamespace(log_source=log_source)))
    answer = await ask(LogRoutes(Reader(client), asyncio.Event()), "log-text")

    assert (answer.status_code, answer.body) == (status, f"{error}\n".encode())
