"""Fetches bundles from the store, verifies them, caches them for later attempts and unpacks them
into a program's directory. The bundle of an array contains the table with a row for each task.
"""

import asyncio
import errno
import gzip
import hashlib
import json
import os
import shutil
import stat
import threading
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import IO

from obstore.exceptions import BaseError

from iris.activities.host.files.caches import DISK_FAULT, Cache, is_disk_full
from iris.activities.host.files.unpacking import NoArchive, Unsafe, unpack
from iris.activities.host.runtimes.base import STORE_FAULT, HostFault, JobFault
from iris.activities.host.runtimes.process.job_users import acting_as
from iris.activities.host.runtimes.threads import Stopped, in_thread
from iris.messages.task import RunTask
from iris.model import store_paths
from iris.model.errors import first_line
from iris.model.job.arrays import ROWS_FILE
from iris.model.job.bundles import MAX_BUNDLE, Bundle
from iris.model.units import format_bytes
from iris.storage.object_store import Store

#: The delays before each retry of a call to the store, in seconds: about half a minute in total.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
#: The name of the fault if a bundle is damaged in the store or in the cache.
BUNDLE_FAULT = "bundle"
#: The shell's exit code for a command that was found but cannot be executed.
_CANNOT_EXECUTE = 126
#: The system's errors about a path in the bundle. Every other host would report them too.
_ERRORS_OF_PATHS = {
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.EINVAL,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
}
_BLOCK = 1024 * 1024


class _Damaged(Exception):
    """An archive that is unreadable or does not match the bundle's SHA-256."""


class Bundles:
    """Fetches and unpacks the bundles of programs on a host.

    Args:
        cache_dir: the directory of the cache, which other agents of this machine may share.
        limit: the size limit of the cache, in bytes.
        pauses: delays before each retry of the store, in seconds.
    """

    def __init__(
        self, store: Store, cache_dir: Path, limit: int, pauses: Sequence[float] = PAUSES
    ) -> None:
        self._store = store
        self._cache = Cache(cache_dir, limit)
        self._pauses = pauses

    async def unpack(self, bundle: Bundle, into: Path, owner: int | None = None) -> None:
        """Unpacks the bundle into a directory, which is created if it does not exist.

        Args:
            owner: the uid that gets the files; None for the agent's uid.

        Raises:
            JobFault: the store does not have the bundle, or the bundle cannot be unpacked
                safely.
            HostFault: the store does not answer, the object in the store or the cached copy is
                damaged, or the disk is full.
        """
        try:
            await self._unpack(bundle, into, owner)
        except _Damaged:
            try:
                await self._unpack(bundle, into, owner)
            except _Damaged as damage:
                reason = (
                    f"the copy of bundle {bundle.sha256[:12]} in {self._cache.directory} is"
                    f" damaged: {damage}"
                )
                raise HostFault(reason, BUNDLE_FAULT) from None

    async def _unpack(self, bundle: Bundle, into: Path, owner: int | None) -> None:
        """Fetches the bundle if the cache does not have it, and unpacks the cached copy."""
        with await self._cache.use(bundle.sha256, lambda place: self._get(bundle, place)) as entry:
            try:
                await in_thread(
                    lambda stop: _unpack(entry.path / "bundle.tar", bundle, into, owner, stop)
                )
            except _Damaged:
                self._cache.discard(entry)
                raise

    async def _get(self, bundle: Bundle, place: Path) -> None:
        """Fetches the archive into this directory, uncompresses it and verifies it."""
        packed, archive = place / "bundle.tar.gz", place / "bundle.tar"
        for further in (True, False):
            await self._fetch(bundle, packed)
            try:
                await in_thread(lambda stop: _uncompress(packed, archive, bundle, stop))
            except _Damaged as damage:
                if not further:
                    reason = (
                        f"bundle {bundle.sha256[:12]} in {self._store.url} is damaged: {damage}"
                    )
                    raise HostFault(reason, BUNDLE_FAULT) from None
            else:
                return
            finally:
                packed.unlink(missing_ok=True)

    async def _fetch(self, bundle: Bundle, file: Path) -> None:
        for pause in (*self._pauses, None):
            try:
                if await self._store.get_file(store_paths.bundle(bundle.sha256), file):
                    return
            except (OSError, BaseError) as error:
                if isinstance(error, OSError) and is_disk_full(error):
                    raise
                if pause is None:
                    reason = first_line(error)
                    raise HostFault(
                        f"the store {self._store.url} does not answer: {reason}", STORE_FAULT
                    ) from None
                await asyncio.sleep(pause)
            else:
                raise JobFault(
                    f"bundle {bundle.sha256[:12]} is not in the store {self._store.url} (any more);"
                    " submit the job again",
                    _CANNOT_EXECUTE,
                )


def _uncompress(packed: Path, archive: Path, bundle: Bundle, stop: threading.Event) -> None:
    """Writes the uncompressed archive, but never more bytes than a bundle may have. Raises
    `_Damaged` if the data is not the archive of this bundle.
    """
    most = min(bundle.size or MAX_BUNDLE, MAX_BUNDLE)
    size = 0
    with archive.open("w+b") as out, packed.open("rb") as raw, gzip.GzipFile(fileobj=raw) as blocks:
        while True:
            if stop.is_set():
                raise Stopped
            try:
                block = blocks.read(_BLOCK)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise _Damaged(str(error)) from None
            if not block:
                break
            size += len(block)
            if size > most:
                raise _Damaged(f"the archive is larger than the {format_bytes(most)} of the bundle")
            out.write(block)
        _verify(out, bundle, stop)
        out.flush()
        # An entry that is marked complete must be complete even after a power failure.
        os.fsync(out.fileno())


def _verify(archive: IO[bytes], bundle: Bundle, stop: threading.Event) -> None:
    """Raises `_Damaged` if the file is not the archive of this bundle."""
    content = hashlib.sha256()
    archive.seek(0)
    while block := archive.read(_BLOCK):
        if stop.is_set():
            raise Stopped
        content.update(block)
    if content.hexdigest() != bundle.sha256:
        raise _Damaged(
            f"the archive's SHA-256 is {content.hexdigest()[:12]}, not that of the bundle"
        )


def _open(archive: Path) -> IO[bytes]:
    """Opens a cached copy. Raises `_Damaged` if a program has replaced it by something that is not
    a regular file of the size of a bundle.
    """
    try:
        file = os.fdopen(
            os.open(archive, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
        )
    except OSError as error:
        raise _Damaged(f"the archive cannot be opened: {error.strerror}") from None
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BUNDLE:
        file.close()
        raise _Damaged("the archive is not a regular file, or is larger than any bundle")
    return file


def _unpack(
    archive: Path, bundle: Bundle, into: Path, owner: int | None, stop: threading.Event
) -> None:
    """Verifies that the cached archive is that of the bundle, and unpacks it into the directory."""
    with _open(archive) as file:
        try:
            _verify(file, bundle, stop)
        except OSError as error:
            raise _Damaged(f"the archive cannot be read: {error.strerror}") from None
        try:
            with acting_as(owner):
                unpack(file, into, stop)
        except NoArchive as error:
            raise JobFault(
                f"the bundle cannot be unpacked: it is not a tar archive: {error}", _CANNOT_EXECUTE
            ) from None
        except Unsafe as error:
            raise JobFault(f"the bundle cannot be unpacked: {error}", _CANNOT_EXECUTE) from None
        except OSError as error:
            if is_disk_full(error):
                raise HostFault(f"the disk of this host is full: {into}", DISK_FAULT) from None
            if error.errno in _ERRORS_OF_PATHS:
                reason = (
                    f"the bundle cannot be unpacked: {error.filename!r} cannot be created:"
                    f" {error.strerror}"
                )
                raise JobFault(reason, _CANNOT_EXECUTE) from None
            raise HostFault(f"{into} cannot be written to: {error}", DISK_FAULT) from None


async def row_of(bundles: Bundles, task: RunTask, directory: Path) -> dict[str, str]:
    """Returns the task's row of its array's table, as values by column; empty if the array has no
    table.

    Args:
        directory: the directory in which the table is unpacked and removed again.

    Raises:
        JobFault: the store does not have the table, or the table does not have the row.
        HostFault: the store does not answer, or the disk is full.
    """
    if task.array is None or task.array.table is None:
        return {}
    index = task.index
    await bundles.unpack(task.array.table, directory)
    row = await in_thread(lambda _: _line(directory / ROWS_FILE, index))
    if not isinstance(row, dict) or not all(isinstance(value, str) for value in row.values()):
        raise JobFault(
            f"the stored parameter table of this job has no row for task {index}; submit the job"
            " again",
            _CANNOT_EXECUTE,
        )
    return row


def _line(file: Path, index: int) -> object:
    """Returns the value in the line of the table, or None if the table has no such line. Then
    removes the table.
    """
    try:
        with file.open(encoding="utf-8") as lines:
            return json.loads(next(islice(lines, index, None), "null"))
    except (OSError, ValueError):
        return None
    finally:
        shutil.rmtree(file.parent, ignore_errors=True)
