"""A directory of things that were costly to get, shared by all agents of one machine and bounded in size.

    entries/KEY.lock           held exclusively by who makes or removes the entry, shared by everybody who uses it
    entries/KEY/TOKEN/         what was made; a new token each time, so that nobody who was thought dead writes into it
    entries/KEY/complete       written last: what is here without it is the rest of a try, and the next one clears it

The locks are the kernel's and belong to open file descriptors: one that is handed on to the shim of a program keeps the entry for
as long as the program lives, whatever becomes of the agent.
"""

import asyncio
import errno
import fcntl
import os
import secrets
import shutil
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from iris.activities.runtimes.base import HostUnable
from iris.activities.threads import in_thread

#: Names of faults, as in `iris.faults`.
DISK_FAULT = "disk"
#: Between looks at a lock that another process holds, in seconds: the first and the longest.
LOOK_AFTER, LOOK_EVERY = 0.01, 0.25
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def no_room(error: OSError) -> bool:
    """Whether it says that the disk, or the user's share of it, is full."""
    return error.errno in _NO_ROOM


class Complete(BaseModel):
    """What stands in an entry's `complete`; the time of the file is that of the entry's last use."""

    model_config = ConfigDict(frozen=True)

    token: str
    #: On the disk, in bytes.
    size: int


class Entry:
    """One thing of the cache, in use until it is released.

    Args:
        lock: the file descriptor by which it is in use; whoever inherits it uses the entry, too.
        made: it was not there before.
    """

    def __init__(self, path: Path, lock: int, *, made: bool) -> None:
        self.path = path
        self.lock = lock
        self.made = made

    def release(self) -> None:
        """Stop using it here. To be called once."""
        os.close(self.lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


class _Kept(NamedTuple):
    """A complete entry, as the bound looks at it."""

    used_at: float
    key: str
    size: int


class Cache:
    """Entries by key, the longest unused removed when there are too many.

    Args:
        directory: made when it is not there. Only the folder `entries` is the cache's own.
        limit: of all complete entries together, in bytes. Those in use are kept in any case.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory = directory
        self.limit = limit
        self._entries = directory / "entries"

    async def use(self, key: str, make: Callable[[Path], Awaitable[None]], waiting: Callable[[], None] = lambda: None) -> Entry:
        """The entry of this key, made by `make` in an empty directory when it is not there.

        Args:
            key: usable as the name of a file.
            waiting: called, once, when somebody else is making it.

        Raises:
            HostUnable: the disk is full, or the cache cannot be written to.
            Exception: what `make` raises; nothing of its try is left.
        """
        try:
            return await self._use(key, make, waiting)
        except OSError as error:
            reason = f"the cache of this host cannot be used: {error}"
            if no_room(error):
                reason = f"the disk of this host is full: {self.directory}"
            unable = HostUnable(reason, DISK_FAULT)
        except HostUnable as error:
            unable = error
        if unable.fault == DISK_FAULT:
            with suppress(OSError):
                await self.trim(0)  # so that another try finds room
        raise unable

    async def measure(self, entry: Entry) -> None:
        """Count it as large as it has become by now, it being one that grows as it is used."""
        marker = entry.path.parent / "complete"
        complete = Complete(token=entry.path.name, size=await in_thread(lambda _: size_of(entry.path)))
        _put(marker, complete)

    async def trim(self, limit: int | None = None) -> None:
        """Remove what nobody uses until what is left fits: the longest unused first, rests of tries in any case."""
        await in_thread(lambda stop: self._trim(self.limit if limit is None else limit, stop))

    # -- inside --------------------------------------------------------------------------------------------------------------

    async def _use(self, key: str, make: Callable[[Path], Awaitable[None]], waiting: Callable[[], None]) -> Entry:
        self._entries.mkdir(parents=True, exist_ok=True)
        made, told, pause = False, False, LOOK_AFTER
        while True:
            # Only who finds nothing wants it for himself: many may use what is there, and none of them stands in another's way.
            how = fcntl.LOCK_EX if self._complete(key) is None else fcntl.LOCK_SH
            lock = self._take(key, how)
            if lock is None:
                if not told:
                    told = True
                    waiting()
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, LOOK_EVERY)
                continue
            entry = None
            try:
                complete = self._complete(key)
                if (complete is None) != (how == fcntl.LOCK_EX):
                    continue  # made or removed since the look
                if complete is None:
                    await self._make(key, make)
                    made = True
                    continue  # to share it from now on
                os.utime(self._marker(key))
                if made:
                    await self.trim()
                entry = Entry(self._entries / key / complete.token, lock, made=made)
                return entry
            finally:
                if entry is None:
                    os.close(lock)

    async def _make(self, key: str, make: Callable[[Path], Awaitable[None]]) -> None:
        home = self._entries / key
        await in_thread(lambda _: _remove(home))
        complete = False
        try:
            place = home / secrets.token_hex(6)
            place.mkdir(parents=True)
            await make(place)
            size = await in_thread(lambda _: size_of(place))
            _put(self._marker(key), Complete(token=place.name, size=size))
            complete = True
        finally:
            if not complete:
                await in_thread(lambda _: _remove(home))

    def _marker(self, key: str) -> Path:
        return self._entries / key / "complete"

    def _complete(self, key: str) -> Complete | None:
        with suppress(FileNotFoundError, ValidationError):
            return Complete.model_validate_json(self._marker(key).read_bytes())
        return None

    def _take(self, key: str, how: int) -> int | None:
        """The descriptor of the lock; None: another process, or another task of this one, has it."""
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
            os.close(lock)  # the file was removed with its entry just now

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
        """Remove the entry and its lock, unless somebody uses it."""
        lock = self._take(key, fcntl.LOCK_EX)
        if lock is None:
            return False
        try:
            if self._complete(key) is not None and not even_complete:
                return False
            self._marker(key).unlink(missing_ok=True)
            if _remove(self._entries / key):
                (self._entries / f"{key}.lock").unlink()
            return True
        finally:
            os.close(lock)


def size_of(directory: Path) -> int:
    """What the files below take on the disk, in bytes; one with several names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for folder, _, files in os.walk(directory):
        for name in files:
            with suppress(FileNotFoundError):
                status = (Path(folder) / name).lstat()
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
    """Whether the open file is the one of that name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _remove(directory: Path) -> bool:
    """Remove it whole, also what may not be written to; whether it is gone."""
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        for folder, folders, _ in os.walk(directory):  # from above: what was allowed is looked into next
            for path in (Path(folder) / name for name in folders):
                with suppress(OSError):
                    if not path.is_symlink():
                        path.chmod(0o700)
        shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()
