"""Reads the project in a program's directory, as far as the program's environment depends on it."""

import errno
import hashlib
import json
import os
import re
import stat
import threading
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from iris.activities.host.runtimes.base import OF_THE_MACHINE, JobFault
from iris.activities.host.runtimes.cleanup import trees
from iris.activities.host.runtimes.threads import Stopped
from iris.model import setup_files
from iris.model.job.environments import EnvironmentSpec
from iris.model.units import MIB, format_bytes

#: Files that `uv sync` reads of a project, besides the sources of the packages that it builds.
FILES = ("pyproject.toml", "uv.lock", "uv.toml", ".python-version")
#: The exit code of a set-up that fails before its first command: the code that uv uses for input
#: that it does not understand.
INVALID_INPUT = 2
#: The maximum size of a `pyproject.toml`, and that of a lock or a list of packages.
MOST_PROJECT, MOST_LIST = 4 * MIB, 64 * MIB


class Project(NamedTuple):
    """A project that `uv sync` can install."""

    #: Empty: the directory is not a project itself and only has workspace members.
    name: str
    #: True if there is a `uv.lock`: nothing is resolved again.
    locked: bool
    #: True if the project, or one beside it, is built and installed: the environment then has a
    #: copy of its code.
    built: bool
    #: How many directories the root of its workspace is above the project; 0: it is not a member of
    #: another one's workspace.
    above: int = 0


def find_project(directory: Path, root: Path | None = None) -> Project | None:
    """Returns the project of this directory. None: there is no `pyproject.toml`, or it only
    configures tools.

    Args:
        root: the directory of all the program's files. The root of the project's workspace may be
            between the two.

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


def _above(directory: Path, root: Path) -> int:
    """Returns how many directories above the project the nearest root of a workspace is; 0: there
    is none.
    """
    inner = directory.relative_to(root).parts
    for above in range(1, len(inner) + 1):
        if "workspace" in _table(_table(_document(root.joinpath(*inner[:-above])), "tool"), "uv"):
            return above
    return 0


def _document(directory: Path) -> dict[str, Any]:
    """Returns the content of the directory's `pyproject.toml`; empty: there is none.

    Raises:
        JobFault: it cannot be read.
    """
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


def indexes_of_lock(directory: Path, project: Project) -> list[str]:
    """Returns the URLs of the package indexes that the lock of the project in this directory
    names.
    """
    try:
        text = read(directory.joinpath(*[".."] * project.above) / "uv.lock", MOST_LIST).decode()
    except (OSError, ValueError):  # uv itself reports this error
        return []
    return sorted(set(re.findall(r'registry = "(https?://[^"\s]+)"', text)))


def hash_of(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Returns the SHA-256 of each of the files that exists, by name."""
    return {
        name: _hash(open_regular(directory / name))
        for name in names
        if (directory / name).is_file()
    }


def hash_of_all(directory: Path, stop: threading.Event) -> str:
    """Returns one SHA-256 of all files below the directory, with their names. A link counts by its
    target.
    """
    whole = hashlib.sha256()
    for visit in trees.visits(directory):
        for name in () if visit.left else visit.names:
            if stop.is_set():
                raise Stopped
            mode = os.lstat(name, dir_fd=visit.at).st_mode
            if stat.S_ISLNK(mode):
                content = os.readlink(name, dir_fd=visit.at)
            elif stat.S_ISREG(mode):
                content = _hash(open_regular(name, visit.at, os.O_NOFOLLOW))
            else:
                continue
            whole.update(json.dumps(["/".join((*visit.steps, name)), content]).encode() + b"\n")
    return whole.hexdigest()


@contextmanager
def reading_the_jobs_files() -> Iterator[None]:
    """Blames the job for files of its own that cannot be read: it would meet them on every host.

    Raises:
        JobFault: something within raised an `OSError` that is not one of the machine.
    """
    try:
        yield
    except OSError as error:
        if error.errno in OF_THE_MACHINE:
            raise
        what = (
            f"{os.fspath(error.filename)!r} cannot be read: {error.strerror}"
            if error.filename is not None
            else str(error)
        )
        raise JobFault(f"set-up failed: {what}", INVALID_INPUT) from None


def read(file: Path, most: int) -> bytes:
    """Returns the content of a file that a job names, and that may be anything. Does not block.

    Raises:
        OSError: it cannot be read, is not a regular file, or is too large.
    """
    descriptor = open_regular(file)
    with os.fdopen(descriptor, "rb") as opened:
        size = os.fstat(descriptor).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"larger than {format_bytes(most)}", str(file))
        return opened.read(
            size
        )  # files that the kernel makes, some of which never end, have no size


def open_regular(file: Path | str, at: int | None = None, flags: int = 0) -> int:
    """Opens a file for reading if it is a regular one, and returns the descriptor. Does not block.

    Raises:
        OSError: it cannot be opened, or is something else.
    """
    descriptor = os.open(
        file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | flags, dir_fd=at
    )
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(file))
    return descriptor


def is_here(requirement: str) -> bool:
    """Returns True if a requirement names files of the program's directory instead of a package of
    an index.
    """
    text = requirement.partition("@")[2].strip() if " @ " in requirement else requirement.strip()
    return text.startswith((".", "/", "file:")) or (
        text.endswith((".whl", ".tar.gz", ".zip")) and "://" not in text
    )


def _reads_other_files(project: dict[str, Any]) -> bool:
    """Returns True if the project declares its dependencies in other files than its
    `pyproject.toml`.
    """
    dynamic = project.get("dynamic")
    return isinstance(dynamic, list) and not {"dependencies", "optional-dependencies"}.isdisjoint(
        map(str, dynamic)
    )


def _has_sources_here(uv: dict[str, Any]) -> bool:
    """Returns True if some of the project's dependencies lie in the same directory."""
    sources = json.dumps(uv.get("sources", {}), default=str)
    return '"path":' in sources or '"workspace":' in sources or bool(uv.get("find-links"))


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    table = document.get(name)
    return table if isinstance(table, dict) else {}


def _hash(descriptor: int) -> str:
    with os.fdopen(descriptor, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


#: The file whose packages are installed for a program that has no other project.
REQUIREMENTS = "requirements.txt"
_NESTED = re.compile(r"(?:-r|-c|--requirements?|--constraints?)(?:\s+|=)?(?P<path>\S.*)")
#: Options that name files or directories which are installed, or searched for packages.
_FILES = re.compile(r"(?:-e|-f|--editable|--find-links)\b")


def hash_of_requirements(directory: Path, path: str) -> tuple[dict[str, str], bool]:
    """Returns the SHA-256 of this file and of those that it includes, by path, and whether any
    names files to install.

    Args:
        directory: that of the program; the path may be relative to it.

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
        # Attempts have different directories, and the same environment.
        found[str(file)] = hashlib.sha256(data).hexdigest()
        for line in _lines(data.decode(errors="replace")):
            if (nested := _NESTED.fullmatch(line)) is not None and "://" not in nested["path"]:
                waiting.append(file.parent / nested["path"].strip("'\""))
            elif _FILES.match(line) or is_here(line) or _is_there(directory / line):
                local = True
    return {path.removeprefix(f"{directory}/"): digest for path, digest in found.items()}, local


def _read(file: Path) -> bytes:
    """Returns the content of the file; nothing if there is none, which uv reports."""
    try:
        return read(file, MOST_LIST)
    except (OSError, ValueError) as error:
        if (
            isinstance(error, OSError) and error.errno == errno.EFBIG
        ):  # what is not read must not be taken for the same
            raise
        return b""


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a requirement with its hashes is longer than any path
        return False


def _lines(text: str) -> Iterator[str]:
    """Yields the lines without comments; lines that end with a backslash go on with the next."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        if stripped := re.sub(r"(?:^|\s)#.*$", "", line).strip():
            yield stripped


def with_its_packages(spec: EnvironmentSpec, directory: Path) -> tuple[EnvironmentSpec, str]:
    """Returns the specification with what the project of this directory declares, and a line for
    the user; empty: there is none.

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


def _text(file: Path) -> str:
    return read(file, MOST_PROJECT).decode(errors="replace") if file.is_file() else ""
