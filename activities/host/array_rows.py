"""Reads the parameters of a task of an array from the array's table."""

import json
import shutil
from itertools import islice
from pathlib import Path

from iris.activities.host.bundles import Bundles
from iris.activities.host.runtimes.base import CannotStart
from iris.activities.host.runtimes.threads import in_thread
from iris.messages.task import RunTask
from iris.model.arrays import ROWS_FILE

#: The shell's exit code for a command that was found but cannot be executed.
_WILL_NOT_DO = 126


async def row_of(bundles: Bundles, task: RunTask, directory: Path) -> dict[str, str]:
    """Returns the task's values by the names of their columns; none if it has no table.

    Args:
        directory: where the table is unpacked and removed again.

    Raises:
        CannotStart: the store does not have the table, or the table does not have the row.
        HostUnable: the store does not answer, or the disk is full.
    """
    if task.array is None or task.array.table is None:
        return {}
    index = task.index
    await bundles.unpack(task.array.table, directory)
    row = await in_thread(lambda _: _line(directory / ROWS_FILE, index))
    if not isinstance(row, dict) or not all(isinstance(value, str) for value in row.values()):
        raise CannotStart(f"the table of the array has no row {index}; submit the job again", _WILL_NOT_DO)
    return row


def _line(file: Path, index: int) -> object:
    """Returns the value in the line, and removes the table; None: it has no such line."""
    try:
        with file.open(encoding="utf-8") as lines:
            return json.loads(next(islice(lines, index, None), "null"))
    except (OSError, ValueError):
        return None
    finally:
        shutil.rmtree(file.parent, ignore_errors=True)
