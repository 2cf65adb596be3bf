"""The object store: `file://` on a laptop, `gs://` or `s3://` on a fleet. Logs live here, never in a history."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import from_url

from iris.errors import Unreachable, first_line

#: Every failure to reach a store is one of these.
STORE_ERRORS = (OSError, BaseError)

#: A file travels in blocks of this many bytes.
_BLOCK = 1024 * 1024
#: What is larger is written in parts of this size, the least that S3 takes; each costs a request.
_PART = 5 * 1024 * 1024


class Store:
    """Objects under one URL. Every failure to reach it is one of `STORE_ERRORS`.

    Raises:
        Unreachable: nothing can be kept under such a URL.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        if urlsplit(url).scheme == "file":
            try:
                Path(urlsplit(url).path).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                reason = f"{error.strerror}; it has to be a directory that may be written"
                raise Unreachable(f"the store {url} cannot be used: {reason}") from None
        try:
            self._store = from_url(url)
        except (BaseError, ValueError) as error:
            raise Unreachable(f"the store {url} cannot be used: {first_line(error)}") from None

    async def put(self, path: str, data: bytes) -> None:
        """Write the whole object; saying it again writes the same object."""
        await obstore.put_async(self._store, path, data)

    async def put_new(self, path: str, data: bytes) -> bool:
        """Write the whole object unless there is one; whether there was none. Of several who say it at once one is right."""
        try:
            await obstore.put_async(self._store, path, data, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return False
        return True

    async def get(self, path: str) -> bytes | None:
        """The object's bytes, or None when there is no such object."""
        try:
            result = await obstore.get_async(self._store, path)
        except FileNotFoundError:
            return None
        return (await result.bytes_async()).to_bytes()

    async def exists(self, path: str) -> bool:
        """Whether there is such an object."""
        try:
            await obstore.head_async(self._store, path)
        except FileNotFoundError:
            return False
        return True

    async def put_file(self, path: str, file: Path, progress: Callable[[int], None] | None = None) -> None:
        """Write the file as one object, in parts when it is large; the object is there whole or not at all.

        Args:
            progress: told how many bytes more are on their way.
        """
        size = file.stat().st_size
        if progress is None or size <= _PART:
            await obstore.put_async(self._store, path, file, chunk_size=_PART, max_concurrency=4)
            if progress is not None:
                progress(size)
        else:
            await obstore.put_async(self._store, path, _blocks(file, progress), chunk_size=_PART, max_concurrency=4)

    async def get_file(self, path: str, file: Path) -> bool:
        """Write the object's bytes into the file, which is there whole or as it was before.

        Returns:
            False when there is no such object.
        """
        try:
            result = await obstore.get_async(self._store, path)
        except FileNotFoundError:
            return False
        part = file.with_name(f"{file.name}.part")
        try:
            with part.open("wb") as out:
                async for block in result.stream(min_chunk_size=_BLOCK):
                    out.write(block)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
        return True

    async def folders(self, prefix: str) -> list[str]:
        """The names directly below the prefix that have objects below them, sorted."""
        found = await obstore.list_with_delimiter_async(self._store, prefix)
        return sorted(path.rpartition("/")[2] for path in found["common_prefixes"])

    async def objects(self, prefix: str) -> list[str]:
        """The paths of the objects directly below the prefix, sorted."""
        found = await obstore.list_with_delimiter_async(self._store, prefix)
        return sorted(entry["path"] for entry in found["objects"])

    async def sizes(self, prefix: str) -> list[tuple[str, int]]:
        """The objects below the prefix, at any depth, with their sizes."""
        return [(entry["path"], entry["size"]) async for batch in obstore.list(self._store, prefix) for entry in batch]

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove these objects; one that is not there needs no removal."""
        if paths:
            # Of files the directories that become empty, too.
            here = from_url(self.url, automatic_cleanup=True) if self.url.startswith("file:") else self._store
            with contextlib.suppress(FileNotFoundError):
                await obstore.delete_async(here, list(paths))


def _blocks(file: Path, progress: Callable[[int], None]) -> Iterator[bytes]:
    with file.open("rb") as source:
        while block := source.read(_BLOCK):
            yield block
            progress(len(block))
