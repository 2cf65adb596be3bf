"""Chooses the files that a job gets: a workspace, a project in it, and further files."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from iris.client.build.conflicts import OptionConflict, excludes
from iris.client.workspace.extra_files import ExtraFile
from iris.client.workspace.files import is_project
from iris.client.workspace.projects import (
    ProjectFiles,
    locate_project,
    project_at,
    requirement_paths,
)
from iris.model.errors import Rejected
from iris.model.job.environments import requirements_file

if TYPE_CHECKING:
    from iris.client.build.parent import EnclosingJob


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """The options that decide which files a job gets."""

    #: The directory whose files the job gets. True means the current directory. False sends no
    #: files. None sends the current directory if it is a project.
    workspace: Path | bool | None = None
    #: The directory of the project in the workspace. None if Iris finds the project.
    project: str | None = None
    #: Files that are sent even if they are ignored or outside of the workspace.
    extra: tuple[ExtraFile, ...] = ()
    #: The directory in which the program starts. It is a directory of the host or of the image.
    workdir: str | None = None
    image: str | None = None
    #: The packages to install: requirements as for pip. `-r FILE` names a requirements file of this
    #: machine. None keeps the requirements of the job's environment as they are.
    pip: tuple[str, ...] | None = None
    #: True if hosts install the project before they start the program.
    sync: bool = True
    #: The extras with which the project is installed. They are an error if there is no project.
    project_extras: tuple[str, ...] = ()

    def inherits(self, within: "EnclosingJob | None") -> bool:
        """Returns whether the job gets the files of the job in which it is submitted: no option
        names other files.
        """
        return (
            within is not None
            and within.shares_files
            and self.workspace is None
            and self.workdir is None
            and self.project is None
            and not self.extra
            and not any(map(requirements_file, self.pip or ()))
        )

    def without_workspace(self) -> Self:
        """Returns the options of a job that gets no files of a directory."""
        return replace(self, workspace=False)

    def directory(self) -> Path | None:
        """Returns the directory whose files the job gets: the named directory, or the current
        directory if it is a project.

        Raises:
            OptionConflict: options exclude each other.
        """
        named = isinstance(self.workspace, Path)
        for name, given in (("workspace", named), ("file", bool(self.extra))):
            if self.workdir is not None and given:
                why = "the program starts in the workspace's files"
                raise excludes("workdir", self.workdir, name, why)
        if isinstance(self.workspace, Path):
            return self.workspace
        here = Path.cwd()
        if self.workspace is None:
            return here if self.workdir is None and is_project(here) else None
        return here if self.workspace else None


class JobFiles(NamedTuple):
    """The files that a job gets."""

    #: The workspace and the project in it. None sends only the extra files, if there are any.
    project: ProjectFiles | None = None
    extra: tuple[ExtraFile, ...] = ()
    #: The packages to install: requirements as for pip. A `-r` is followed by the path that the
    #: requirements file has on the host. None keeps the requirements of the job's environment.
    pip: tuple[str, ...] | None = None
    #: True if the user named the workspace directory.
    is_named: bool = False

    @property
    def are_sent(self) -> bool:
        """Whether there is anything to send."""
        return self.project is not None or bool(self.extra)

    @property
    def directory(self) -> Path | None:
        """The directory whose files are sent."""
        return None if self.project is None else self.project.root


def choose_files(options: FileOptions, *, shares_files: bool) -> JobFiles:
    """Returns the files that a job gets. A member of a uv workspace is sent with its workspace,
    unless the user named the member.

    Args:
        shares_files: whether the hosts see the same files as this process.

    Raises:
        OptionConflict: options exclude each other.
        Rejected: a directory or a file that an option names does not exist.
    """
    project = _project(options)
    extra, pip = list(options.extra), options.pip
    if pip is not None:
        pip = tuple(
            _requirement(text, number, options, project, extra, shares_files=shares_files)
            for number, text in enumerate(pip)
        )
    files = JobFiles(project, tuple(extra), pip, is_named=isinstance(options.workspace, Path))
    if options.project_extras and not files.are_sent:
        raise _lacks_workspace("extra", options.project_extras, "a project in the workspace")
    return files


def _project(options: FileOptions) -> ProjectFiles | None:
    directory, inner = options.directory(), options.project
    if directory is None:
        if inner is not None:
            raise _lacks_workspace("project", inner, "a workspace")
        return None
    if isinstance(options.workspace, Path) or inner is not None or not options.sync:
        return locate_project(directory, inner)
    return project_at(directory)


def _lacks_workspace(option: str, value: str | Sequence[str], what: str) -> OptionConflict:
    text = value if isinstance(value, str) else ", ".join(value)
    usage = f"--{option} needs {what}; name its directory with --workspace DIR"
    return OptionConflict(option, text, f"needs {what}", "name its directory", usage)


def _requirement(
    text: str,
    number: int,
    options: FileOptions,
    project: ProjectFiles | None,
    extra: list[ExtraFile],
    *,
    shares_files: bool,
) -> str:
    """Returns a requirement as the host reads it, and adds the file of `-r FILE` to the extra
    files.
    """
    path = requirements_file(text)
    if path is None:
        return text
    file = Path(path)
    if not file.is_file():
        raise Rejected(
            f"pip: there is no file {path!r}; write the path of a requirements file after -r"
        )
    if project is None and not options.extra and shares_files and options.image is None:
        return f"-r {file.absolute()}"
    if options.workdir is not None:
        why = "the file is sent, and the program starts beside it"
        raise excludes("workdir", options.workdir, "pip -r", why)
    sent = _sent_as(file, project, number)
    extra.append(sent)
    if project is None:
        return f"-r {sent.dest or file.name}"
    place = sent.dest or str(file.resolve().relative_to(project.root.resolve()))
    return f"-r {os.path.relpath(place, project.project or '.')}"


def _sent_as(file: Path, project: ProjectFiles | None, number: int) -> ExtraFile:
    """Returns a requirements file as a file of the job. A file of the workspace keeps its place,
    even if git ignores it.
    """
    if project is not None and file.resolve().is_relative_to(project.root.resolve()):
        return ExtraFile(file.resolve())
    if paths := requirement_paths(file):
        raise Rejected(
            f"pip: {file} refers to {paths[0]}, and {file.name} is not in the workspace; send both"
            " with --workspace DIR"
        )
    name = re.sub(r"[^A-Za-z0-9._-]", "-", file.name)
    return ExtraFile(file, f".iris-requirements/{number}/{name}")
