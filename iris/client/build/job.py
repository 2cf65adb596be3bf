"""Makes the job that a Python program submits: its specification, and its files in the store."""

import asyncio
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from iris.client.build.child_digest import work_of_call
from iris.client.build.draft import JobDraft, PlannedJob, plan
from iris.client.build.entrypoint import Entrypoint
from iris.client.build.files import FileOptions, choose_files
from iris.client.build.options import JobOptions, draft_of
from iris.client.build.parent import EnclosingJob
from iris.client.build.send import send
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.identity import current_user
from iris.client.functions.call import function_name, pack_call
from iris.client.functions.interpreter import for_pickles, is_bare, own_interpreter
from iris.client.secrets.sealing import check_secrets
from iris.client.workspace.upload import upload
from iris.model.errors import InvalidValue
from iris.model.job.array_tables import table_of
from iris.model.job.spec import JobSpec
from iris.storage.object_store import Store

#: The work that a job runs: a function, a program with or without arguments, or an `Entrypoint`.
Work = Callable[..., Any] | str | Sequence[str] | Entrypoint[Any]


async def make_job(
    cluster: ClusterRecord,
    work: Work,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    workspace: Path | str | bool | None,
    within: EnclosingJob | None = None,
    **options: Unpack[JobOptions],
) -> JobSpec:
    """Checks the options, uploads the function and the workspace, and returns the job.

    Args:
        workspace: the directory whose files the job gets. True is the current directory. None is
            the current directory if it is a project. False sends no files.
        within: the job in which this program runs. The new job becomes its child.

    Raises:
        Rejected: an option is invalid, the function cannot be pickled, or the workspace cannot be
            packed.
        IrisError: the store does not accept the files.
    """
    entry = _entrypoint(work, args, kwargs)
    draft = _draft(entry, workspace, **options)
    planned = await _planned(cluster, entry, draft, within, options.get("params") or ())
    if planned.spec.secrets:
        for warning in await check_secrets(cluster, planned.spec):
            warnings.warn(warning, stacklevel=4)
    if callable(entry.work):
        root = _root(draft, planned, within)
        planned = planned.with_spec(await _with_call(cluster, entry, planned.spec, root, **options))
    (spec,) = await send(cluster, [planned])
    return spec


async def importable_from(
    workspace: Path | str | bool | None,
    within: EnclosingJob | None = None,
    **options: Unpack[JobOptions],
) -> Path | None:
    """Returns the directory whose files such a job gets. Returns None if the job gets no files.

    Args:
        workspace, within, options: as for `make_job`.
    """
    files = _files(workspace, draft_of(current_user(), (), **options).files)
    if within is not None and files.inherits(within):
        return within.root
    # Only requirements files depend on `shares_files`.
    chosen = await asyncio.to_thread(choose_files, files, shares_files=False)
    return chosen.directory


def _entrypoint(work: Work, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Entrypoint[Any]:
    if not isinstance(work, Entrypoint):
        return Entrypoint(work, tuple(args), kwargs)
    if args or kwargs:
        raise InvalidValue(
            "arguments",
            ", ".join([*map(repr, args), *kwargs]),
            "are given beside an entry point, which has its own",
            "put them into the entry point",
        )
    return work


def _draft(
    entry: Entrypoint[Any], workspace: Path | str | bool | None, **options: Unpack[JobOptions]
) -> JobDraft:
    """Returns the job that the program asks for."""
    draft = draft_of(current_user(), _command(entry), **options)
    params = options.get("params")
    return replace(
        draft,
        files=_files(workspace, draft.files),
        # A function gets its parameters with its arguments.
        table=None if params is None or callable(entry.work) else table_of(params),
    )


def _files(workspace: Path | str | bool | None, options: FileOptions) -> FileOptions:
    directory = Path(workspace) if isinstance(workspace, str) else workspace
    return replace(options, workspace=directory)


def _command(entry: Entrypoint[Any]) -> Sequence[str]:
    """Returns the words of the program, or the name of the function."""
    work, args, kwargs = entry.work, entry.args, entry.kwargs
    if callable(work):
        return (function_name(work),)
    if not isinstance(work, str | Sequence) or isinstance(work, bytes):
        raise InvalidValue(
            "work",
            work,
            "is neither a function nor a program",
            "pass a function, or words: 'python', 'train.py'",
        )
    words = [work, *args] if isinstance(work, str) else [*work, *args]
    if isinstance(work, str) and not args and len(parts := work.split()) > 1:
        remedy = (
            f"pass each word: {', '.join(map(repr, parts[:4]))}; or a shell: 'sh', '-c', {work!r}"
        )
        problem = "is one text, so all of it is taken as the name of a program"
        raise InvalidValue("work", work, problem, remedy)
    for word in words:
        if not isinstance(word, str):
            problem = f"is a {type(word).__name__}, not a text"
            raise InvalidValue("command", word, problem, "pass words, such as 'python', 'train.py'")
    if kwargs:
        problem = "are arguments of a function, not of a program"
        raise InvalidValue("kwargs", ", ".join(kwargs), problem, "pass words")
    return words


async def _planned(
    cluster: ClusterRecord,
    entry: Entrypoint[Any],
    draft: JobDraft,
    within: EnclosingJob | None,
    params: Sequence[Mapping[str, Any]],
) -> PlannedJob:
    def digest(spec: JobSpec) -> str:
        assert callable(entry.work)
        return work_of_call(entry.work, [*entry.args, *params], entry.kwargs, spec, os.environ)

    return await asyncio.to_thread(
        plan,
        draft,
        shares_files=cluster.supervisor is not None,
        within=within,
        digest=digest if callable(entry.work) else None,
    )


def _root(draft: JobDraft, planned: PlannedJob, within: EnclosingJob | None) -> Path | None:
    """Returns the directory of the files that the job gets, its own or its parent's."""
    if within is not None and draft.files.inherits(within):
        return within.root
    return planned.files.directory


async def _with_call(
    cluster: ClusterRecord,
    entry: Entrypoint[Any],
    spec: JobSpec,
    root: Path | None,
    **options: Unpack[JobOptions],
) -> JobSpec:
    """Returns the job with its function, which is pickled and uploaded.

    Args:
        root: the directory of the job's files.
    """
    assert callable(entry.work)
    spec = await asyncio.to_thread(for_pickles, spec, root, options.get("environment"))
    bare = is_bare(spec, root)
    python = own_interpreter(cluster) if bare else None
    with await asyncio.to_thread(
        pack_call,
        entry.work,
        entry.args,
        entry.kwargs,
        root,
        options.get("params"),
        python,
        bare=bare and python is None,
    ) as packed:
        return spec.model_copy(update={"call": await upload(Store(cluster.store), packed)})
