"""The updates of an open page: what the server sends while the cluster answers and while it does
not.
"""

from collections.abc import Sequence

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from iris.dashboard import live
from iris.dashboard.content import Address, Content, Page
from iris.dashboard.live import Live, NotUpToDate
from iris.dashboard.reader import Reader


async def nothing(_: Reader, __: Address) -> Content:
    """A page without values."""
    return Content("x", {})


async def sent(renderings: Sequence[str | Exception], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a browser gets for these renderings, one after the other."""
    monkeypatch.setattr(live, "INTERVAL", 0.0)
    monkeypatch.setattr(live, "LONGEST", 0.0)
    rest = list(renderings)

    async def render(_: Page, __: Address) -> str:
        following = rest.pop(0)
        if not rest:
            pages.close()
        if isinstance(following, Exception):
            raise following
        return following

    pages = Live(render)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/x",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
        "path_params": {},
    }
    answer = pages.stream(Page("/x", "x.html", nothing, "/"), Request(scope))
    assert isinstance(answer, StreamingResponse)
    return [str(each) async for each in answer.body_iterator][1:]


async def test_a_page_stays_while_the_cluster_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A control plane that is busy for a second must not replace a page that somebody reads. The
    browser learns the problem once, and that it has ended.
    """
    away = NotUpToDate("no answer")

    assert await sent(["a", away, away, "a", "b"], monkeypatch) == [
        "event: main\ndata: a\n\n",
        "event: problem\ndata: no answer\n\n",
        "event: problem\ndata: \n\n",
        "event: main\ndata: b\n\n",
    ]


async def test_a_page_that_changed_meanwhile_is_sent_when_the_cluster_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It tells the browser that the problem has ended, too."""
    assert await sent([NotUpToDate("no answer"), "a"], monkeypatch) == [
        "event: problem\ndata: no answer\n\n",
        "event: main\ndata: a\n\n",
    ]
