"""Finds the latest save of a task's checkpoint directory."""

import errno

from iris.concurrency import for_each
from iris.model.checkpoint.saves import MOST_MANIFEST, Save, attempt_folder, number_of, save_name
from iris.model.errors import InvalidValue
from iris.model.units import format_bytes
from iris.storage.object_store import Store

#: The maximum number of tasks whose checkpoints are looked up at the same time.
AT_ONCE = 16


async def latest_save(store: Store, prefix: str) -> Save | None:
    """Returns the latest save of the latest attempt that has one, or None if no attempt has one.

    Args:
        prefix: the folder of the task's saves.

    Raises:
        InvalidValue: a manifest was not written by an agent.
        obstore's exceptions: the store does not answer.
    """
    while (name := await _latest_manifest(store, prefix)) is not None:
        try:
            data = await store.get(name, MOST_MANIFEST)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            raise InvalidValue(
                "checkpoint",
                name,
                f"has more than {format_bytes(MOST_MANIFEST)}, the limit for a checkpoint manifest",
                "check which program wrote it",
            ) from None
        if data is not None:  # otherwise a later save has just replaced this one
            return _parsed(prefix, name, data)
    return None


async def tasks_with_saves(store: Store, folder: str) -> list[int]:
    """Returns the indices of the tasks that have a save.

    Args:
        folder: the folder of a job's run, in which each task has a folder.

    Raises:
        obstore's exceptions: the store does not answer.
    """

    async def has_save(index: int) -> bool:
        return await _latest_manifest(store, f"{folder}/{index}") is not None

    indices = sorted(int(name) for name in await store.folders(folder) if name.isdecimal())
    have = await for_each(indices, has_save, at_once=AT_ONCE)
    return [index for index, has in zip(indices, have, strict=True) if has]


async def _latest_manifest(store: Store, prefix: str) -> str | None:
    """Returns the name of the latest manifest. Ignores names that agents do not give, because a job
    may be able to write to the store.
    """
    for attempt in sorted(
        (int(name) for name in await store.folders(prefix) if name.isdecimal()), reverse=True
    ):
        names = await store.objects(attempt_folder(prefix, attempt))
        if found := [
            name for name in names if name == save_name(prefix, attempt, number_of(name) or 0)
        ]:
            return found[-1]
    return None


def _parsed(prefix: str, name: str, data: bytes) -> Save:
    try:
        save = Save.model_validate_json(data)
    except ValueError as error:
        raise InvalidValue(
            "checkpoint",
            name,
            "is not a checkpoint manifest that Iris can read",
            "check which program wrote it",
        ) from error
    # A job may be able to write to the store. Its manifest must not name objects of other users.
    if not all(each.startswith(f"{prefix}/") for each in save.objects):
        raise InvalidValue(
            "checkpoint",
            name,
            "names objects outside the task's checkpoint folder",
            "check which program wrote it",
        )
    return save
