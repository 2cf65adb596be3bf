"""Finds the files of a job's checkpoint directories in the store."""

from iris.client.outputs import OutputFile
from iris.model import names
from iris.storage.object_store import Store
from iris.storage.output_names import path_of
from iris.storage.saves import latest_save


async def checkpoint_files(store: Store, job: str, run_id: str, task: int | None = None) -> list[OutputFile]:
    """Lists the files of the last save of each task, by task and path. Links and empty directories are left out.

    Args:
        task: only this task; None: all tasks.

    Raises:
        InvalidValue: the store has a manifest that Iris did not write.
    """
    folders = await store.folders(names.job_checkpoints(job, run_id))
    found = []
    for index in sorted(int(name) for name in folders if name.isdecimal()):
        if task in (None, index) and (save := await latest_save(store, names.task_checkpoints(job, run_id, index))):
            found += [
                OutputFile(index, save.attempt, path_of(item.path), item.size, item.stored_as)
                for item in save.items
                if item.stored_as
            ]
    return found
