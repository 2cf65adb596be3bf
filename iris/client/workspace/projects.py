"""Finds the files that a project needs besides its own directory, and its version if git has it.

Refuses a project that hosts cannot install from the files that they get, before a machine costs
money.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from iris.client.workspace.files import ignore_spec
from iris.client.workspace.git import Repository
from iris.model.errors import InvalidValue, Rejected
from iris.model.job import setup_files

_PROJECT = "pyproject.toml"
#: The environment variables that give a build backend the project's version, so that it does not
#: read the version from git. `{}` stands for the project's name.
_VERSION_VARIABLES = {
    "setuptools-scm": "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_{}",
    # hatch-vcs does not tell setuptools-scm the project's name
    "hatch-vcs": "SETUPTOOLS_SCM_PRETEND_VERSION",
    "pdm-backend": "PDM_BUILD_SCM_VERSION",
    "uv-dynamic-versioning": "UV_DYNAMIC_VERSIONING_BYPASS",
    "poetry-dynamic-versioning": "POETRY_DYNAMIC_VERSIONING_BYPASS",
}
#: The pattern of a git tag with a version: `v1.2`, or `study-1.2rc1` with the project's name.
_TAG = re.compile(
    r"(?:.*[-_/])?v?(?P<version>\d+(?:\.\d+)*(?:\.?(?:a|b|rc|post|dev)\d+)*)", re.IGNORECASE
)
#: The pattern of a line in a requirements file that names another file or directory.
_NAMED_FILE = re.compile(
    r"(?:-[erc]|--editable|--requirements?|--constraints?)[\s=]*(?P<option>[^\s#;:@+]+)(?=\s|$)"
    r"|(?P<path>\.{0,2}/[^\s#;]*)"
)
#: The number of micro versions of Python, such as 3.11.0 and 3.11.1, that are checked against a
#: condition on the version. No minor version has so many.
_MOST_RELEASES = 60
_CLAUSE = re.compile(r"(~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?")
_PIN = re.compile(r"(?:c?python[-@]?)?(\d+)\.(\d+)(?:\.\d+)?")


class ProjectFiles(NamedTuple):
    """The directory that is sent for a project, and the location of the project in it."""

    #: The directory to send.
    root: Path
    #: The project's directory below the root. Empty if the project is in the root.
    project: str = ""


def workspace_root(directory: Path) -> Path | None:
    """Returns the root of the uv workspace that has the project in this directory as a member.
    Returns None if the project is no member.

    Raises:
        Rejected: a `pyproject.toml` cannot be read.
    """
    directory = directory.resolve()
    if not (directory / _PROJECT).is_file():
        return None
    for parent in directory.parents:
        workspace = _workspace(_read(parent))
        if workspace is not None:
            return parent if directory in _members(parent, workspace) else None
    return None


def locate_project(root: Path, project: str | None) -> ProjectFiles:
    """Returns the project in the files of this directory.

    Args:
        project: the directory of the project, relative to the root or to the current directory.
            None is the root.

    Raises:
        Rejected: the project is not a directory below the root.
    """
    if project is None:
        return ProjectFiles(root)
    for directory in (root / project, Path(project)):
        if directory.is_dir() and directory.resolve().is_relative_to(root.resolve()):
            inner = directory.resolve().relative_to(root.resolve())
            return ProjectFiles(root, "" if inner == Path() else inner.as_posix())
    raise Rejected(
        f"project: {root} has no directory {project!r}; write its path relative to --workspace"
    )


def project_at(directory: Path) -> ProjectFiles:
    """Returns the files of the project in this directory. A member of a uv workspace needs the
    files of the workspace.

    Raises:
        Rejected: a `pyproject.toml` cannot be read.
    """
    root = workspace_root(directory)
    return (
        locate_project(directory, None)
        if root is None
        else locate_project(root, str(directory.resolve()))
    )


def build_variables(
    files: ProjectFiles, given: Mapping[str, str], *, shares_files: bool
) -> dict[str, str]:
    """Returns the variables for the build of the project, after a check that hosts get all files
    that it needs.

    Args:
        given: the variables that the job sets itself.
        shares_files: whether hosts have the files of this machine, by their absolute paths.

    Raises:
        Rejected: the project cannot be installed from these files.
    """
    check_sources(files, shares_files=shares_files)
    return version_variables(files, given)


def check_sources(files: ProjectFiles, *, shares_files: bool) -> None:
    """Refuses a project that depends on files of this machine that are not sent.

    Args:
        shares_files: whether hosts have the files of this machine, by their absolute paths.

    Raises:
        Rejected: a dependency is outside the directory; the message names the options that send it.
    """
    root = files.root.resolve()
    directory = root / files.project
    for place, document in _documents(root, directory):
        for name, source in _sources(document):
            path = source.get("path")
            if source.get("workspace") is True and not _in_workspace(place, root):
                raise Rejected(_needs_workspace(place, root, name))
            if not isinstance(path, str) or (shares_files and Path(path).is_absolute()):
                continue
            target = (place / path).resolve()
            if not target.is_relative_to(root):
                raise Rejected(_outside(directory, place / _PROJECT, name, path, target))
    requirements = directory / "requirements.txt"
    if _lacks_a_build(directory):
        raise Rejected(f"project: {setup_files.cannot_build(directory)}")
    if not (directory / _PROJECT).is_file() and requirements.is_file():
        for path in requirement_paths(requirements):
            target = (directory / path).resolve()
            if (
                target.exists()
                and not target.is_relative_to(root)
                and not (shares_files and Path(path).is_absolute())
            ):
                raise Rejected(_outside(directory, requirements, path, path, target))


def version_variables(files: ProjectFiles, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that tell the build backends of the projects their version, as git
    describes it.

    Args:
        given: the variables that the job sets itself.

    Raises:
        Rejected: git has no version of such a project, and nothing else gives one.
    """
    root = files.root.resolve()
    found: dict[str, str] = {}
    for place, document in _documents(root, root / files.project):
        variable, tool = _version_variable(place, document)
        if variable is None or variable in given or variable in found:
            continue
        version = os.environ.get(variable) or _described(place)
        if version is not None:
            found[variable] = version
        elif not _has_fallback(place, document):
            raise Rejected(
                f"project: {tool} takes the version of {place} from git, but git has no commit"
                f" there; commit the project, or set the version with --env {variable}=VERSION"
            )
    return found


def is_installed(files: ProjectFiles) -> bool:
    """Returns whether hosts make an environment for the project.

    Raises:
        Rejected: its `pyproject.toml` cannot be read.
    """
    directory = files.root / files.project
    document = _read(directory)
    if "project" in document or _workspace(document) is not None:
        return True
    return (directory / "requirements.txt").is_file() or _installs_itself(directory)


def check_python(files: ProjectFiles, version: tuple[int, int]) -> None:
    """Checks that the project's environment can have this minor version of Python.

    Raises:
        InvalidValue: the project requires or pins another version.
        Rejected: its `pyproject.toml` cannot be read.
    """
    directory = files.root / files.project
    project, shown = _table(_read(directory), "project"), ".".join(map(str, version))
    remedy = "submit from a Python of the project, for example with `uv run`, or change the file"
    required = project.get("requires-python")
    if isinstance(required, str) and not _admits(required, version):
        raise InvalidValue(
            "python",
            shown,
            f"is excluded by requires-python = {required!r} in {directory / _PROJECT}",
            remedy,
        )
    pins = (
        parent / ".python-version"
        for parent in (directory, *directory.parents)
        if parent.is_relative_to(files.root)
    )
    pin = next((each for each in pins if each.is_file()), None)
    if (
        project
        and pin is not None
        and (pinned := _pinned(pin.read_text(errors="replace"))) not in (None, version)
    ):
        raise InvalidValue(
            "python",
            shown,
            f"differs from the version in {pin}, {'.'.join(map(str, pinned))}",
            remedy,
        )


def _read(directory: Path) -> dict[str, Any]:
    """Returns the content of the directory's `pyproject.toml`. It is empty if there is no such
    file.
    """
    try:
        content = (directory / _PROJECT).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise Rejected(
            f"project: {directory / _PROJECT} cannot be read ({error.strerror}); fix it, or use"
            " --no-sync"
        ) from None
    import tomllib  # many jobs have no project

    try:
        return tomllib.loads(content.decode())
    except ValueError as error:
        raise Rejected(
            f"project: {directory / _PROJECT} is not TOML: {error}; fix it, or use --no-sync"
        ) from None


def _table(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    table: Any = document
    for name in names:
        table = table.get(name) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def _workspace(document: Mapping[str, Any]) -> dict[str, Any] | None:
    uv = _table(document, "tool", "uv")
    return _table(uv, "workspace") if "workspace" in uv else None


def _members(root: Path, workspace: Mapping[str, Any]) -> list[Path]:
    """Returns the directories of a workspace's members, without the root."""
    excluded = ignore_spec(f"/{each}" for each in _texts(workspace.get("exclude")))
    found: set[Path] = set()
    for pattern in _texts(workspace.get("members")):
        try:
            found.update(path for path in root.glob(pattern) if (path / _PROJECT).is_file())
        except (ValueError, NotImplementedError, OSError):  # uv reports the wrong pattern
            continue
    return sorted(
        path
        for path in found
        if path != root and not excluded.match_file(f"{os.path.relpath(path, root)}/")
    )


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _documents(root: Path, directory: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yields the project in this directory and all projects of its workspace, because uv reads the
    workspace as a whole.
    """
    yield directory, _read(directory)
    for parent in (directory, *directory.parents):
        if not parent.is_relative_to(root):
            return
        document = _read(parent)
        workspace = _workspace(document)
        if workspace is None:
            continue
        members = _members(parent, workspace)
        if parent == directory or directory in members:
            yield from (
                (place, _read(place))
                for place in [*members, *([parent] if parent != directory else [])]
            )
        return


def _sources(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in _table(document, "tool", "uv", "sources").items():
        yield from (
            (name, each)
            for each in (value if isinstance(value, list) else [value])
            if isinstance(each, dict)
        )


def _in_workspace(place: Path, root: Path) -> bool:
    """Returns whether the root of the project's workspace is among the files."""
    if _workspace(_read(place)) is not None:
        return True
    found = workspace_root(place)
    return found is not None and found.is_relative_to(root)


def requirement_paths(requirements: Path) -> list[str]:
    """Returns the paths of the other files and directories that a requirements file names."""
    try:
        lines = requirements.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):  # the host reports the unreadable file
        return []
    named = (_NAMED_FILE.match(line.strip()) for line in lines)
    return [match["option"] or match["path"] for match in named if match is not None]


def _installs_itself(directory: Path) -> bool:
    """Returns whether hosts install a directory without `[project]`, because its build declares
    something to install.
    """
    if (directory / "requirements.txt").is_file():
        return False
    has_pyproject = (directory / _PROJECT).exists()
    return setup_files.installs_itself(*_setup_texts(directory), has_pyproject=has_pyproject)


def _lacks_a_build(directory: Path) -> bool:
    """Returns whether nothing of the directory is installed, although its `setup.cfg` declares
    it.
    """
    if (directory / "requirements.txt").is_file():
        return False
    has_pyproject = (directory / _PROJECT).exists()
    return setup_files.lacks_a_build(*_setup_texts(directory), has_pyproject=has_pyproject)


def _setup_texts(directory: Path) -> tuple[str, str]:
    """Returns the texts of `setup.py` and `setup.cfg`. The text of a missing or unreadable file is
    empty; the host reports the problem.
    """
    texts = {setup_files.SCRIPT: "", setup_files.CONFIG: ""}
    for name in texts:
        with suppress(OSError):
            texts[name] = (directory / name).read_text(encoding="utf-8", errors="replace")
    return texts[setup_files.SCRIPT], texts[setup_files.CONFIG]


def _needs_workspace(place: Path, root: Path, name: str) -> str:
    found = workspace_root(place)
    if found is None:
        return (
            f"project: {name} is a package of a uv workspace, and {place} is in none; fix its"
            f" {_PROJECT}, or use --no-sync"
        )
    return (
        f"project: {name} is another package of the uv workspace {found}, which is not sent; send"
        f" it with: --workspace {found} --project {place.relative_to(found).as_posix()}"
    )


def _outside(project: Path, file: Path, name: str, path: str, target: Path) -> str:
    common = Path(os.path.commonpath([project, target]))
    remedy = "copy it into the workspace"
    if common != Path("/"):
        remedy = (
            f"send both with: --workspace {common} --project"
            f" {project.relative_to(common).as_posix()}"
        )
    what = f"{path}" if name == path else f"{name} in {path}"
    return f"project: {file} depends on {what}, which is outside the files that are sent; {remedy}"


def _version_variable(place: Path, document: Mapping[str, Any]) -> tuple[str | None, str]:
    """Returns the variable for the version of this project, and the tool that reads it. The
    variable is None if the version is not in git.
    """
    if "project" not in document and _installs_itself(place):
        requires = _texts(_table(document, "build-system").get("requires"))
        return setup_files.version_variable(*_setup_texts(place), requires)
    project = _table(document, "project")
    if "version" not in _texts(project.get("dynamic")):
        return None, ""
    required = {
        re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=!~;@(]", each.strip(), maxsplit=1)[0]).lower()
        for each in _texts(_table(document, "build-system").get("requires"))
    }
    if _table(document, "tool", "pdm", "version").get("source") != "scm":
        required.discard("pdm-backend")
    for tool in _VERSION_VARIABLES:
        if tool in required:
            name = re.sub(r"[-_.]+", "_", str(project.get("name", ""))).upper()
            return _VERSION_VARIABLES[tool].format(name), tool
    return None, ""


def _has_fallback(place: Path, document: Mapping[str, Any]) -> bool:
    """Returns whether the build backend finds a version without git."""
    named = json.dumps(_table(document, "tool"), default=str)
    files = ("PKG-INFO", ".git_archival.txt", ".git_archival.json", ".hg")
    return "fallback" in named or any((place / file).exists() for file in files)


def _described(directory: Path) -> str | None:
    """Returns the version of the directory's commit, as setuptools-scm writes it. Returns None if
    there is no commit or no git.

    A commit after a tag has the next version: `1.2.4.dev3+g1234567` is three commits after 1.2.3. A
    work tree with changes ends with `.dirty`.
    """
    try:
        repository = Repository.around(directory.resolve())
        if repository is None:
            return None
        dirty = any(not line.startswith("#") for line in repository.status(repository.top, "no"))
    except Rejected:
        return None
    described = _answer(
        repository, "describe", "--tags", "--long", "--abbrev=7", "--match", "*[0-9]*"
    )
    if described is not None:
        tag, distance, commit = described.rsplit("-", 2)
        match = _TAG.fullmatch(tag)
        if match is not None:
            return _version(match["version"], int(distance), commit, dirty=dirty)
    count, sha = (
        _answer(repository, "rev-list", "--count", "HEAD"),
        _answer(repository, "rev-parse", "--short=7", "HEAD"),
    )
    if count is None or sha is None:
        return None
    return _version("0.0", int(count), f"g{sha}", dirty=dirty)


def _version(tag: str, distance: int, commit: str, *, dirty: bool) -> str:
    if distance == 0 and not dirty:
        return tag
    following = re.sub(
        r"\d+$", lambda number: str(int(number[0]) + 1), re.sub(r"\.?dev\d+$", "", tag)
    )
    return f"{following}.dev{distance}+{commit}{'.dirty' if dirty else ''}"


def _answer(repository: Repository, *arguments: str) -> str | None:
    """Returns git's answer. Returns None if git fails."""
    try:
        return repository.ask(*arguments).strip()
    except Rejected:
        return None


def _admits(requires: str, version: tuple[int, int]) -> bool:
    """Returns whether a release of this minor version satisfies a specifier such as `>=3.11,<3.13`.

    Only plain comparisons of releases are checked. The resolver checks other clauses.
    """
    clauses = [
        match.groups() for each in requires.split(",") if (match := _CLAUSE.fullmatch(each.strip()))
    ]
    releases = ((*version, micro) for micro in range(_MOST_RELEASES))
    return any(all(_holds(release, *clause) for clause in clauses) for release in releases)


def _pinned(text: str) -> tuple[int, int] | None:
    """Returns the first minor version in the text of a file `.python-version`. Returns None if the
    text names no version of CPython.
    """
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    match = _PIN.fullmatch(first)
    return (int(match[1]), int(match[2])) if match is not None else None


def _holds(release: tuple[int, ...], operator: str, text: str, star: str | None) -> bool:
    named = tuple(map(int, text.split(".")))
    wanted = (*named, 0, 0)[: max(3, len(named))]
    matches = release[: len(named)] == named if star else release == wanted
    match operator:
        case "==":
            return matches
        case "!=":
            return not matches
        case "~=":
            return release >= wanted and release[: len(named) - 1] == named[:-1]
        case ">=":
            return release >= wanted
        case "<=":
            return release <= wanted
        case ">":
            return release > wanted
        case _:
            return release < wanted
