"""Selects the workspace of `iris submit`, and reports on its upload."""

import asyncio
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from iris.cli.show.progress import transfer
from iris.client.build.arrays import GivenArray
from iris.client.connect.clusters import ClusterRecord
from iris.client.workspace.extra_files import ExtraFile
from iris.client.workspace.files import commit_of, is_project
from iris.client.workspace.projects import (
    ProjectFiles,
    build_variables,
    locate_project,
    project_at,
    requirement_paths,
)
from iris.model.errors import Rejected
from iris.model.job.bundles import Bundle
from iris.model.job.demand_limits import check_demands
from iris.model.job.environments import requirements_file
from iris.model.job.spec import JobSpec
from iris.model.units import format_bytes

if TYPE_CHECKING:
    from iris.client.client import AsyncIrisClient
    from iris.client.jobs.parent import EnclosingJob
    from iris.storage.object_store import Store


def workspace_of(options: dict[str, Any]) -> Path | None:
    """Returns the directory whose files the job gets: the named one, else the current one if it is
    a project's.

    Raises:
        click.UsageError: options exclude each other.
    """
    named, none, workdir = options["workspace"], options["no_workspace"], options["workdir"]
    if named is not None and none:
        raise click.UsageError("--workspace and --no-workspace exclude each other")
    for name, given in (("--workspace", named is not None), ("--file", bool(options["file"]))):
        if workdir is not None and given:
            raise click.UsageError(
                f"--workdir and {name} exclude each other: the program starts in the workspace's"
                " files"
            )
    if named is not None:
        return Path(named)
    here = Path.cwd()
    return here if not none and workdir is None and is_project(here) else None


def inherits_files(options: dict[str, Any], within: "EnclosingJob | None") -> bool:
    """Returns whether a job gets the files of the job in which it is submitted: no option names
    others.
    """
    named = any(
        options[name] for name in ("workspace", "no_workspace", "workdir", "project", "file")
    )
    return (
        within is not None
        and within.shares_files
        and not named
        and not any(map(requirements_file, options["pip"]))
    )


def files_options(options: dict[str, Any], within: "EnclosingJob | None") -> dict[str, Any]:
    """Returns the options without the current directory as the workspace, if the job inherits its
    files.
    """
    return {**options, "no_workspace": True} if inherits_files(options, within) else options


class JobFiles(NamedTuple):
    """The files that a job gets."""

    #: None: only the extra files, if there are any.
    project: ProjectFiles | None
    extra: tuple[ExtraFile, ...]
    #: The requirements, with the files of `-r` by the paths at which hosts have them.
    pip: tuple[str, ...]

    @property
    def sent(self) -> bool:
        return self.project is not None or bool(self.extra)

    @property
    def directory(self) -> Path | None:
        return None if self.project is None else self.project.root

    def build_env(self, options: dict[str, Any], *, shares_files: bool) -> dict[str, str]:
        """Returns the variables for the build of the project, after a check that hosts get all that
        it needs.

        Args:
            shares_files: whether the hosts see the same files as this process.

        Raises:
            Rejected: the project cannot be installed from these files.
        """
        if self.project is None or options["no_sync"]:
            return {}
        return build_variables(
            self.project,
            dict(options["env"]),
            shares_files=shares_files and options["image"] is None,
        )


def files_of(options: dict[str, Any], *, shares_files: bool) -> JobFiles:
    """Returns the files that a job gets. A member of a uv workspace is sent with its workspace,
    unless `--workspace` names it.

    Args:
        shares_files: whether the hosts see the same files as this process.

    Raises:
        click.UsageError: options exclude each other.
        Rejected: a directory or a file that an option names does not exist.
    """
    directory, inner = workspace_of(options), options["project"]
    if directory is None and inner is not None:
        raise click.UsageError(
            "--project needs a workspace; name its directory with --workspace DIR"
        )
    project = None
    if directory is not None:
        implied = options["workspace"] is None and inner is None and not options["no_sync"]
        project = project_at(directory) if implied else locate_project(directory, inner)
    extra, pip = list(options["file"]), []
    for number, requirement in enumerate(options["pip"]):
        path = requirements_file(requirement)
        if path is None:
            pip.append(requirement)
            continue
        file = Path(path)
        if not file.is_file():
            raise Rejected(
                f"pip: there is no file {path!r}; write the path of a requirements file after -r"
            )
        if project is None and not options["file"] and shares_files and options["image"] is None:
            pip.append(f"-r {file.absolute()}")
            continue
        if options["workdir"] is not None:
            raise click.UsageError(
                "--workdir and --pip -r exclude each other: the file is sent, and the program"
                " starts beside it"
            )
        sent = _sent_as(file, project, number)
        extra.append(sent)
        place = sent.dest or str(
            file.resolve().relative_to(project.root.resolve()) if project is not None else file.name
        )
        pip.append(
            f"-r {os.path.relpath(place, project.project or '.') if project is not None else place}"
        )
    return JobFiles(project, tuple(extra), tuple(pip))


def _sent_as(file: Path, project: ProjectFiles | None, number: int) -> ExtraFile:
    """Returns a requirements file as a file of the job. One of the workspace keeps its place, even
    if git ignores it.

    Raises:
        Rejected: it is outside the workspace and refers to other files.
    """
    if project is not None and file.resolve().is_relative_to(project.root.resolve()):
        return ExtraFile(file.resolve())
    if paths := requirement_paths(file):
        raise Rejected(
            f"pip: {file} refers to {paths[0]}, and is not in the workspace; send both with"
            " --workspace DIR"
        )
    return ExtraFile(
        file, f".iris-requirements/{number}/{re.sub(r'[^A-Za-z0-9._-]', '-', file.name)}"
    )


async def warn_of_secrets(client: "AsyncIrisClient", specs: Iterable[JobSpec]) -> None:
    """Checks that the jobs can be given the secrets of their submitter, before anything is sent,
    and prints warnings.

    Raises:
        IrisError: one of them has no value, or the cluster can keep none.
    """
    asking = [spec for spec in specs if spec.secrets]
    if asking:
        from iris.client.secrets.sealing import check_secrets  # most jobs have no secrets

        for warning in dict.fromkeys(
            [each for spec in asking for each in await check_secrets(client.record, spec)]
        ):
            click.echo(f"warning: {warning}", err=True)


async def with_files(
    cluster: ClusterRecord, jobs: Iterable[tuple[JobSpec, dict[str, Any]]], *, quiet: bool
) -> list[JobSpec]:
    """Uploads the files of the jobs, the same ones once, and returns the jobs with them.

    Args:
        jobs: each with its options.

    Raises:
        IrisError: packing or uploading failed, or a project cannot be installed from its files.
    """
    shares_files = cluster.supervisor is not None
    bundles: dict[Any, Bundle] = {}
    build_envs: dict[Any, dict[str, str]] = {}
    commits: dict[Path | None, str] = {}
    specs = []
    for spec, _ in jobs:
        check_demands(spec)  # before the first upload
    for spec, options in jobs:
        given: GivenArray | None = options["array"]
        if given is not None and given.table is not None:
            from iris.client.workspace.upload import upload_table  # many jobs send nothing
            from iris.storage.object_store import Store

            table = await upload_table(Store(cluster.store), given.table)
            spec = spec.model_copy(
                update={"array": given.array.model_copy(update={"table": table})}
            )
        files = files_of(options, shares_files=shares_files)
        if not files.sent:
            specs.append(spec)
            continue
        of_build = (files.project, options["no_sync"], options["image"], tuple(options["env"]))
        if of_build not in build_envs:
            build_envs[of_build] = files.build_env(options, shares_files=shares_files)
        sent = (files.directory, files.extra)
        if sent not in bundles:
            from iris.storage.object_store import Store

            what = described(files, named=options["workspace"] is not None)
            bundles[sent] = await send_workspace(Store(cluster.store), *sent, what, quiet=quiet)
        environment = spec.environment.model_copy(update={"build_env": build_envs[of_build]})
        if files.directory not in commits:
            commits[files.directory] = (
                ""
                if files.directory is None
                else await asyncio.to_thread(commit_of, files.directory)
            )
        changes = {
            "bundle": bundles[sent],
            "commit": commits[files.directory],
            "environment": environment,
        }
        specs.append(spec.model_copy(update=changes))
    return specs


def described(files: JobFiles, *, named: bool) -> str:
    """Returns what is sent and why, with `{}` for the number of files.

    Args:
        named: `--workspace` names the directory; else it is sent because it is a project.
    """
    if files.directory is None:
        return "sends {}"
    if named:
        return f"sends {_escaped(files.directory)}: {{}}"
    return f"sends the project at {_escaped(files.directory)}: {{}}; --no-workspace sends none"


def _escaped(directory: Path) -> str:
    return str(directory.resolve()).replace("{", "{{").replace("}", "}}")


async def send_workspace(
    store: "Store",
    directory: Path | None,
    files: tuple[ExtraFile, ...],
    what: str,
    *,
    quiet: bool,
) -> Bundle:
    """Packs the workspace and uploads it to the store. Reports on standard error, with a bar on a
    terminal.

    Args:
        what: as of `described`. Printed before the files are read.

    Raises:
        IrisError: packing or uploading failed.
    """
    from iris.client.workspace.pack import pack
    from iris.client.workspace.upload import upload  # with the object store

    def say(count: int) -> None:
        if not quiet:
            click.echo(what.format(f"{count:,} file{'s' * (count != 1)}"), err=True)

    with await asyncio.to_thread(pack, directory, files, say) as packed:
        with transfer("workspace", shown=not quiet) as progress:
            bundle = await upload(store, packed, progress)
        if not quiet:
            result = progress.summary("uploaded") if progress.called else "unchanged, nothing sent"
            click.echo(f"workspace: {format_bytes(bundle.size)}, {result}", err=True)
        return bundle
