"""Reads the result of a function's job: its value, or its exception with the job's traceback."""

import asyncio
import json
import pickle
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

from obstore.exceptions import BaseError

from iris.client.logs.follow import cannot_write
from iris.model import store_paths
from iris.model.errors import IrisError, first_line
from iris.model.job import bundles
from iris.retrying import retry
from iris.storage.files import CannotWrite
from iris.storage.object_store import Store

#: The maximum time to wait for a result in the store after its task has ended. A host stores the
#: result before it reports the end, unless the store does not answer.
PATIENCE = timedelta(seconds=60)
RETRY_INTERVAL = timedelta(seconds=1)


class RemoteTraceback(Exception):
    """The traceback of an exception that was raised in a job. It becomes the `__cause__` of the
    exception that the caller gets.
    """

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class NoResult(IrisError):
    """Raised if a task left no result, or if the result is not in the store yet."""


class Raised:
    """The result of a function that raised an exception.

    Args:
        error: the exception. None if it cannot be restored here.
        text: the type and the message of the exception.
        traceback: the traceback that the job printed.
    """

    def __init__(self, error: BaseException | None, text: str, traceback: str) -> None:
        self.error = error
        self.text = text
        self.traceback = traceback

    def exception(self, who: str, unknown: Callable[[str], IrisError] = IrisError) -> BaseException:
        """Returns the exception for the caller, with the job's traceback as its cause.

        Args:
            who: the task, for the message if the exception itself cannot be raised here.
            unknown: makes another exception from that message.
        """
        error = self.error
        if error is None:
            error = unknown(f"{who} raised {self.text}")
        elif isinstance(error, StopIteration | StopAsyncIteration):
            # These would end the caller's loop, and a coroutine cannot raise them.
            error = RuntimeError(f"{who} raised {self.text}")
        error.__cause__ = RemoteTraceback(self.traceback)
        return error


async def read_result(
    store: Store, job: str, run_id: str, task: int, attempt: int, patience: timedelta = PATIENCE
) -> Any:
    """Returns the value that the function returned in this attempt, or a `Raised`.

    The value is unpickled, which can run any code of the job. The caller must trust the job.

    Args:
        patience: the maximum time to wait for a result that the store does not have.

    Raises:
        NoResult: there is no result, or it cannot be restored here.
    """
    name = f"{store_paths.attempt_outputs(job, run_id, task, attempt)}/{bundles.RESULT}"
    with tempfile.TemporaryDirectory(prefix="iris-result-") as directory:
        file = Path(directory) / "result"

        @retry((NoResult, OSError, BaseError), every=RETRY_INTERVAL, timeout=patience)
        async def fetch() -> None:
            try:
                found = await store.get_file(name, file)
            except CannotWrite as error:  # a retry would not help
                raise cannot_write(error) from None
            if not found:
                raise NoResult(f"task {task} of {job} left no result in attempt {attempt}")

        try:
            await fetch()
        except (OSError, BaseError) as error:
            raise NoResult(
                f"the result of {job} cannot be read from {store.url}: {first_line(error)}"
            ) from None
        return await asyncio.to_thread(_restore_file, file, f"task {task} of {job}")


def _restore_file(file: Path, what: str) -> Any:
    with file.open("rb") as result:
        return restore(result, what)


def restore(result: BinaryIO, what: str) -> Any:
    """Unpickles the result that `run.py` wrote, and returns the value or a `Raised`.

    Raises:
        NoResult: the value cannot be restored here.
    """
    header = json.loads(result.readline())
    if header["kind"] == "error":
        error = _load(result) if header["pickled"] else None
        text = f"{header['type']}: {header['message']}" if header["message"] else header["type"]
        return Raised(
            error if isinstance(error, BaseException) else None, text, header["traceback"]
        )
    try:
        return pickle.load(result)  # noqa: S301 the caller trusts the job
    except Exception as error:  # the methods of the value's classes may raise anything
        raise NoResult(
            f"the result of {what}, a {header['type']}, cannot be restored here:"
            f" {first_line(error)}"
        ) from error


def _load(result: BinaryIO) -> Any:
    """Returns the exception. Returns None if it cannot be restored here, for example because its
    module is missing.
    """
    try:
        return pickle.load(result)  # noqa: S301 the caller trusts the job
    except Exception:
        return None
