"""Makes the job that a Python program submits: its specification, and its files in the store."""

import asyncio
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from iris.client.build.child_digest import work_of_call, work_of_command
from iris.client.build.entrypoint import Entrypoint
from iris.client.build.options import JobOptions, job_spec
from iris.client.build.parent import EnclosingJob
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.identity import current_user
from iris.client.functions.call import function_name, pack_call
from iris.client.functions.interpreter import for_pickles, is_bare, own_interpreter
from iris.client.workspace.files import commit_of, is_project
from iris.client.workspace.pack import pack
from iris.client.workspace.projects import ProjectFiles, build_variables, locate_project, project_at
from iris.client.workspace.upload import upload, upload_table
from iris.model.errors import InvalidValue
from iris.model.job.array_tables import table_of
from iris.model.job.demand_limits import check_demands
from iris.model.job.spec import JobSpec
from iris.storage.object_store import Store

#: A function, or a program with or without its arguments, or either with its arguments.
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
        workspace: the directory whose files the job gets; None: the current one, if it is a
            project's; False: none.
        within: the job that it belongs to, whose files it gets if it names none.

    Raises:
        Rejected: an option is invalid, the function cannot be pickled, or the workspace cannot be
            packed.
        IrisError: the store does not accept the files.
    """
    entry = work if isinstance(work, Entrypoint) else Entrypoint(work, tuple(args), kwargs)
    if entry is work and (args or kwargs):
        given = ", ".join([*map(repr, args), *kwargs])
        raise InvalidValue(
            "arguments",
            given,
            "are given beside an entry point, which has its own",
            "put them into it",
        )
    work, args, kwargs = entry.work, entry.args, entry.kwargs
    params = options.get("params")
    table = None if params is None or callable(work) else table_of(params)
    spec = job_spec(current_user(), _command(work, args, kwargs), **options)
    inherits = _inherits(within, workspace, **options)
    if within is not None:
        if callable(work):
            does = await asyncio.to_thread(
                work_of_call, work, [*args, *(params or ())], kwargs, spec, os.environ
            )
        else:
            does = work_of_command([*spec.command, *map(repr, params or ())], spec, os.environ)
        named = {*options} & {"workdir", "priority"} | (set() if inherits else {"files"})
        spec = within.child(spec, does, named="name" in options, given=named)
    check_demands(spec)  # before the first upload
    if spec.secrets:
        from iris.client.secrets.sealing import check_secrets  # most jobs have no secrets

        for warning in await check_secrets(cluster, spec):
            warnings.warn(warning, stacklevel=4)
    project = (
        None if inherits else await asyncio.to_thread(_project, workspace, "workdir" in options)
    )
    # a container does not have this machine's directories
    here = cluster.supervisor is not None and spec.image is None
    changes: dict[str, Any] = {}
    if project is None and here and spec.workdir is None and not inherits:
        changes["workdir"] = str(Path.cwd())  # a program without files of its own starts here
    if project is not None and spec.environment.sync:
        build_env = await asyncio.to_thread(build_variables, project, spec.env, shares_files=here)
        changes["environment"] = spec.environment.model_copy(
            update={"project": project.project, "build_env": build_env}
        )
    spec = spec.model_copy(update=changes)
    changes = {}
    store, root = Store(cluster.store), project.root if project is not None else None
    if callable(work):
        files = within.root if within is not None and inherits else root
        spec = await asyncio.to_thread(for_pickles, spec, files, options.get("environment"))
        bare = is_bare(spec, files)
        python = own_interpreter(cluster) if bare else None
        bare = bare and python is None
        with await asyncio.to_thread(
            pack_call, work, args, kwargs, files, params, python, bare=bare
        ) as packed:
            changes["call"] = await upload(store, packed)
    if table is not None and spec.array is not None:
        changes["array"] = spec.array.model_copy(update={"table": await upload_table(store, table)})
    if root is not None:
        with await asyncio.to_thread(pack, root) as packed:
            changes["bundle"] = await upload(store, packed)
        changes["commit"] = await asyncio.to_thread(commit_of, root)
    return spec.model_copy(update=changes)


async def importable_from(
    workspace: Path | str | bool | None,
    within: EnclosingJob | None = None,
    **options: Unpack[JobOptions],
) -> Path | None:
    """Returns the directory whose files such a job gets; None: it gets none.

    Args:
        workspace, within, options: as for `make_job`.
    """
    if within is not None and _inherits(within, workspace, **options):
        return within.root
    project = await asyncio.to_thread(_project, workspace, "workdir" in options)
    return project.root if project is not None else None


def _inherits(
    within: EnclosingJob | None, workspace: Path | str | bool | None, **options: Unpack[JobOptions]
) -> bool:
    """Returns whether the job gets the files of the job that it belongs to."""
    return (
        within is not None
        and workspace is None
        and "workdir" not in options
        and within.shares_files
    )


def _command(
    work: Callable[..., Any] | Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Sequence[str]:
    """Returns the words of the program, or the name of the function."""
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
        raise InvalidValue("work", work, "is one word, the name of a program", remedy)
    for word in words:
        if not isinstance(word, str):
            raise InvalidValue(
                "command",
                word,
                f"is a {type(word).__name__}, not a text",
                "pass words, such as 'python', 'train.py'",
            )
    if kwargs:
        raise InvalidValue(
            "kwargs",
            ", ".join(kwargs),
            "are arguments of a function, not of a program",
            "pass words",
        )
    return words


def _project(given: Path | str | bool | None, has_workdir: bool) -> ProjectFiles | None:
    """Returns the files that the job gets. A member of a uv workspace comes with its workspace,
    unless it is named itself.
    """
    if given is False:
        return None
    if given is not None and given is not True:
        return locate_project(Path(given), None)
    here = Path.cwd()
    if given is None and (has_workdir or not is_project(here)):
        return None
    return project_at(here)
