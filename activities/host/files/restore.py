"""Restores a task's checkpoint directory from the store before its program starts."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from iris.activities.host.files.bundles import PAUSES, STORE_FAULT
from iris.activities.host.files.caches import DISK_FAULT, is_disk_full
from iris.activities.host.files.checkpoint_files import FOLDER, Writing, make_folders, make_links
from iris.activities.host.files.checkpoints import RECORD
from iris.activities.host.runtimes.base import HostFault, JobFault
from iris.activities.host.runtimes.cleanup import links, trees
from iris.model import names
from iris.model.errors import InvalidValue, first_line
from iris.model.job.checkpoints import Save, SavedItem
from iris.model.units import format_bytes, format_duration
from iris.storage.object_store import STORE_ERRORS, Store
from iris.storage.saves import latest_save

#: How many files are fetched at once.
AT_ONCE = 8


class _Gone(Exception):
    """An object of a save does not exist: a later save has replaced that save, or somebody has
    deleted the object.
    """


async def restore(
    store: Store,
    prefix: str,
    directory: Path,
    files: Path,
    owner: int | None,
    *,
    start_from: str = "",
    pauses: Sequence[float] = PAUSES,
    announce: Callable[[str], object] = lambda _: None,
) -> str:
    """Fills the checkpoint directory, which is empty, with the task's last save, and records that
    for the attempt's saves.

    Returns:
        A line for the log of the attempt; empty: there is no save.

    Args:
        prefix: the folder of the task's saves.
        directory: the attempt's.
        files: the directory that has the checkpoint directory.
        owner: the uid that gets the files; None: the agent's.
        start_from: the folder of another task's saves, of which the last is restored while this
            task has none.
        announce: called with what is restored, before it is.
        pauses: the delays before each retry of the store, in seconds.

    Raises:
        HostFault: the store does not answer, the disk is full, or a save in the store is damaged.
        JobFault: neither this task nor the one that it starts from has a save.
    """
    for pause in (*pauses, None):
        try:
            save, origin = await latest_save(store, prefix), ""
            if save is None and start_from:
                origin = names.task_of_checkpoints(start_from)
                if (other := await latest_save(store, start_from)) is None:
                    raise JobFault(
                        f"the checkpoint of {origin}, which this job starts from, is not in the"
                        " store any more",
                        2,
                    )
                save = other.model_copy(update={"attempt": 0, "number": 0})  # no save of this task
            if save is not None:
                announce(f"restoring the checkpoint: {_size(save)}")
                await _fill(store, save, files / FOLDER, owner)
            links.write(directory / RECORD, (save or Save()).model_dump_json())
        except InvalidValue as error:
            raise HostFault(f"the checkpoint cannot be restored: {error}", STORE_FAULT) from None
        except (*STORE_ERRORS, _Gone) as error:
            if isinstance(error, OSError) and is_disk_full(error):
                raise HostFault(
                    f"the disk of this host is too full for the checkpoint: {files}", DISK_FAULT
                ) from None
            if pause is None:
                raise HostFault(
                    f"the checkpoint cannot be restored: {first_line(error)}", STORE_FAULT
                ) from None
            await asyncio.sleep(pause)
        else:
            return "" if save is None else _line(save, origin or f"attempt {save.attempt}")
    raise AssertionError("the loop returns or raises")


async def _fill(store: Store, save: Save, directory: Path, owner: int | None) -> None:
    await asyncio.to_thread(_empty, directory)
    await asyncio.to_thread(make_folders, directory, save.items, owner)
    gate = asyncio.Semaphore(AT_ONCE)

    async def get(item: SavedItem) -> None:
        async with gate:
            with Writing(directory, item, owner) as file:
                if not await store.get_blocks(item.stored_as, file.write):
                    raise _Gone(f"{item.stored_as} was deleted from the store")
                file.finish()

    fetched = await asyncio.gather(
        *(get(item) for item in save.items if item.stored_as), return_exceptions=True
    )
    for result in fetched:
        if isinstance(result, BaseException):
            raise result
    await asyncio.to_thread(make_links, directory, save.items, owner)


def _empty(directory: Path) -> None:
    """Removes what an earlier try has left."""
    for path in directory.iterdir():
        trees.remove(path)


def _line(save: Save, origin: str) -> str:
    ago = (
        ""
        if save.saved_at is None
        else f", saved {format_duration(datetime.now(UTC) - save.saved_at)} ago"
    )
    return f"restored the checkpoint of {origin}{ago}: {_size(save)}"


def _size(save: Save) -> str:
    files = "1 file" if save.files == 1 else f"{save.files:,} files"
    return f"{files}, {format_bytes(save.size)}"
