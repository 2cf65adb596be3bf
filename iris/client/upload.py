"""Sending a packed workspace to the store, once: what has its name has its content."""

import asyncio
import gzip
import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from obstore.exceptions import BaseError

from iris import names
from iris.bundles import Bundle
from iris.client.workspace import Packed, no_room
from iris.errors import IrisError
from iris.store import Store

#: How long a store may take to say whether it has an object; the library that asks would go on for minutes.
LOOK_PATIENCE = timedelta(seconds=30)
#: Of gzip: four times quicker than its best, for archives that are a tenth larger.
_LEVEL = 1
_COPY = 1024 * 1024


async def upload(store: Store, packed: Packed, progress: Callable[[int, int], None] | None = None) -> Bundle:
    """Have the workspace in the store; nothing is sent when it is there already.

    Args:
        progress: told how many bytes of how many have been sent, first 0; never called when nothing has to be.

    Raises:
        IrisError: the store does not take it, or this machine has no room to compress it.
    """
    name = names.bundle(packed.bundle.sha256)
    try:
        async with asyncio.timeout(LOOK_PATIENCE.total_seconds()):
            there = await store.exists(name)
    except (TimeoutError, OSError, BaseError) as error:
        raise _refused(store, error) from None
    if there:
        return packed.bundle
    with tempfile.TemporaryDirectory(prefix="iris-") as directory:
        archive = Path(directory) / "bundle.tar.gz"
        try:
            await asyncio.to_thread(_compress, packed, archive)
        except OSError as error:
            raise no_room(error) from None
        try:
            await store.put_file(name, archive, None if progress is None else _Sum(archive.stat().st_size, progress))
        except (OSError, BaseError) as error:
            raise _refused(store, error) from None
    return packed.bundle


class _Sum:
    """Adds up the blocks that are sent."""

    def __init__(self, total: int, progress: Callable[[int, int], None]) -> None:
        self._sent, self._total, self._progress = 0, total, progress
        progress(0, total)

    def __call__(self, block: int) -> None:
        self._sent += block
        self._progress(self._sent, self._total)


def _compress(packed: Packed, file: Path) -> None:
    packed.archive.seek(0)
    # Without a name and a time: the same archive becomes the same object.
    with file.open("wb") as out, gzip.GzipFile("", "wb", _LEVEL, out, mtime=0) as compressed:
        shutil.copyfileobj(packed.archive, compressed, _COPY)


def _refused(store: Store, error: BaseException) -> IrisError:
    if isinstance(error, TimeoutError):
        words = f"it has not answered for {LOOK_PATIENCE.total_seconds():g} s"
    else:
        words = (str(error).splitlines() or [type(error).__name__])[0]  # the lines below are for its developers
    return IrisError(
        f"the store {store.url} does not take the workspace: {words}; check that this machine reaches it and may write "
        f"there, or submit with --no-workspace"
    )
