"""The updates of an open page: what the server sends while the cluster answers and while it does
not.
"""

from collections.abc import Hashable, Sequence

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


async def sent(
    renderings: Sequence[str | Exception],
    monkeypatch: pytest.MonkeyPatch,
    states: Sequence[Hashable] = (),
) -> list[str]:
    """What a browser gets for these renderings, one after the other.

    Args:
        states: the state of the cluster before each look at it; then, and if there are none, it
            changes each time.
    """
    monkeypatch.setattr(live, "INTERVAL", 0.001)
    monkeypatch.setattr(live, "LONGEST", 0.001)
    rest, coming = list(renderings), [*states]

    async def state(_: Page, __: Address) -> Hashable:
        return coming.pop(0) if coming else object()

    async def render(_: Page, __: Address) -> str:
        following = rest.pop(0)
        if not rest:
            pages.close()
        if isinstance(following, Exception):
            raise following
        return following

    pages = Live(render, state)
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


async def test_a_page_is_rendered_again_only_if_the_cluster_may_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten open pages of an idle cluster would cost a tenth of a core. A page is rendered once more
    after it has changed: lists of jobs follow the planners after a moment.
    """
    # The second rendering is like the first, so the next two looks render nothing.
    states = ["one", "one", "one", "one", "two"]

    assert await sent(["a", "a", "b"], monkeypatch, states) == [
        "event: main\ndata: a\n\n",
        "event: main\ndata: b\n\n",
    ]


async def test_a_page_is_rendered_if_the_state_of_the_cluster_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader must learn that the service is away."""
    assert await sent(["a", "a", NotUpToDate("away")], monkeypatch, [None] * 3) == [
        "event: main\ndata: a\n\n",
        "event: problem\ndata: away\n\n",
    ]


async def test_an_unchanged_cluster_is_looked_at_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loads of machines and records of use change without the planners."""
    monkeypatch.setattr(live, "OLDEST", 0.005)

    assert await sent(["a", "a", "b"], monkeypatch, ["one"] * 1_000) == [
        "event: main\ndata: a\n\n",
        "event: main\ndata: b\n\n",
    ]
