"""Stores the audit files of Temporal's servers, and reads what is stored."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

from iris.access.audit import (
    Audit,
    AuditFile,
    AuditQuestion,
    chunk_path,
    day_folder,
    file_of,
    found_in,
)
from iris.client.logs.follow import reading_from
from iris.concurrency import for_each, pause
from iris.model import store_paths
from iris.model.errors import first_line
from iris.processes.process import locked
from iris.storage.files import write_whole
from iris.storage.object_store import STORE_ERRORS, Store

logger = logging.getLogger(__name__)

#: The length of the period whose entries are read if the caller gives no begin.
DEFAULT_TIME = timedelta(days=1)
#: The interval between two checks of a server's audit files for new entries, which are then copied
#: to the store.
SHIP_INTERVAL = timedelta(seconds=10)
#: How long a server keeps an audit file on its own machine. The time begins after the hour whose
#: entries the file contains.
KEPT_FOR = timedelta(days=7)
#: The maximum size in bytes of an object with audit entries that Iris writes to the store.
MOST_CHUNK = 4 * 1024 * 1024
#: The maximum size in bytes of an object with audit entries that is read. Iris writes only smaller
#: ones.
MOST_READ = 2 * MOST_CHUNK
#: The number of objects that are read at the same time.
_AT_ONCE = 16


async def read_audit(store: Store, cluster: str, question: AuditQuestion) -> Audit:
    """Returns the stored entries that the question asks for.

    Raises:
        Unreachable, IrisError: the store does not answer.
    """
    with reading_from(store, f"the audit of cluster {cluster}"):
        days = await store.days(store_paths.audit(cluster))
        folders = [day_folder(cluster, day) for day in days if _overlaps(day, question)]
        paths = [path for folder in folders for path in await store.objects(folder)]
        contents = await for_each(paths, partial(store.get, most=MOST_READ), at_once=_AT_ONCE)
    lines = (line for content in contents for line in (content or b"").splitlines())
    return found_in(lines, question)


async def ship_until(stop: asyncio.Event, store: Store, cluster: str, directory: Path) -> None:
    """Stores new entries every few seconds, and the last ones at the stop. If the store does not
    answer, the entries wait on the disk.

    Raises:
        Rejected: another process ships this directory.
    """
    with locked(directory, f"another process ships the audit in {directory}"):
        last = away = False
        while not last:
            last = stop.is_set()
            try:
                await ship(store, cluster, directory, datetime.now(UTC))
            except STORE_ERRORS as error:
                if not away:
                    logger.warning("the audit in %s waits: %s", directory, first_line(error))
                away = True
            else:
                if away:
                    logger.info("the audit in %s is stored again", directory)
                away = False
            if not last:
                await pause(stop, SHIP_INTERVAL)


async def ship(store: Store, cluster: str, directory: Path, now: datetime) -> None:
    """Stores what the servers have appended to the files of this directory, and deletes old files
    that are stored. If it is interrupted, the next call stores the same bytes at the same path.

    Raises:
        OSError, BaseError: a file cannot be read, or the store does not answer.
    """
    for path in sorted(directory.iterdir()):
        if (file := file_of(path.name)) is None:
            continue
        mark = path.with_suffix(".shipped")
        shipped = await asyncio.to_thread(_shipped, mark)
        for content in _chunks(path, shipped):
            await store.put(chunk_path(cluster, file, shipped), content)
            shipped += len(content)
            await asyncio.to_thread(write_whole, mark, f"{shipped}\n")
        if _end_of(file) + KEPT_FOR < now and shipped == path.stat().st_size:
            path.unlink()
            mark.unlink(missing_ok=True)


def _chunks(path: Path, begin: int) -> Iterator[bytes]:
    """Yields whole lines from this byte on. A line whose end is not written yet comes later."""
    with path.open("rb") as file:
        file.seek(begin)
        while content := file.read(MOST_CHUNK):
            whole = content[: content.rfind(b"\n") + 1]
            if not whole:
                return
            yield whole
            file.seek(len(whole) - len(content), 1)


def _shipped(mark: Path) -> int:
    """Returns the number of bytes of a file that are stored."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return int(mark.read_text())
    return 0


def _end_of(file: AuditFile) -> datetime:
    begin = datetime(file.day.year, file.day.month, file.day.day, file.hour, tzinfo=UTC)
    return begin + timedelta(hours=1)


def _overlaps(day: date, question: AuditQuestion) -> bool:
    return question.since.astimezone(UTC).date() <= day <= question.until.astimezone(UTC).date()
