"""Reads many logs at once, chunk by chunk. A reader keeps its positions, so it neither loses nor
repeats a line.

The attempts of a task are read one after the other. The lines of several tasks are merged by time.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

from iris.concurrency import for_each
from iris.model import store_paths
from iris.storage.log_format import LogLine, Stream, decode
from iris.storage.object_store import Store

T = TypeVar("T")
U = TypeVar("U")

#: The maximum number of concurrent requests to the store.
AT_ONCE = 32
#: The number of logs up to which a quick read (`new_lines(quick=True)`) checks every log for new
#: chunks. If there are more logs, each quick read checks the logs that recently had new lines, and
#: some of the other logs in turns.
QUICK_LOOKS = 64
#: After this number of reads without new lines, a log counts as quiet: if there are more than
#: `QUICK_LOOKS` logs, quick reads check quiet logs only in turns.
QUIET = 20
#: One in this number of quick reads (`new_lines(quick=True)`) also searches for new logs.
FIND_EVERY = 4


class TaskLine(NamedTuple):
    """A log line with its task and attempt."""

    task: int
    attempt: int
    line: LogLine


class Found(NamedTuple):
    """The location of a log in the store, with its task and attempt."""

    task: int
    attempt: int
    prefix: str


class Finder(Protocol):
    """Finds the logs that a `Reader` reads."""

    async def find(self, store: Store, *, quick: bool) -> list[Found]:
        """Lists the logs. The list may contain the logs of earlier calls.

        Args:
            quick: lists only the logs that are likely to be new.
        """


class _Log:
    """The log of one attempt, and the position up to which it was read."""

    def __init__(
        self, found: Found, streams: Collection[Stream], since_ms: int, sequence: int = 0
    ) -> None:
        self.task, self.attempt, self._prefix = found
        self._streams = streams
        self._since_ms = since_ms
        #: The number of chunks that were read.
        self.sequence = sequence
        #: Whether the last call of `tail` skipped chunks at the start of the log.
        self.has_earlier = False
        #: The pending requests for the next chunks, in order.
        self._ahead: deque[asyncio.Task[bytes | None]] = deque()
        #: The number of the last read that requested new chunks of this log; 0 if none did.
        self.asked = 0
        #: The number of the last read that found new lines in this log; 0 if none did.
        self.heard = 0

    async def next(self, store: Store, ahead: int) -> list[TaskLine] | None:
        """Returns the lines of the next chunk. Returns None if that chunk does not exist yet.

        Args:
            ahead: the number of chunks to request at once.
        """
        while len(self._ahead) < ahead:
            path = store_paths.log_chunk(self._prefix, self.sequence + len(self._ahead))
            self._ahead.append(asyncio.create_task(store.get(path)))
        try:
            chunk = await self._ahead[0]
        except BaseException:
            self._forget()
            raise
        if chunk is None:
            # Forget the later chunks, too: they may have been written since the missing one was
            # requested.
            self._forget()
            return None
        self._ahead.popleft()
        self.sequence += 1
        return self._lines(chunk)

    async def skip_old(self, store: Store) -> None:
        """Moves to the first chunk that may have lines of `since_ms` or later. Finds it by binary
        search, because times in a log only grow.
        """
        chunks = len(await store.objects(self._prefix))
        self.sequence = await self._last_before(store, self._since_ms, chunks)

    async def _last_before(self, store: Store, at_ms: int, chunks: int) -> int:
        """Returns the number of the last chunk that begins before this time, or 0."""
        low, high = 0, chunks
        while high - low > 1:
            middle = (low + high) // 2
            chunk = await store.get(store_paths.log_chunk(self._prefix, middle))
            first = next(decode(chunk), None) if chunk else None
            if first is not None and first.at_ms >= at_ms:
                high = middle
            else:
                low = middle
        return low

    async def tail(
        self, store: Store, count: int, until_ms: int | None = None, most_bytes: int | None = None
    ) -> list[TaskLine]:
        """Returns the last `count` lines, and a few lines before them. Reading continues after
        them.

        Args:
            until_ms, most_bytes: as for `Reader.tail`.
        """
        sequence = self.sequence = len(await store.objects(self._prefix))
        if until_ms is not None:
            sequence = min(sequence, 1 + await self._last_before(store, until_ms + 1, sequence))
        found: list[TaskLine] = []
        lines = size = 0
        while sequence > 0 and lines <= count and (most_bytes is None or size < most_bytes):
            sequence -= 1
            chunk = await store.get(store_paths.log_chunk(self._prefix, sequence)) or b""
            earlier = [
                entry
                for entry in self._lines(chunk)
                if until_ms is None or entry.line.at_ms <= until_ms
            ]
            found = earlier + found
            lines += sum(not entry.line.goes_on for entry in earlier)
            size += len(chunk)
            if (first := next(decode(chunk), None)) and first.at_ms < self._since_ms:
                break
        self.has_earlier = sequence > 0
        return found

    def _lines(self, chunk: bytes) -> list[TaskLine]:
        return [
            TaskLine(self.task, self.attempt, line)
            for line in decode(chunk)
            if line.at_ms >= self._since_ms and line.stream in self._streams
        ]

    def _forget(self) -> None:
        for asked in self._ahead:
            asked.cancel()
            if asked.done() and not asked.cancelled():
                # This marks the error as retrieved. A lasting error occurs again at the next read.
                asked.exception()
        self._ahead.clear()


class Reader:
    """Reads logs chunk by chunk while they grow.

    Args:
        logs: finds the logs to read.
        streams: reads only these streams. None reads all streams.
        since_ms: reads only lines of this time or later, in milliseconds since 1970 by the clock of
            the host that wrote them.
        position: the `position` of another reader, whose reading this one continues.
    """

    def __init__(
        self,
        store: Store,
        logs: Finder,
        *,
        streams: Collection[Stream] | None = None,
        since_ms: int | None = None,
        position: Mapping[tuple[int, int], int] = MappingProxyType({}),
    ) -> None:
        self.store = store
        self._finder = logs
        self._streams = frozenset(streams or Stream)
        self._since_ms = since_ms
        self._start = position
        self._logs: dict[tuple[int, int], _Log] = {}
        self._look = 0

    @property
    def empty(self) -> bool:
        """Returns whether no log has been found so far."""
        return not self._logs

    @property
    def position(self) -> dict[tuple[int, int], int]:
        """The number of chunks read so far of each log, by its task and attempt. It is exact after
        `tail`, and when `new_lines` has yielded all its lines.
        """
        return {**self._start, **{key: log.sequence for key, log in self._logs.items()}}

    @property
    def has_earlier(self) -> bool:
        """Returns whether the logs have chunks before those that the last `tail` read."""
        return any(log.has_earlier for log in self._logs.values())

    async def new_lines(self, *, quick: bool = False) -> AsyncIterator[list[TaskLine]]:
        """Yields the lines written since the last call, in batches, in the order of their times.
        The lines of a task keep their order.

        Args:
            quick: reads only logs that are likely to have grown, and some other logs in turns, if
                there are many logs.
        """
        self._look += 1
        if not quick or self.empty or self._look % FIND_EVERY == 0:
            await self._find(quick=quick)
        by_task: dict[int, list[_Log]] = {}
        for log in self._worth_a_look() if quick else self._logs.values():
            log.asked = self._look
            by_task.setdefault(log.task, []).append(log)
        async for lines in self._together(
            [_Feed(self.store, logs, self._look) for logs in by_task.values()]
        ):
            yield lines

    async def tail(
        self, count: int, *, until_ms: int | None = None, most_bytes: int | None = None
    ) -> list[TaskLine]:
        """Returns the last `count` lines of all logs; `new_lines` continues after them.

        Args:
            until_ms: returns only lines of this time or earlier. `new_lines` continues at the end
                of the logs.
            most_bytes: reads no further back in a log once this number of bytes was read.
        """
        await self._find(quick=False)
        logs = list(self._logs.values())
        tails = await for_each(
            logs, lambda log: log.tail(self.store, count, until_ms, most_bytes), at_once=AT_ONCE
        )
        by_task: dict[int, list[TaskLine]] = {}
        for log, lines in zip(logs, tails, strict=True):
            by_task.setdefault(log.task, []).extend(lines)
        return _last_lines(list(heapq.merge(*by_task.values(), key=_time)), count)

    async def _find(self, *, quick: bool) -> None:
        found = await self._finder.find(self.store, quick=quick)
        new = [
            _Log(
                each,
                self._streams,
                self._since_ms or 0,
                self._start.get((each.task, each.attempt), 0),
            )
            for each in found
            if (each.task, each.attempt) not in self._logs
        ]
        if self._since_ms is not None:
            await for_each(new, lambda log: log.skip_old(self.store), at_once=AT_ONCE)
        for log in new:
            log.heard = self._look
            self._logs[log.task, log.attempt] = log
        if new:
            self._logs = dict(sorted(self._logs.items()))

    def _worth_a_look(self) -> list[_Log]:
        logs = list(self._logs.values())
        if len(logs) <= QUICK_LOOKS:
            return logs
        lively = {id(log) for log in logs if self._look - log.heard <= QUIET}
        quiet = sorted((log for log in logs if id(log) not in lively), key=lambda log: log.asked)
        chosen = lively | {
            id(log) for log in quiet[: max(QUICK_LOOKS // 4, QUICK_LOOKS - len(lively))]
        }
        return [log for log in logs if id(log) in chosen]

    async def _together(self, feeds: list["_Feed"]) -> AsyncIterator[list[TaskLine]]:
        await for_each(feeds, partial(_Feed.fill, ahead=1), at_once=AT_ONCE)
        while alive := [feed for feed in feeds if feed.lines]:
            if len(alive) == 1:
                yield alive[0].take(None)
            else:
                # No other line can come between the lines up to the earliest end of a batch.
                first = min(alive, key=lambda feed: feed.lines[-1].line.at_ms)
                upto = first.lines[-1].line.at_ms
                # Take this batch completely, even if its host's clock was set back.
                parts = [feed.take(None if feed is first else upto) for feed in alive]
                yield list(heapq.merge(*parts, key=_time))
            ahead = max(1, AT_ONCE // len(alive))
            await for_each(
                [feed for feed in alive if not feed.lines],
                partial(_Feed.fill, ahead=ahead),
                at_once=AT_ONCE,
            )


class _Feed:
    """The lines of one task, whose attempts are read one after the other."""

    def __init__(self, store: Store, logs: list[_Log], look: int) -> None:
        self._store = store
        self._logs = deque(logs)
        self._look = look
        self._ahead = 1
        #: The lines that were read from the store and not returned yet.
        self.lines: list[TaskLine] = []

    async def fill(self, ahead: int) -> None:
        """Reads until there is a line, or no more chunks.

        Args:
            ahead: the maximum number of chunks to request at once. The first request is for one
                chunk, which is enough to follow a log. The number doubles after each chunk.
        """
        while self._logs and not self.lines:
            lines = await self._logs[0].next(self._store, min(self._ahead, ahead))
            if lines is None:
                self._logs.popleft()
                self._ahead = 1
            else:
                self._ahead *= 2
                self._logs[0].heard = self._look
                self.lines = lines

    def take(self, upto: int | None) -> list[TaskLine]:
        """Removes and returns the lines up to that time, or all lines."""
        end = len(self.lines)
        if upto is not None:
            end = next((at for at, entry in enumerate(self.lines) if entry.line.at_ms > upto), end)
        taken, self.lines = self.lines[:end], self.lines[end:]
        return taken


def _time(entry: TaskLine) -> int:
    return entry.line.at_ms


def _last_lines(lines: list[TaskLine], count: int) -> list[TaskLine]:
    """Returns the last `count` complete lines. Each line has all of its pieces, even if lines of
    other logs are between them.
    """
    wanted: list[TaskLine] = []
    #: For each stream: whether the line whose pieces the loop now visits is one of the last `count`
    #: lines. The loop visits the pieces from the end to the start.
    within: dict[tuple[int, int, Stream], bool] = {}
    for entry in reversed(lines):
        key = (entry.task, entry.attempt, entry.line.stream)
        if not entry.line.goes_on or key not in within:
            within[key] = count > 0
            count -= 1
        if within[key]:
            wanted.append(entry)
        elif not any(within.values()):
            break
    return wanted[::-1]
