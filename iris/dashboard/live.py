"""Sends the changed part of an open page to the browser, as server-sent events.

The browser opens the page's own address a second time, and asks for an event stream. The page is
rendered again every two to eight seconds, once for all who look at the same address, and sent if it
has changed. If neither the page nor the cluster has changed, it is rendered only twice a minute.
While the cluster does not answer, the browser gets the problem instead, and keeps the page.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from iris.dashboard.answers import Answers
from iris.dashboard.content import Address, Page

logger = logging.getLogger(__name__)

EVENT_STREAM = "text/event-stream"
#: The shortest pause between two checks of the cluster's state for an open page, in seconds. The
#: page is rendered again if the state may have changed.
INTERVAL = 2.0
#: The longest pause between two checks of the cluster's state for an open page, in seconds. The
#: pause grows while the page does not change, so that pages that stay open cost little. After a
#: change it is `INTERVAL` again.
LONGEST = 8.0
GROWTH = 1.5
#: The longest time between two renderings of an open page, in seconds, even if the state of the
#: cluster has not changed. Agents' reports and records of use can change a page without a change of
#: that state.
OLDEST = 30.0
#: After this time without an update, in seconds, the browser is sent an empty comment. Proxies
#: close idle connections, and only a write shows that a browser is gone.
KEEP_ALIVE = 20.0
#: The limit on open pages that get updates at the same time. Each costs a connection and a few
#: kilobytes.
MOST_STREAMS = 200


class NotUpToDate(Exception):
    """An open page cannot be updated, because the cluster does not answer. The message says what is
    wrong.
    """


class Live:
    """Sends updates to the open pages.

    Args:
        render: returns the part of a page that changes. It raises `NotUpToDate` if the cluster does
            not answer.
        state: returns a value that changes with the state of the cluster; None if the service does
            not answer.
    """

    def __init__(
        self,
        render: Callable[[Page, Address], Awaitable[str]],
        state: Callable[[Page, Address], Awaitable[Hashable]],
    ) -> None:
        self._render = render
        self._state = state
        #: The id of this process. A page that was loaded from an earlier process reloads itself,
        #: because its scripts and styles may have changed.
        self.started = uuid.uuid4().hex[:12]
        #: This event is set when the process ends.
        self.closed = asyncio.Event()
        self._streams = 0
        #: The cached renderings, by address. All viewers of one address share a rendering.
        self._renderings = Answers()

    def close(self) -> None:
        """Ends all streams."""
        self.closed.set()

    def stream(self, page: Page, request: Request) -> Response:
        """Returns the stream of a page's updates."""
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("too many pages are open\n", 503)
        address = Address(request.path_params, dict(request.query_params), live=True)
        return StreamingResponse(
            self._events(page, address, str(request.url)), media_type=EVENT_STREAM
        )

    async def _events(self, page: Page, address: Address, url: str) -> AsyncIterator[str]:
        if self._streams >= MOST_STREAMS:  # many asked at the same moment
            return
        self._streams += 1
        try:
            yield event("started", self.started)
            sent, problem, silent, pause = "", "", 0.0, INTERVAL
            # The state of the cluster when the page was rendered and had not changed, and the time
            # since then.
            known: Hashable = None
            age = 0.0
            while not self.closed.is_set():
                state = await self._state(page, address)
                if state is None or state != known or age >= OLDEST:
                    html, why = await self._try(page, address, url, sent)
                    changed = (html, why) != (sent, problem)
                    if changed:
                        yield event("main", html) if html != sent else event("problem", why)
                    sent, problem, age = html, why, 0.0
                    known = None if changed or why else state
                    silent, pause = (0.0, INTERVAL) if changed else (silent, pause)
                if silent >= KEEP_ALIVE:
                    yield ":\n\n"
                    silent = 0.0
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.closed.wait(), pause)
                silent, age = silent + pause, age + pause
                pause = min(pause * GROWTH, LONGEST)
        finally:
            self._streams -= 1

    async def _try(self, page: Page, address: Address, url: str, sent: str) -> tuple[str, str]:
        """Returns the part of the page that changes, and why it is not up to date; empty if it is.

        Args:
            sent: what the browser has, if the page cannot be rendered.
        """
        try:
            return await self._rendered(page, address, url), ""
        except NotUpToDate as error:
            return sent, str(error)
        except Exception:
            logger.exception("the page %s could not be rendered", url)
            return sent, "the dashboard has an error"

    def forget(self) -> None:
        """Renders all open pages again, because an action has changed something."""
        self._renderings.forget()

    async def _rendered(self, page: Page, address: Address, url: str) -> str:
        return await self._renderings.shared(url, lambda: self._render(page, address), INTERVAL / 2)


def event(name: str, data: str) -> str:
    """Returns a server-sent event."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {name}\n{lines}\n"
