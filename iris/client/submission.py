"""Makes the job that a Python program submits: its specification, and its files in the store."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.identity import current_user
from iris.client.functions.call import function_name, pack_call
from iris.client.job_options import JobOptions, job_spec
from iris.client.workspace.files import is_project
from iris.client.workspace.pack import pack
from iris.client.workspace.upload import upload
from iris.model.errors import InvalidValue
from iris.model.jobs import JobSpec
from iris.storage.object_store import Store

#: A function, or a program with or without its arguments.
Work = Callable[..., Any] | str | Sequence[str]


async def make_job(
    cluster: ClusterRecord,
    work: Work,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    workspace: Path | str | bool | None,
    **options: Unpack[JobOptions],
) -> JobSpec:
    """Checks the options, uploads the function and the workspace, and returns the job.

    Args:
        workspace: the directory whose files the job gets; None: the current one, if it is a project's; False: none.

    Raises:
        Rejected: an option is invalid, the function cannot be pickled, or the workspace cannot be packed.
        IrisError: the store does not accept the files.
    """
    directory = await asyncio.to_thread(_workspace, workspace, "workdir" in options)
    spec = job_spec(current_user(), _command(work, args, kwargs), **options)
    # On a cluster of this machine, a program without files of its own starts here. A container does not have this directory.
    if spec.workdir is None and directory is None and spec.image is None and cluster.supervisor is not None:
        spec = spec.model_copy(update={"workdir": str(Path.cwd())})
    store = Store(cluster.store)
    if callable(work):
        with await asyncio.to_thread(pack_call, work, args, kwargs, directory) as packed:
            spec = spec.model_copy(update={"call": await upload(store, packed)})
    if directory is not None:
        with await asyncio.to_thread(pack, directory) as packed:
            spec = spec.model_copy(update={"bundle": await upload(store, packed)})
    return spec


def _command(work: Work, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[str]:
    """Returns the words of the program, or the name of the function."""
    if callable(work):
        return (function_name(work),)
    words = [work, *args] if isinstance(work, str) else [*work, *args]
    for word in words:
        if not isinstance(word, str):
            raise InvalidValue(
                "command", word, f"is a {type(word).__name__}, not a text", "pass words, such as 'python', 'train.py'"
            )
    if kwargs:
        raise InvalidValue("kwargs", ", ".join(kwargs), "are arguments of a function, not of a program", "pass words")
    return words


def _workspace(given: Path | str | bool | None, has_workdir: bool) -> Path | None:
    if given is False:
        return None
    if given is None or given is True:
        here = Path.cwd()
        return here if given or (not has_workdir and is_project(here)) else None
    return Path(given)
