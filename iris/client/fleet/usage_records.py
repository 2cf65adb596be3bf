"""Reads the records of use from the store, and merges the many objects of a day into few."""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import date, datetime
from functools import partial

from iris.concurrency import for_each
from iris.model import store_paths
from iris.storage.garbage import Stored
from iris.storage.object_store import Store
from iris.usage.lines import day_folder, day_of, from_line, is_guess, object_path
from iris.usage.records import DroppedUses, Record, Use, times_of

#: Small objects with records of use are merged until the merged object has this size in bytes.
#: Objects of at least this size are not merged again.
MERGED_BYTES = 8 * 1024 * 1024
#: The maximum number of bytes that are read of one object. Objects of Iris are smaller, but another
#: program may have written an object.
MOST_BYTES = 4 * MERGED_BYTES
#: The maximum number of objects with records of the present day. If there are more, they are merged
#: before the day is over.
MOST_OBJECTS = 100
#: The number of objects that are read at the same time.
_AT_ONCE = 16


class StoredUses:
    """Iterates over the stored records of placements and slices that existed in a period. Each
    record comes once. An instance can be iterated over only once.

    Args:
        since, until: the period begins at `since` and ends just before `until`.
    """

    def __init__(self, store: Store, cluster: str, since: datetime, until: datetime) -> None:
        self._store = store
        self._cluster = cluster
        self._since = since
        self._until = until
        #: The number of lines read so far that contain no record which this version of Iris knows.
        self.unreadable = 0
        #: The number of lost records of use in the period, according to the `DroppedUses` records
        #: read so far.
        self.dropped = 0

    async def __aiter__(self) -> AsyncIterator[Use]:
        """Yields the records by the day on which the use ended, in no order within a day.

        Raises:
            OSError, BaseError: the store does not answer.
        """
        seen: set[str] = set()
        # Records that another one with the same id replaces, if there is one.
        guesses: dict[str, Record] = {}
        for day in await self._days():
            async for record in self._of_day(day):
                if record.id in seen or not self._overlaps(record):
                    continue
                if is_guess(record):
                    guesses[record.id] = record
                    continue
                seen.add(record.id)
                if isinstance(record, DroppedUses):
                    self.dropped += record.count
                else:
                    yield record
        for record in guesses.values():
            if record.id not in seen and not isinstance(record, DroppedUses):
                yield record

    async def _days(self) -> list[date]:
        """Returns the days that can have such records. A use that began before `until` may have
        ended on any later day.
        """
        first = day_of(self._since)
        return [
            day
            for day in await self._store.days(store_paths.usage_records(self._cluster))
            if day >= first
        ]

    async def _of_day(self, day: date) -> AsyncIterator[Record]:
        paths = await self._store.objects(day_folder(self._cluster, day))
        for start in range(0, len(paths), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            contents = await for_each(some, partial(_content, self._store), at_once=_AT_ONCE)
            for line in (line for content in contents for line in content.splitlines()):
                record = from_line(line)
                if record is None:
                    self.unreadable += bool(line.strip())
                else:
                    yield record

    def _overlaps(self, record: Record) -> bool:
        began, ended = times_of(record)
        return began < self._until and ended >= self._since


def read_uses(store: Store, cluster: str, since: datetime, until: datetime) -> StoredUses:
    """Returns the stored records of the uses that overlap this time, to be iterated over."""
    return StoredUses(store, cluster, since, until)


async def merge_objects(store: Store, cluster: str, now: datetime) -> int:
    """Merges the objects of each past day into few, and those of the present day if they are many.
    Returns the number of objects that were merged.

    A merged object is written before its parts are deleted, and contains each of their records. So
    nothing is lost if this is ended at any place, or done by several processes at the same time:
    some records are then stored twice, until the next call.

    Raises:
        OSError, BaseError: the store does not answer.
    """
    days: dict[str, list[Stored]] = {}
    for each in await store.stored(store_paths.usage_records(cluster)):
        if each.size < MERGED_BYTES:
            days.setdefault(each.path.rpartition("/")[0], []).append(each)
    today, merged = day_folder(cluster, day_of(now)), 0
    for folder, objects in sorted(days.items()):
        if len(objects) > (MOST_OBJECTS if folder >= today else 1):
            for group in _groups(objects):
                merged += await _merge(store, folder, group)
    return merged


def _groups(objects: Iterable[Stored]) -> list[list[str]]:
    """Returns the paths of the objects in groups. All groups but the last have the size of a merged
    object.
    """
    groups: list[list[str]] = []
    size = MERGED_BYTES
    for each in sorted(objects):
        if size >= MERGED_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(each.path)
        size += each.size
    return groups


async def _merge(store: Store, folder: str, paths: Sequence[str]) -> int:
    """Merges objects into one. Returns their number.

    An object with a line that this version does not know stays as it is.
    """
    contents = await for_each(paths, partial(_content, store), at_once=_AT_ONCE)
    lines: dict[str, tuple[bool, bytes]] = {}
    parts = []
    for path, content in zip(paths, contents, strict=True):
        own = content.splitlines(keepends=True)
        records = [from_line(line) for line in own]
        if not own or any(record is None for record in records):
            continue
        parts.append(path)
        for record, line in zip(records, own, strict=True):
            assert record is not None
            if record.id not in lines or (lines[record.id][0] and not is_guess(record)):
                lines[record.id] = is_guess(record), line
    if len(parts) < 2:
        return 0
    whole = b"".join(line for _, (_, line) in sorted(lines.items()))
    to = object_path(folder, whole)
    await store.put(to, whole)
    await store.delete([path for path in parts if path != to])
    return len(parts)


async def _content(store: Store, path: str) -> bytes:
    """Returns the content of an object; nothing if another process has deleted it."""
    return await store.get(path, most=MOST_BYTES) or b""
