"""Answers the requests that carry a log alone: the stream of its new lines, and its text."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from temporalio.service import RPCError

from iris.client.logs.entries import LogEntry
from iris.client.logs.follow import reading_from
from iris.dashboard.content import NO_ANSWER, problem_of
from iris.dashboard.live import EVENT_STREAM, KEEP_ALIVE, event
from iris.dashboard.log_html import lines_html
from iris.dashboard.log_parts import (
    News,
    Position,
    Selection,
    last_part,
    news,
    parse_position,
    position_text,
)
from iris.dashboard.pages.logs import selection_of
from iris.dashboard.reader import Reader
from iris.model.errors import IrisError
from iris.storage.object_store import Store

#: The pause between two checks for new output, in seconds.
INTERVAL = 1.0
#: The limit on logs that are followed or downloaded at the same time, because each of them reads
#: the store.
MOST_READERS = 60
T = TypeVar("T", str, bytes)


class LogRoutes:
    """Serves the streams of new log lines, and the downloads of logs.

    Args:
        closed: an event that is set when the process ends.
    """

    def __init__(self, reader: Reader, closed: asyncio.Event) -> None:
        self._reader = reader
        self._closed = closed
        self._readers = 0
        self.routes = [
            Route("/log-stream/{job:path}", self._selected(self._stream)),
            Route("/log-text/{job:path}", self._selected(self._text)),
        ]

    def _selected(
        self, answer: Callable[[Request, Selection], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            if self._readers >= MOST_READERS:
                return PlainTextResponse("too many logs are read\n", NO_ANSWER)
            job, query = request.path_params["job"], dict(request.query_params)
            try:
                return await answer(request, await selection_of(self._reader, job, query))
            except IrisError as error:
                return PlainTextResponse(f"{error}\n", problem_of(error).status)

        return answered

    async def _stream(self, request: Request, wanted: Selection) -> Response:
        """Returns the new lines as server-sent events. The id of each event is the position after
        its lines, so that a browser that connects again goes on there.
        """
        given = request.headers.get("last-event-id") or request.query_params.get("position", "")
        return StreamingResponse(
            self._counted(self._events(wanted, parse_position(given))), media_type=EVENT_STREAM
        )

    async def _counted(self, chunks: AsyncGenerator[T]) -> AsyncIterator[T]:
        """Yields the chunks, and counts as a reader of the store meanwhile."""
        if self._readers >= MOST_READERS:  # many asked at the same moment
            return
        self._readers += 1
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
        finally:
            self._readers -= 1

    async def _events(self, wanted: Selection, position: Position | None) -> AsyncGenerator[str]:
        jobs = self._reader.client.jobs
        ended = asyncio.ensure_future(jobs.wait_until_ended(wanted.job, wanted.run_id))
        try:
            store = Store(self._reader.client.record.store)
            if position is None:
                part = await last_part(store, wanted)
                position = part.position
                yield _event("start", News(part.entries, (), 0, position), wanted)
            reader, silent = wanted.reader(store, position), 0.0
            shown: Sequence[LogEntry] = []
            async for each in news(reader, wanted, ended, INTERVAL):
                if self._closed.is_set():
                    return
                if each.entries or each.begun != shown:
                    shown, silent = each.begun, 0.0
                    yield _event("lines", each, wanted)
                elif silent >= KEEP_ALIVE:
                    silent = 0.0
                    yield ":\n\n"
                silent += INTERVAL
            await ended
            yield event("end", "the job has ended")
        except IrisError as error:
            yield event("problem", str(error))
        except RPCError as error:
            yield event("problem", f"the service does not answer: {error.message}")
        finally:
            ended.cancel()
            with suppress(asyncio.CancelledError, IrisError, RPCError):
                await ended

    async def _text(self, request: Request, wanted: Selection) -> Response:
        """Returns the whole log as a file."""
        name = re.sub(r"[^A-Za-z0-9._-]", "-", wanted.job)
        task = "" if wanted.task is None else f"-{wanted.task}"
        return StreamingResponse(
            self._counted(self._bytes(wanted)),
            media_type="text/plain; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="{name}{task}.log"'},
        )

    async def _bytes(self, wanted: Selection) -> AsyncGenerator[bytes]:
        """Yields the bytes that the program wrote. Each line has its task if there are several."""
        reader = wanted.reader(Store(self._reader.client.record.store))
        begun: set[tuple[int, int, str]] = set()
        with reading_from(reader.store, f"the log of {wanted.job}"):
            async for lines in reader.new_lines():
                out = bytearray()
                for task, attempt, line in lines:
                    key = (task, attempt, line.stream)
                    if wanted.tasks > 1 and key not in begun:
                        out += b"task %d: " % task
                    (begun.add if line.goes_on else begun.discard)(key)
                    out += line.written
                yield bytes(out)


def _event(name: str, each: News, wanted: Selection) -> str:
    several = wanted.tasks > 1
    html: str = lines_html(each.entries, several=several)
    if each.left_out:
        html = f'<div class="gap">{each.left_out:,} lines are left out</div>{html}'
    if each.begun:
        html = f'{html}<div class="begun">{lines_html(each.begun, several=several)}</div>'
    return f"id: {position_text(each.position)}\n{event(name, html)}"
