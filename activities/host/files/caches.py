"""Keeps a cache of files that take long to get. All agents of one machine share the directory of
the cache, and its size is limited.

    entries/KEY.lock       locked exclusively by a process that makes or removes the entry, and
                           shared by all processes that use it
    entries/KEY/TOKEN/     the content; each try has a new token, so that an earlier try that still
                           runs cannot write into it
    entries/KEY/complete   written last; an entry without this file is left over from a failed try,
                           and the next try removes it

The locks are kernel locks (`flock`) on open file descriptors. If the shim of a program inherits
such a descriptor, the entry stays in use while the program lives, even if the agent dies.
"""

import asyncio
import errno
import fcntl
import os
import secrets
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from pydantic import Field, ValidationError

from iris.activities.host.runtimes.base import HostFault
from iris.activities.host.runtimes.cleanup import trees
from iris.activities.host.runtimes.threads import in_thread
from iris.model.frozen import Frozen

#: The name of the fault if a host's disk is full or cannot be used.
DISK_FAULT = "disk"
#: The first and the longest delay between two tries to take a lock that another process holds, in
#: seconds.
LOOK_AFTER, LOOK_EVERY = 0.01, 0.25
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


def is_disk_full(error: OSError) -> bool:
    """Returns True if the error says that the disk, or the user's quota on it, is full."""
    return error.errno in _DISK_FULL


class Complete(Frozen):
    """The content of the file `complete` of a cache entry. The file's modification time is the time
    of the entry's last use.
    """

    #: The name of the directory with the entry's content. The pattern excludes paths that lead out
    #: of the entry.
    token: str = Field(pattern="^[0-9a-f]{12}$")
    #: The disk usage of the entry's content, in bytes.
    size: int = Field(ge=0)


class CacheEntry:
    """An entry of the cache. The cache does not remove it until it is released.

    Args:
        lock: the file descriptor that holds the lock. A process that inherits the descriptor also
            uses the entry.
        made: True if the entry did not exist before.
    """

    def __init__(self, path: Path, lock: int, *, made: bool) -> None:
        self.path = path
        self.lock = lock
        self.made = made

    def release(self) -> None:
        """Releases the entry in this process. Must be called only once."""
        os.close(self.lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class _Kept(NamedTuple):
    """A complete entry of the cache, which `Cache.trim` may remove."""

    used_at: float
    key: str
    size: int


class Cache:
    """A cache of entries by key. Removes the least recently used entries when their total size is
    above the limit.

    Args:
        directory: the directory of the cache, which is created if it does not exist. The cache owns
            only the folder `entries` in it.
        limit: the limit of the size of all complete entries, in bytes. Entries in use are never
            removed.
        mode: the mode of the directories that the cache creates; None for the umask's default.
    """

    def __init__(self, directory: Path, limit: int, *, mode: int | None = None) -> None:
        self.directory = directory
        self.limit = limit
        self._mode = mode
        self._entries = directory / "entries"

    async def use(
        self,
        key: str,
        make: Callable[[Path], Awaitable[None]],
        waiting: Callable[[], None] = lambda: None,
    ) -> CacheEntry:
        """Returns the entry of this key. If it does not exist, `make` makes it in an empty
        directory.

        Args:
            key: the name of the entry, which must be valid as the name of a file.
            waiting: called once if another task or process is making the entry.

        Raises:
            HostFault: the disk is full, or the cache cannot be written to.
            Exception: any error of `make`; nothing that it wrote is left.
        """
        try:
            return await self._use(key, make, waiting)
        except OSError as error:
            reason = f"the cache of this host cannot be used: {error}"
            if is_disk_full(error):
                reason = f"the disk of this host is full: {self.directory}"
            unable = HostFault(reason, DISK_FAULT)
        except HostFault as error:
            unable = error
        if unable.fault == DISK_FAULT:
            with suppress(OSError):
                await self.trim(0)  # frees the disk for the next try
        raise unable

    def make_directory(self, path: Path) -> None:
        """Creates a directory of the cache, with the cache's mode."""
        path.mkdir(parents=True, exist_ok=True)
        if self._mode is not None:
            path.chmod(self._mode)

    async def measure(self, entry: CacheEntry) -> None:
        """Records the current size of an entry that grows while it is used."""
        marker = entry.path.parent / "complete"
        complete = Complete(
            token=entry.path.name, size=await in_thread(lambda _: size_of(entry.path))
        )
        _put(marker, complete)

    def discard(self, entry: CacheEntry) -> None:
        """Marks an entry, which is still in use here, as invalid.

        The next user waits until the entry is not in use any more, and makes it again.
        """
        self._marker(entry.path.parent.name).unlink(missing_ok=True)

    async def trim(self, limit: int | None = None) -> None:
        """Removes entries that are not in use until the others fit the limit, the least recently
        used first.

        Remains of failed tries are always removed.
        """
        await in_thread(lambda stop: self._trim(self.limit if limit is None else limit, stop))

    # -- inside ------------------------------------------------------------------------------------

    async def _use(
        self, key: str, make: Callable[[Path], Awaitable[None]], waiting: Callable[[], None]
    ) -> CacheEntry:
        self.make_directory(self._entries)
        made, reported, pause = False, False, LOOK_AFTER
        while True:
            # Only the maker of a missing entry takes an exclusive lock. Users of a complete entry
            # share the lock.
            how = fcntl.LOCK_EX if self._complete(key) is None else fcntl.LOCK_SH
            lock = self._take(key, how)
            if lock is None:
                if not reported:
                    reported = True
                    waiting()
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, LOOK_EVERY)
                continue
            entry = None
            try:
                complete = self._complete(key)
                if (complete is None) != (how == fcntl.LOCK_EX):
                    continue  # the entry was made or removed before the lock was taken
                if complete is None:
                    await self._make(key, make)
                    made = True
                    continue  # the next round takes the shared lock
                os.utime(self._marker(key))
                if made:
                    await self.trim()
                entry = CacheEntry(self._entries / key / complete.token, lock, made=made)
                return entry
            finally:
                if entry is None:
                    os.close(lock)

    async def _make(self, key: str, make: Callable[[Path], Awaitable[None]]) -> None:
        home = self._entries / key
        await in_thread(lambda _: trees.remove(home))
        complete = False
        try:
            place = home / secrets.token_hex(6)
            self.make_directory(home)
            place.mkdir()
            await make(place)
            size = await in_thread(lambda _: size_of(place))
            _put(self._marker(key), Complete(token=place.name, size=size))
            complete = True
        finally:
            if not complete:
                await in_thread(lambda _: trees.remove(home))

    def _marker(self, key: str) -> Path:
        return self._entries / key / "complete"

    def _complete(self, key: str) -> Complete | None:
        with suppress(FileNotFoundError, ValidationError):
            return Complete.model_validate_json(self._marker(key).read_bytes())
        return None

    def _take(self, key: str, how: int) -> int | None:
        """Returns the descriptor of the lock; None if another process, or another task of this
        process, holds the lock.
        """
        path = self._entries / f"{key}.lock"
        while True:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, how | fcntl.LOCK_NB)
                if _same(lock, path):
                    return lock
            except BlockingIOError:
                os.close(lock)
                return None
            except OSError:
                os.close(lock)
                raise
            os.close(lock)  # the lock file was just removed together with its entry

    def _trim(self, limit: int, stop: threading.Event) -> None:
        kept: list[_Kept] = []
        for key in {path.name.removesuffix(".lock") for path in self._entries.glob("*")}:
            complete = self._complete(key)
            if complete is None:
                self._evict(key, even_complete=False)
                continue
            with suppress(FileNotFoundError):
                kept.append(_Kept(self._marker(key).stat().st_mtime, key, complete.size))
        total = sum(each.size for each in kept)
        for each in sorted(kept):
            if total <= limit or stop.is_set():
                return
            if self._evict(each.key, even_complete=True):
                total -= each.size

    def _evict(self, key: str, *, even_complete: bool) -> bool:
        """Removes the entry and its lock file, unless the entry is in use."""
        lock = self._take(key, fcntl.LOCK_EX)
        if lock is None:
            return False
        try:
            if self._complete(key) is not None and not even_complete:
                return False
            self._marker(key).unlink(missing_ok=True)
            if trees.remove(self._entries / key):
                (self._entries / f"{key}.lock").unlink()
            return True
        finally:
            os.close(lock)


def size_of(directory: Path) -> int:
    """Returns the disk usage of the files below the directory, in bytes. A file with several hard
    links counts once.
    """
    seen: dict[tuple[int, int], int] = {}
    with suppress(OSError):  # a job may change the directory; the files that were seen count
        for visit in trees.visits(directory):
            for name in () if visit.left else visit.names:
                with suppress(FileNotFoundError):
                    status = os.lstat(name, dir_fd=visit.at)
                    seen[(status.st_dev, status.st_ino)] = status.st_blocks * 512
    return sum(seen.values())


def _put(marker: Path, complete: Complete) -> None:
    draft = marker.with_name(f"draft.{secrets.token_hex(6)}")
    try:
        draft.write_text(complete.model_dump_json())
        draft.replace(marker)
    finally:
        draft.unlink(missing_ok=True)


def _same(descriptor: int, path: Path) -> bool:
    """Returns True if the descriptor belongs to the file of this path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False
