"""The object store: `file://` on one machine, `gs://` or `s3://` on several. Logs are stored here,
never in a workflow's history.

The files of a `file://` store get the mode of the store's directory, whatever the umask of the
writing process is. So a cluster's own store stays private, and a store that several users share
stays shared.
"""

import asyncio
import contextlib
import errno
import functools
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import date, datetime
from functools import partial
from io import RawIOBase
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from iris.model.errors import Unreachable, first_line
from iris.storage.files import make_private, writing
from iris.storage.garbage import Stored

#: All errors that occur when a store cannot be reached.
STORE_ERRORS = (OSError, BaseError)

#: The size of a block of a file transfer, in bytes.
_BLOCK = 1024 * 1024
#: The largest file that is written with one request, in bytes. A larger file is written in parts of
#: this size, each with one request. It is the smallest size of a part that S3 accepts.
_PART = 5 * 1024 * 1024
T = TypeVar("T")

#: The maximum number of threads for file operations in one process. An operation that hangs
#: occupies one thread.
MOST_THREADS = 8
THREAD_PREFIX = "iris-store"


class StoreAway(Unreachable, OSError):
    """Raised if the directory of a `file://` store does not exist, for example because it is not
    mounted. A later attempt may succeed.
    """


class Store:
    """The objects under one URL. If the store cannot be reached, the error is one of
    `STORE_ERRORS`.

    A write never creates the directory of a `file://` store. A missing directory may mean that the
    store is not mounted, and its objects would then be written to the local disk.

    Args:
        create: whether to create the missing directory of a `file://` store. Only the commands that
            start a cluster set it.

    Raises:
        Unreachable: no store can be opened at this URL, or its directory cannot be created.
    """

    def __init__(self, url: str, *, create: bool = False) -> None:
        self.url = url
        #: The directory of a `file://` store; None for other stores.
        self.directory = _directory(url)
        #: The opened store. It is None for a directory until the first access.
        self._handle: ObjectStore | None = None
        try:
            if self.directory is None:
                self._handle = from_url(url)
            elif create and not self.directory.is_dir():
                make_private(self.directory)
        except OSError as error:
            reason = f"{error.strerror}; use a writable directory"
            raise Unreachable(f"the store {url} cannot be used: {reason}") from None
        except (BaseError, ValueError) as error:
            raise Unreachable(f"the store {url} cannot be used: {first_line(error)}") from None

    async def put(self, path: str, data: bytes) -> None:
        """Writes the whole object. Repeating the call writes the same object."""
        await obstore.put_async(await self._opened(), path, data)
        await self._open_as_the_directory(path)

    async def put_new(self, path: str, data: bytes) -> bool:
        """Writes the whole object unless it exists, and returns whether it did. Of several
        concurrent callers, exactly one gets True.
        """
        try:
            await obstore.put_async(await self._opened(), path, data, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return False
        await self._open_as_the_directory(path)
        return True

    async def get(self, path: str, most: int | None = None) -> bytes | None:
        """Returns the object's bytes, or None if it does not exist.

        Args:
            most: the limit on bytes to read. A job may be able to write to the store, and must not
                fill the memory of a reader.

        Raises:
            OSError: the object is larger than `most` (EFBIG).
        """
        try:
            result = await obstore.get_async(await self._opened(), path)
        except FileNotFoundError:
            return None
        if most is not None and result.meta["size"] > most:
            raise OSError(
                errno.EFBIG,
                f"the object has {result.meta['size']:,} bytes; the limit is {most:,}",
                path,
            )
        return (await result.bytes_async()).to_bytes()

    async def head(self, path: str, most: int) -> bytes | None:
        """Returns the first bytes of an object that is not empty, at most so many; None if it does
        not exist.
        """
        try:
            result = await obstore.get_async(
                await self._opened(), path, options={"range": (0, most)}
            )
        except FileNotFoundError:
            return None
        return (await result.bytes_async()).to_bytes()

    async def modified(self, path: str) -> datetime | None:
        """Returns when the object was written, or None if it does not exist."""
        try:
            return (await obstore.head_async(await self._opened(), path))["last_modified"]
        except FileNotFoundError:
            return None

    async def put_file(
        self, path: str, file: Path | BinaryIO, progress: Callable[[int], None] | None = None
    ) -> None:
        """Writes the file as one object, in parts if it is large. A failed write leaves no part of
        the object.

        Args:
            file: the file's path, or the open file.
            progress: called with the number of bytes sent since the last call.
        """
        size = file.stat().st_size if isinstance(file, Path) else 0
        if progress is None or not isinstance(file, Path) or size <= _PART:
            await obstore.put_async(
                await self._opened(), path, file, chunk_size=_PART, max_concurrency=4
            )
            if progress is not None:
                progress(size)
        else:
            await obstore.put_async(
                await self._opened(),
                path,
                _blocks(file, progress),
                chunk_size=_PART,
                max_concurrency=4,
            )
        await self._open_as_the_directory(path)

    async def get_file(self, path: str, file: Path) -> bool:
        """Writes the object's bytes to the file atomically. If it fails, the file stays unchanged.
        Returns False if the object does not exist.

        Raises:
            CannotWrite: the file cannot be written. The store is not the cause.
        """
        try:
            result = await obstore.get_async(await self._opened(), path)
        except FileNotFoundError:
            return False
        part = file.with_name(f"{file.name}.part")
        try:
            with writing(file):
                out = part.open("wb", buffering=0)
            with out:
                async for block in result.stream(min_chunk_size=_BLOCK):
                    with writing(file):
                        _write_all(out, memoryview(block))
            with writing(file):
                part.replace(file)
        finally:
            part.unlink(missing_ok=True)
        return True

    async def put_blocks(self, path: str, blocks: Iterator[bytes]) -> None:
        """Writes the blocks as one object, in parts. If the iterator raises an exception, it
        propagates, and no object is written.
        """
        await obstore.put_async(
            await self._opened(), path, blocks, chunk_size=_PART, max_concurrency=4
        )
        await self._open_as_the_directory(path)

    async def get_blocks(self, path: str, take: Callable[[bytes], object]) -> bool:
        """Calls `take` with each block of the object, in a thread. Returns False if the object does
        not exist.
        """
        try:
            result = await obstore.get_async(await self._opened(), path)
        except FileNotFoundError:
            return False
        async for block in result.stream(min_chunk_size=_PART):
            await asyncio.to_thread(take, bytes(block))
        return True

    async def copy(self, path: str, to: str) -> bool:
        """Copies the object within the store. Returns False if it does not exist."""
        try:
            await obstore.copy_async(await self._opened(), path, to)
        except FileNotFoundError:
            return False
        await self._open_as_the_directory(to)
        return True

    async def folders(self, prefix: str) -> list[str]:
        """Returns the names directly below the prefix that have objects below them, sorted."""
        found = await obstore.list_with_delimiter_async(await self._opened(), prefix)
        return sorted(path.rpartition("/")[2] for path in found["common_prefixes"])

    async def days(self, prefix: str) -> list[date]:
        """Returns the days, sorted, after which folders directly below the prefix are named
        (`2026-11-28`). Others may write there, too: other names are ignored.
        """
        found = []
        for name in await self.folders(prefix):
            with contextlib.suppress(ValueError):
                found.append(date.fromisoformat(name))
        return found

    async def objects(self, prefix: str) -> list[str]:
        """Returns the paths of the objects directly below the prefix, sorted."""
        found = await obstore.list_with_delimiter_async(await self._opened(), prefix)
        return sorted(entry["path"] for entry in found["objects"])

    async def sizes(self, prefix: str) -> list[tuple[str, int]]:
        """Returns the paths and sizes of all objects below the prefix, at any depth."""
        return [
            (entry["path"], entry["size"])
            async for batch in obstore.list(await self._opened(), prefix)
            for entry in batch
        ]

    async def stored(self, prefix: str = "", most: int | None = None) -> list[Stored]:
        """Returns all objects below the prefix, at any depth.

        Args:
            most: the number of objects after which the others are left out, in no order.
        """
        found: list[Stored] = []
        async for batch in obstore.list(await self._opened(), prefix or None):
            found += [
                Stored(entry["path"], entry["size"], entry["last_modified"]) for entry in batch
            ]
            if most is not None and len(found) >= most:
                return found[:most]
        return found

    async def delete(self, paths: Sequence[str]) -> None:
        """Deletes these objects. Missing objects are ignored."""
        if paths:
            # In a `file://` store, directories that become empty are deleted, too.
            here = await self._opened()
            if self.directory is not None:
                here = await in_file_thread(
                    partial(LocalStore, self.directory, automatic_cleanup=True)
                )
            with contextlib.suppress(FileNotFoundError):
                await obstore.delete_async(here, list(paths))

    async def _opened(self) -> ObjectStore:
        if self.directory is not None:
            # The call runs in a thread, because an unreachable file server may not answer for
            # hours.
            return await in_file_thread(partial(self._opened_directory, self.directory))
        assert self._handle is not None
        return self._handle

    def _opened_directory(self, directory: Path) -> ObjectStore:
        if not directory.is_dir():
            raise StoreAway(
                f"the store {self.url} cannot be reached: its directory does not exist; mount the"
                " directory, or create it"
            )
        if self._handle is None:
            self._handle = LocalStore(directory)
        return self._handle

    async def _open_as_the_directory(self, path: str) -> None:
        if self.directory is not None:
            await in_file_thread(partial(_open_as, self.directory, path))


def _open_as(directory: Path, path: str) -> None:
    """Gives the object's file, and the directories above it, the mode of the store's directory."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    made = directory / path
    # The file was deleted since, or another user owns it.
    with contextlib.suppress(FileNotFoundError, PermissionError):
        made.chmod(mode & 0o666)
        while (made := made.parent) != directory and stat.S_IMODE(made.stat().st_mode) != mode:
            made.chmod(mode)


def _directory(url: str) -> Path | None:
    """Returns the directory that a `file://` URL names, or None for another scheme. Refuses a URL
    that does not name a directory of this machine, or has a character that would cut off its path.
    """
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise Unreachable(
            f"the store {url} cannot be used: it is not an absolute path on this machine; write"
            " file:///PATH"
        )
    for character in "#?":
        if character in url:
            remedy = f"it contains {character!r}; write {quote(character)} instead"
            raise Unreachable(f"the store {url} cannot be used: {remedy}")
    return Path(unquote(parts.path, errors="surrogateescape"))


def _write_all(out: RawIOBase, left: memoryview) -> None:
    while left:
        left = left[out.write(left) :]


def _blocks(file: Path, progress: Callable[[int], None]) -> Iterator[bytes]:
    with file.open("rb") as source:
        while block := source.read(_BLOCK):
            yield block
            progress(len(block))


async def in_file_thread(call: Callable[[], T]) -> T:
    """Runs the call in a thread and returns its result. It waits while `MOST_THREADS` other calls
    run.

    If the caller is cancelled, a running call continues.

    Raises:
        Exception: the exception that `call` raises.
    """
    return await asyncio.wrap_future(_threads_of(os.getpid()).submit(call))


class _FileThreads:
    """A pool of daemon threads, which are started as needed.

    A call to a network file system may hang for hours. In asyncio's threads, hanging calls would
    leave no thread for other work, and the interpreter would wait for them when it exits, as it
    waits for the threads of every `ThreadPoolExecutor`. It does not wait for these threads.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._starting = threading.Lock()
        self._started = 0
        #: The number of started threads that run no call.
        self._free = threading.Semaphore(0)

    def submit(self, call: Callable[[], T]) -> Future[T]:
        future = Future[T]()
        self._calls.put((future, call))
        with self._starting:
            if not self._free.acquire(blocking=False) and self._started < MOST_THREADS:
                threading.Thread(
                    target=self._work, name=f"{THREAD_PREFIX}-{self._started}", daemon=True
                ).start()
                self._started += 1
        return future

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del future, call  # otherwise an idle thread would keep the result in memory
            self._free.release()


@functools.cache
def _threads_of(pid: int) -> _FileThreads:
    """Returns the threads of this process. A forked process has none of its parent's threads."""
    return _FileThreads()
