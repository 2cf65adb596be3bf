"""Reads what the environment of a program depends on in the program's directory: a project for uv,
requirements files, or a project of setuptools.
"""

import errno
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from iris.activities.host.environment.job_files import INVALID_INPUT, read
from iris.activities.host.runtimes.base import JobFault
from iris.model.job import setup_files
from iris.model.job.environments import EnvironmentSpec
from iris.model.units import MIB

#: The files that `uv sync` reads from a project, besides the source code that it builds into
#: packages.
FILES = ("pyproject.toml", "uv.lock", "uv.toml", ".python-version")
#: The requirements file that is installed for a program without a project.
REQUIREMENTS = "requirements.txt"
#: The size limit of a `pyproject.toml`, and the size limit of a lock file or a requirements file,
#: in bytes.
MOST_PROJECT, MOST_LIST = 4 * MIB, 64 * MIB
#: Matches a line of a requirements file that includes another file.
_NESTED = re.compile(r"(?:-r|-c|--requirements?|--constraints?)(?:\s+|=)?(?P<path>\S.*)")
#: Matches a line of a requirements file that names a local file or directory.
_FILES = re.compile(r"(?:-e|-f|--editable|--find-links)\b")


class Project(NamedTuple):
    """A project that `uv sync` can install."""

    #: The name of the project; empty if the directory only has workspace members.
    name: str
    #: True if the project has a `uv.lock`, so that uv does not resolve its packages again.
    locked: bool
    #: True if uv builds and installs this project or another member of its workspace. The
    #: environment then contains a copy of the code.
    built: bool
    #: How many directories above the project the root of its workspace is; 0 if the project is not
    #: a member of another project's workspace.
    above: int = 0


def find_project(directory: Path, root: Path | None = None) -> Project | None:
    """Returns the project of this directory; None if the directory has no `pyproject.toml`, or one
    that only configures tools.

    Args:
        root: the directory of all the program's files. The root of the project's workspace may be
            between `root` and `directory`.

    Raises:
        JobFault: a `pyproject.toml` cannot be read.
    """
    document = _document(directory)
    project, uv = _table(document, "project"), _table(_table(document, "tool"), "uv")
    if "project" not in document and "workspace" not in uv:
        return None
    above = 0 if "workspace" in uv else _above(directory, root or directory)
    return Project(
        name=str(project.get("name", "")),
        locked=(directory.joinpath(*[".."] * above) / "uv.lock").is_file(),
        built=bool(uv.get("package", "build-system" in document))
        or above > 0
        or "workspace" in uv
        or _reads_other_files(project)
        or _has_sources_here(uv),
        above=above,
    )


def indexes_of_lock(directory: Path, project: Project) -> list[str]:
    """Returns the URLs of the package indexes in the lock of the project in this directory."""
    try:
        text = read(directory.joinpath(*[".."] * project.above) / "uv.lock", MOST_LIST).decode()
    except (OSError, ValueError):  # uv itself reports this error
        return []
    return sorted(set(re.findall(r'registry = "(https?://[^"\s]+)"', text)))


def is_here(requirement: str) -> bool:
    """Returns True if a requirement names local files instead of a package of an index."""
    text = requirement.partition("@")[2].strip() if " @ " in requirement else requirement.strip()
    return text.startswith((".", "/", "file:")) or (
        text.endswith((".whl", ".tar.gz", ".zip")) and "://" not in text
    )


def hash_of_requirements(directory: Path, path: str) -> tuple[dict[str, str], bool]:
    """Returns the SHA-256 of a requirements file and of the files that it includes, by path, and
    whether any of them names local files to install.

    Args:
        directory: the directory of the program, to which `path` may be relative.

    Raises:
        OSError: a file is too large.
    """
    found: dict[str, str] = {}
    local = False
    waiting = [directory / path]
    while waiting:
        file = waiting.pop()
        if str(file) in found:
            continue
        data = _read(file)
        found[str(file)] = hashlib.sha256(data).hexdigest()
        for line in _lines(data.decode(errors="replace")):
            if (nested := _NESTED.fullmatch(line)) is not None and "://" not in nested["path"]:
                waiting.append(file.parent / nested["path"].strip("'\""))
            elif _FILES.match(line) or is_here(line) or _is_there(directory / line):
                local = True
    # The paths are relative, because attempts in different directories share an environment.
    return {path.removeprefix(f"{directory}/"): digest for path, digest in found.items()}, local


def with_its_packages(spec: EnvironmentSpec, directory: Path) -> tuple[EnvironmentSpec, str]:
    """Returns the spec with the packages that a directory without a project for uv declares, and a
    line for the user, which may be empty.

    Raises:
        JobFault: the project cannot be installed.
        OSError: a file cannot be read.
    """
    declared: tuple[str, ...] = ()
    if (directory / REQUIREMENTS).is_file():
        declared = (f"-r {REQUIREMENTS}",)
        if not spec.extras:
            return spec.model_copy(update={"pip": (*declared, *spec.pip)}), ""
    script, config = (_text(directory / name) for name in (setup_files.SCRIPT, setup_files.CONFIG))
    has_pyproject = (directory / setup_files.PYPROJECT).exists()
    if setup_files.installs_itself(script, config, has_pyproject=has_pyproject):
        this = f".[{','.join(spec.extras)}]" if spec.extras else "."
        return spec.model_copy(update={"pip": (*declared, this, *spec.pip), "extras": ()}), ""
    if setup_files.lacks_a_build(script, config, has_pyproject=has_pyproject):
        reason = setup_files.cannot_build("the project")
        raise JobFault(f"set-up failed: {reason}", INVALID_INPUT)
    return spec, setup_files.not_installed({each.name for each in directory.iterdir()})


def _document(directory: Path) -> dict[str, Any]:
    """Returns the content of the directory's `pyproject.toml`; empty if the file does not exist."""
    try:
        text = read(directory / "pyproject.toml", MOST_PROJECT).decode()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise JobFault(
            f"set-up failed: pyproject.toml cannot be read: {error}", INVALID_INPUT
        ) from None
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise JobFault(
            "set-up failed: pyproject.toml is not TOML: it is nested too deep", INVALID_INPUT
        ) from None
    except ValueError as error:  # a number may have too many digits for an integer, too
        raise JobFault(
            f"set-up failed: pyproject.toml is not TOML: {error}", INVALID_INPUT
        ) from None


def _above(directory: Path, root: Path) -> int:
    """Returns how many directories above the project the nearest root of a workspace is; 0 if there
    is no such root.
    """
    inner = directory.relative_to(root).parts
    for above in range(1, len(inner) + 1):
        if "workspace" in _table(_table(_document(root.joinpath(*inner[:-above])), "tool"), "uv"):
            return above
    return 0


def _reads_other_files(project: dict[str, Any]) -> bool:
    """Returns True if the dependencies of the project are in other files than `pyproject.toml`."""
    dynamic = project.get("dynamic")
    return isinstance(dynamic, list) and not {"dependencies", "optional-dependencies"}.isdisjoint(
        map(str, dynamic)
    )


def _has_sources_here(uv: dict[str, Any]) -> bool:
    """Returns True if some of the project's dependencies are in the same directory tree."""
    sources = json.dumps(uv.get("sources", {}), default=str)
    return '"path":' in sources or '"workspace":' in sources or bool(uv.get("find-links"))


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    table = document.get(name)
    return table if isinstance(table, dict) else {}


def _read(file: Path) -> bytes:
    """Returns the content of a requirements file; empty if it cannot be read, which uv reports."""
    try:
        return read(file, MOST_LIST)
    except (OSError, ValueError) as error:
        # Two files that are too large to read must not count as equal.
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            raise
        return b""


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a requirement with its hashes is longer than any path
        return False


def _lines(text: str) -> Iterator[str]:
    """Yields the lines without comments. A backslash at the end joins a line to the next one."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        if stripped := re.sub(r"(?:^|\s)#.*$", "", line).strip():
            yield stripped


def _text(file: Path) -> str:
    return read(file, MOST_PROJECT).decode(errors="replace") if file.is_file() else ""
