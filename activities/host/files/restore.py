"""Restores a task's checkpoint directory from the store before its program starts."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from iris.activities.host.files.bundles import PAUSES
from iris.activities.host.files.caches import DISK_FAULT, is_disk_full
from iris.activities.host.files.checkpoint_files import FOLDER, Writing, make_folders, make_links
from iris.activities.host.files.checkpoints import RECORD
from iris.activities.host.runtimes.base import STORE_FAULT, HostFault, JobFault
from iris.activities.host.runtimes.cleanup import links, trees
from iris.model import store_paths
from iris.model.checkpoint.saves import Save, SavedItem
from iris.model.errors import InvalidValue, first_line
from iris.model.units import format_bytes, format_duration
from iris.storage.object_store import STORE_ERRORS, Store
from iris.storage.saves import latest_save

#: The maximum number of files of one checkpoint that are fetched from the store at the same time.
AT_ONCE = 8


class _Gone(Exception):
    """The error if an object of a save does not exist, because a later save has replaced the save
    or somebody has deleted the object.
    """


class _Found(NamedTuple):
    """The save from which the checkpoint directory is restored."""

    save: Save
    #: The attempt or the task from which the save comes, as messages name it.
    origin: str


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
    """Restores the task's last save into the empty checkpoint directory, and writes a record of it
    for the saves of this attempt.

    Returns:
        A line for the log of the attempt; empty if there is no save.

    Args:
        prefix: the folder of the task's saves in the store.
        directory: the directory of the attempt.
        files: the directory that contains the checkpoint directory.
        owner: the uid that gets the files; None for the agent's uid.
        start_from: the folder of another task's saves. While this task has no save, the last save
            of the other task is restored.
        announce: called before the restore with a description of it.
        pauses: the delays before each retry of the store, in seconds.

    Raises:
        HostFault: the store does not answer, the disk is full, or a save in the store is damaged.
        JobFault: neither this task nor the one that it starts from has a save.
    """
    for pause in (*pauses, None):
        try:
            found = await _find(store, prefix, start_from)
            if found is not None:
                announce(f"restoring the checkpoint: {_size(found.save)}")
                await _fill(store, found.save, files / FOLDER, owner)
            save = Save() if found is None else found.save
            links.write(directory / RECORD, save.manifest())
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
            return "" if found is None else _line(found)
    raise AssertionError("unreachable: the last try to restore returns or raises")


async def _find(store: Store, prefix: str, start_from: str) -> _Found | None:
    """Returns the task's last save, or that of the task that it starts from; None if the task has
    no save and starts from no other.
    """
    save = await latest_save(store, prefix)
    if save is not None:
        return _Found(save, f"attempt {save.attempt}")
    if not start_from:
        return None
    origin = store_paths.task_of_checkpoints(start_from)
    if (other := await latest_save(store, start_from)) is None:
        raise JobFault(
            f"the checkpoint of {origin}, which this job starts from, is not in the store any more",
            2,
        )
    # Attempt 0 says that it is no save of this task.
    return _Found(other.model_copy(update={"attempt": 0, "number": 0}), origin)


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
    """Removes the files of an earlier try."""
    for path in directory.iterdir():
        trees.remove(path)


def _line(found: _Found) -> str:
    ago = ""
    if found.save.saved_at is not None:
        ago = f", saved {format_duration(datetime.now(UTC) - found.save.saved_at)} ago"
    return f"restored the checkpoint of {found.origin}{ago}: {_size(found.save)}"


def _size(save: Save) -> str:
    files = "1 file" if save.files == 1 else f"{save.files:,} files"
    return f"{files}, {format_bytes(save.size)}"
