"""Uploads packed workspaces and the tables of arrays to the store. The name of an object is its
hash, so that the same files are uploaded only once.
"""

import asyncio
import gzip
import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from obstore.exceptions import BaseError

from iris.client.workspace.extra_files import ExtraFile
from iris.client.workspace.pack import Packed, no_space, pack
from iris.model import store_paths
from iris.model.errors import IrisError
from iris.model.job.array_tables import Table
from iris.model.job.arrays import ROWS_FILE
from iris.model.job.bundles import Bundle
from iris.storage.object_store import Store

#: The maximum time to check whether the store already contains an object. The store's library would
#: retry for minutes.
CHECK_PATIENCE = timedelta(seconds=30)
#: A bundle that the store already contains is uploaded again if the stored one is older than this.
FRESH = timedelta(days=1)
#: The gzip compression level. Level 1 is four times faster than the best level, and its archives
#: are a tenth larger.
_LEVEL = 1
_COPY = 1024 * 1024


async def upload(
    store: Store, packed: Packed, progress: Callable[[int, int], None] | None = None
) -> Bundle:
    """Uploads the workspace unless the store has it. Uploads an old bundle again, so that `iris
    cluster gc` keeps it.

    Args:
        progress: called with the bytes sent and the total, first with 0 bytes sent. Not called if
            nothing has to be sent.

    Raises:
        IrisError: the store refuses the bundle or does not answer, or this machine has no disk
            space to compress it.
    """
    name = store_paths.bundle(packed.bundle.sha256)
    try:
        async with asyncio.timeout(CHECK_PATIENCE.total_seconds()):
            written = await store.modified(name)
    except (TimeoutError, OSError, BaseError) as error:
        raise _refused(store, error) from None
    if written is not None and datetime.now(UTC) - written < FRESH:
        return packed.bundle
    with tempfile.TemporaryDirectory(prefix="iris-") as directory:
        archive = Path(directory) / "bundle.tar.gz"
        try:
            await asyncio.to_thread(_compress, packed, archive)
        except OSError as error:
            raise no_space(error) from None
        try:
            await store.put_file(
                name, archive, None if progress is None else _Sum(archive.stat().st_size, progress)
            )
        except (OSError, BaseError) as error:
            if written is None:  # progress is not shown for a bundle that only becomes younger
                raise _refused(store, error) from None
    return packed.bundle


async def upload_table(store: Store, table: Table) -> Bundle:
    """Uploads the table of an array. Each host reads the rows of its tasks from it.

    Raises:
        IrisError: the store does not accept the table.
    """
    with tempfile.TemporaryDirectory(prefix="iris-array-") as directory:
        file = Path(directory) / ROWS_FILE
        file.write_text("".join(f"{line}\n" for line in table.lines()), encoding="utf-8")
        packed = await asyncio.to_thread(pack, None, [ExtraFile(file, ROWS_FILE)])
    with packed:
        return await upload(store, packed)


class _Sum:
    """Adds up the sizes of the sent blocks, and reports the sum to a progress function."""

    def __init__(self, total: int, progress: Callable[[int, int], None]) -> None:
        self._sent, self._total, self._progress = 0, total, progress
        progress(0, total)

    def __call__(self, block: int) -> None:
        self._sent += block
        self._progress(self._sent, self._total)


def _compress(packed: Packed, file: Path) -> None:
    packed.archive.seek(0)
    # Without a name and a time, the same archive always gives the same object.
    with file.open("wb") as out, gzip.GzipFile("", "wb", _LEVEL, out, mtime=0) as compressed:
        shutil.copyfileobj(packed.archive, compressed, _COPY)


def _refused(store: Store, error: BaseException) -> IrisError:
    if isinstance(error, TimeoutError):
        problem = f"it has not answered for {CHECK_PATIENCE.total_seconds():g} s"
    else:
        # The first line is for users, the others for the library's developers.
        problem = (str(error).splitlines() or [type(error).__name__])[0]
    return IrisError(
        f"the store {store.url} does not accept the workspace: {problem}; check that this machine"
        " can reach and write to it, or submit with --no-workspace"
    )
