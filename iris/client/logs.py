"""Reading logs from the object store: by position, so that a reader that goes on loses and repeats nothing.

Needs neither the host nor the control plane: the store has it all.
"""

from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from iris import names
from iris.logs import LogLine, decode
from iris.store import Store


class TaskLine(NamedTuple):
    """A line and whose it is."""

    task: int
    attempt: int
    line: LogLine


class _Cursor:
    """How far one attempt has been read."""

    def __init__(self, task: int, attempt: int, prefix: str) -> None:
        self.task = task
        self.attempt = attempt
        self._prefix = prefix
        self._sequence = 0

    async def next(self, store: Store) -> list[TaskLine] | None:
        """The lines of the next chunk, or None when there is none yet."""
        chunk = await store.get(names.log_chunk(self._prefix, self._sequence))
        if chunk is None:
            return None
        self._sequence += 1
        return self._lines(chunk)

    async def tail(self, store: Store, count: int) -> list[TaskLine]:
        """The last lines there are now, and go on behind them."""
        chunks = await store.objects(self._prefix)
        self._sequence = len(chunks)
        found: list[TaskLine] = []
        for path in reversed(chunks):
            found = self._lines(await store.get(path) or b"") + found
            if sum(not entry.line.goes_on for entry in found) > count:
                break
        return _last_lines(found, count)

    def _lines(self, chunk: bytes) -> list[TaskLine]:
        return [TaskLine(task=self.task, attempt=self.attempt, line=line) for line in decode(chunk)]


class LogReader:
    """The output of one run of a job, chunk by chunk.

    Args:
        task: only this task's; None: all.
        attempt: only this attempt's; None: all.
    """

    def __init__(self, store: Store, job: str, run_id: str, task: int | None = None, attempt: int | None = None) -> None:
        self._store = store
        self._job = job
        self._run_id = run_id
        self._task = task
        self._attempt = attempt
        self._cursors: dict[tuple[int, int], _Cursor] = {}

    async def new_lines(self) -> AsyncIterator[list[TaskLine]]:
        """Everything written since the last call, in pieces; within a piece by time, and every task's lines in their order."""
        await self._find_attempts()
        live = list(self._cursors.values())
        while live:
            chunks = [(cursor, await cursor.next(self._store)) for cursor in live]
            live = [cursor for cursor, chunk in chunks if chunk is not None]
            lines = [line for _, chunk in chunks for line in chunk or ()]
            if lines:
                yield sorted(lines, key=lambda entry: entry.line.at_ms)

    async def tail(self, count: int) -> list[TaskLine]:
        """The last lines of all that there is now; `new_lines` goes on behind them."""
        await self._find_attempts()
        found = [line for cursor in self._cursors.values() for line in await cursor.tail(self._store, count)]
        return _last_lines(sorted(found, key=lambda entry: entry.line.at_ms), count)

    async def _find_attempts(self) -> None:
        root = names.job_logs(self._job, self._run_id)
        tasks = [self._task] if self._task is not None else _numbers(await self._store.folders(root))
        for task in tasks:
            for attempt in _numbers(await self._store.folders(f"{root}/{task}")):
                if self._attempt in (None, attempt) and (task, attempt) not in self._cursors:
                    prefix = names.attempt_logs(self._job, self._run_id, task, attempt)
                    self._cursors[task, attempt] = _Cursor(task, attempt, prefix)
        self._cursors = dict(sorted(self._cursors.items()))


def _numbers(folders: Iterable[str]) -> list[int]:
    return sorted(int(name) for name in folders if name.isdecimal())


def _last_lines(lines: list[TaskLine], count: int) -> list[TaskLine]:
    """The last `count` whole lines, each with all of its pieces."""
    start = len(lines)
    while start > 0 and count >= 0:
        start -= 1
        if not lines[start].line.goes_on:
            count -= 1
    return lines[start + 1 :] if count < 0 else lines[start:]
