"""Reads parts of a job's log for its pages: the last lines, the lines before a place, and new lines
from a position on.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from iris.client.logs.entries import Entries, LogEntry
from iris.client.logs.follow import reading_from
from iris.client.logs.reading import TaskLine
from iris.client.logs.stored import LogReader
from iris.model.errors import InvalidValue
from iris.storage.log_format import Stream
from iris.storage.object_store import Store

#: The limits on lines and on characters of a part of a log that a page shows.
MOST_LINES, MOST_CHARACTERS = 1_000, 400_000
#: The limit on characters of the new lines that are sent to a page at once. It is more than a
#: person can read in a second, and so little that it does not delay the control plane's other work.
MOST_AT_ONCE = 100_000
#: The limit on lines that one request searches for a text.
MOST_SEARCHED = 20_000
#: The limit on bytes of all logs together that one request reads. At least one chunk of each log is
#: read.
MOST_BYTES = 8 * 1024 * 1024
#: The maximum number of characters of one line that count towards `MOST_CHARACTERS` and
#: `MOST_AT_ONCE`, because a page cuts longer lines.
_COUNTED = 8_000


class Selection(NamedTuple):
    """Selects the log lines that a page shows."""

    job: str
    #: The id of the first run of the job's workflow.
    run_id: str
    #: The index of the task; None for all tasks.
    task: int | None
    #: The number of tasks whose logs are read.
    tasks: int = 1
    attempt: int | None = None
    streams: frozenset[Stream] | None = None
    #: The text that a line must contain, in upper or lower case; empty for all lines.
    find: str = ""

    def takes(self, entry: LogEntry) -> bool:
        return not self.find or self.find.casefold() in entry.text.casefold()

    def reader(self, store: Store, position: "Position | None" = None) -> LogReader:
        """Returns a reader of the selected logs."""
        return LogReader(
            store,
            self.job,
            self.run_id,
            self.task,
            self.attempt,
            streams=self.streams,
            position=position or {},
        )


Position = Mapping[tuple[int, int], int]


class Place(NamedTuple):
    """A place in a log. Of the lines that were written at `until_ms`, in milliseconds since 1970,
    the last `skip` lines are behind this place, as are all later lines.
    """

    until_ms: int
    skip: int

    def __str__(self) -> str:
        return f"{self.until_ms}~{self.skip}"


class LogPart(NamedTuple):
    """Consecutive lines of a log."""

    entries: Sequence[LogEntry]
    #: The place in the log where the part before this one ends; None if there is no earlier part.
    earlier: Place | None
    #: The time of the earliest line that was read; None if there was no line. Lines before it were
    #: not searched.
    since: datetime | None
    #: For each task and attempt, the number of chunks of its log that were read.
    position: Position


def parse_place(text: str) -> Place | None:
    """Parses a place in an address; None if the text is empty.

    Raises:
        InvalidValue: it is no place.
    """
    if not text:
        return None
    until, _, skip = text.partition("~")
    if not (until.isdecimal() and skip.isdecimal() and len(text) < 40):
        raise InvalidValue("before", text, "is no place in a log", "open the log at its end")
    return Place(int(until), int(skip))


def position_text(position: Position) -> str:
    """Returns a position as the id of an event: `TASK.ATTEMPT.CHUNKS`, joined by `_`."""
    return "_".join(f"{task}.{attempt}.{chunks}" for (task, attempt), chunks in position.items())


def parse_position(text: str) -> Position | None:
    """Parses a position; None if the text is not one."""
    found = {}
    for part in text.split("_"):
        numbers = part.split(".")
        if len(numbers) != 3 or not all(each.isdecimal() and len(each) < 12 for each in numbers):
            return None
        task, attempt, chunks = map(int, numbers)
        found[task, attempt] = chunks
    return found


async def last_part(
    store: Store, wanted: Selection, before: Place | None = None, most: int = MOST_LINES
) -> LogPart:
    """Returns the last lines of the log, or the last lines before a place.

    Raises:
        Unreachable: the store does not answer.
    """
    reader = wanted.reader(store)
    skip = before.skip if before is not None else 0
    count = MOST_SEARCHED if wanted.find else most
    with reading_from(store, f"the log of {wanted.job}"):
        lines = await reader.tail(
            count + skip,
            until_ms=before.until_ms if before is not None else None,
            most_bytes=MOST_BYTES // max(1, wanted.tasks),
        )
    whole = sum(not each.line.goes_on for each in lines)
    is_cut = reader.has_earlier or whole >= count + skip
    while skip and lines and before is not None and lines[-1].line.at_ms == before.until_ms:
        lines.pop()
        skip -= 1
    entries, first = _last_entries(lines, wanted, most)
    earlier = None
    if lines and (first or is_cut):
        at = lines[first].line.at_ms
        same = sum(each.line.at_ms == at for each in lines[first:])
        again = before.skip if before is not None and before.until_ms == at else 0
        earlier = Place(at, same + again)
    since = datetime.fromtimestamp(lines[0].line.at_ms / 1000, UTC) if lines else None
    return LogPart(entries, earlier, since, reader.position)


def _last_entries(
    lines: Sequence[TaskLine], wanted: Selection, most: int
) -> tuple[list[LogEntry], int]:
    """Returns the last entries of these lines that the selection takes and the page has space for.

    Returns:
        The entries, and the place in `lines` of the first one; 0 if all of them are returned.
    """
    joined, found = Entries(), list[tuple[int, LogEntry]]()
    for place, line in enumerate(lines):
        found += [(place, entry) for entry in joined.add([line]) if wanted.takes(entry)]
    found += [(len(lines) - 1, entry) for entry in joined.begun if wanted.takes(entry)]
    characters = 0
    shown: deque[tuple[int, LogEntry]] = deque()
    for place, entry in reversed(found):
        characters += min(len(entry.text), _COUNTED)
        if shown and (len(shown) >= most or characters > MOST_CHARACTERS):
            return [each for _, each in shown], shown[0][0]
        shown.appendleft((place, entry))
    return [each for _, each in shown], 0


class _Newest:
    """Keeps the newest lines of a log, up to the limits on what is sent to a page at once."""

    def __init__(self) -> None:
        self.entries: deque[LogEntry] = deque()
        self.left_out = 0
        self._characters = 0

    def add(self, entry: LogEntry) -> None:
        self.entries.append(entry)
        self._characters += min(len(entry.text), _COUNTED)
        while len(self.entries) > 1 and (
            len(self.entries) > MOST_LINES or self._characters > MOST_AT_ONCE
        ):
            self._characters -= min(len(self.entries.popleft().text), _COUNTED)
            self.left_out += 1


class News(NamedTuple):
    """The lines of a log that were written since the last check."""

    entries: Sequence[LogEntry]
    #: The lines whose end has not been written yet.
    begun: Sequence[LogEntry]
    #: The number of new lines that are left out before `entries`, because there are too many.
    left_out: int
    position: Position


async def news(
    reader: LogReader, wanted: Selection, ended: "asyncio.Future[None]", interval: float
) -> AsyncIterator[News]:
    """Yields the new lines after each interval, also if there are none, until the job has ended and
    all its lines are read.

    Raises:
        Unreachable: the store does not answer.
    """
    joined = Entries()
    while True:
        last = ended.done()
        kept = _Newest()
        with reading_from(reader.store, f"the log of {wanted.job}"):
            async for lines in reader.new_lines(quick=not last):
                for entry in joined.add(lines):
                    if wanted.takes(entry):
                        kept.add(entry)
        begun = [entry for entry in joined.begun if wanted.takes(entry)]
        yield News(list(kept.entries), begun, kept.left_out, reader.position)
        if last:
            return
        await asyncio.wait({ended}, timeout=interval)
