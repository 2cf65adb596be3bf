"""Reads the project in a program's directory, as far as the program's environment depends on it."""

import hashlib
import json
import os
import re
import stat
import threading
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from iris.activities.host.runtimes import trees
from iris.activities.host.runtimes.base import CannotStart
from iris.activities.host.runtimes.threads import Stopped

#: Files that `uv sync` reads of a project, besides the sources of the packages that it builds.
FILES = ("pyproject.toml", "uv.lock", "uv.toml", ".python-version")
#: The exit code of a set-up that fails before its first command: the code that uv uses for input that it does not understand.
_NO_SENSE = 2


class Project(NamedTuple):
    """A project that `uv sync` can install."""

    #: Empty: the directory is not a project itself and only has workspace members.
    name: str
    #: True if there is a `uv.lock`: nothing is resolved again.
    locked: bool
    #: True if the project, or one beside it, is built and installed: the environment then has a copy of its code.
    built: bool
    #: How many directories the root of its workspace is above the project; 0: it is not a member of another one's workspace.
    above: int = 0


def find_project(directory: Path, root: Path | None = None) -> Project | None:
    """Returns the project of this directory. None: there is no `pyproject.toml`, or it only configures tools.

    Args:
        root: the directory of all the program's files. The root of the project's workspace may be between the two.

    Raises:
        CannotStart: a `pyproject.toml` cannot be read.
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


def _above(directory: Path, root: Path) -> int:
    """Returns how many directories above the project the nearest root of a workspace is; 0: there is none."""
    inner = directory.relative_to(root).parts
    for above in range(1, len(inner) + 1):
        if "workspace" in _table(_table(_document(root.joinpath(*inner[:-above])), "tool"), "uv"):
            return above
    return 0


def _document(directory: Path) -> dict[str, Any]:
    """Returns the content of the directory's `pyproject.toml`; empty: there is none.

    Raises:
        CannotStart: it cannot be read.
    """
    try:
        text = (directory / "pyproject.toml").read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise CannotStart(f"set-up failed: pyproject.toml cannot be read: {error}", _NO_SENSE) from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CannotStart(f"set-up failed: pyproject.toml is not TOML: {error}", _NO_SENSE) from None


def indexes_of_lock(directory: Path, project: Project) -> list[str]:
    """Returns the URLs of the package indexes that the lock of the project in this directory names."""
    try:
        text = (directory.joinpath(*[".."] * project.above) / "uv.lock").read_text(encoding="utf-8")
    except (OSError, ValueError):  # uv itself reports this error
        return []
    return sorted(set(re.findall(r'registry = "(https?://[^"\s]+)"', text)))


def hash_of(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Returns the SHA-256 of each of the files that exists, by name."""
    return {name: _hash(directory / name) for name in names if (directory / name).is_file()}


def hash_of_all(directory: Path, stop: threading.Event) -> str:
    """Returns one SHA-256 of all files below the directory, with their names. A link counts by its target."""
    whole = hashlib.sha256()
    for visit in trees.visits(directory):
        for name in () if visit.left else visit.names:
            if stop.is_set():
                raise Stopped
            mode = os.lstat(name, dir_fd=visit.at).st_mode
            if stat.S_ISLNK(mode):
                content = os.readlink(name, dir_fd=visit.at)
            elif stat.S_ISREG(mode):
                content = _hash(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=visit.at))
            else:
                continue
            whole.update(json.dumps(["/".join((*visit.steps, name)), content]).encode() + b"\n")
    return whole.hexdigest()


def is_here(requirement: str) -> bool:
    """Returns True if a requirement names files of the program's directory instead of a package of an index."""
    text = requirement.partition("@")[2].strip() if " @ " in requirement else requirement.strip()
    return text.startswith((".", "/", "file:")) or (text.endswith((".whl", ".tar.gz", ".zip")) and "://" not in text)


def _reads_other_files(project: dict[str, Any]) -> bool:
    """Returns True if the project declares its dependencies in other files than its `pyproject.toml`."""
    dynamic = project.get("dynamic")
    return isinstance(dynamic, list) and not {"dependencies", "optional-dependencies"}.isdisjoint(map(str, dynamic))


def _has_sources_here(uv: dict[str, Any]) -> bool:
    """Returns True if some of the project's dependencies lie in the same directory."""
    sources = json.dumps(uv.get("sources", {}), default=str)
    return '"path":' in sources or '"workspace":' in sources or bool(uv.get("find-links"))


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    table = document.get(name)
    return table if isinstance(table, dict) else {}


def _hash(path: Path | int) -> str:
    with open(path, "rb") as file:  # noqa: PTH123
        return hashlib.file_digest(file, "sha256").hexdigest()
