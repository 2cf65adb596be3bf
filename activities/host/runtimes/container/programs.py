"""Finds out why a program cannot be started in a container, before the engine tries it.

The engine reports such an error as output and exit code of the program, or not at all.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from iris.activities.host.runtimes.container import engine
from iris.activities.host.runtimes.shim import start_errors

if TYPE_CHECKING:
    from docker import DockerClient

#: The directories whose files the kernel makes. The engine cannot show these files.
_OF_THE_KERNEL = ("/dev", "/proc", "/sys")


class Files(Protocol):
    """Reads the files of a container."""

    def at(self, path: Path) -> bool | None:
        """Returns whether the file is executable; None if it does not exist."""

    def head(self, path: Path) -> bytes:
        """Returns the first bytes of a regular file; empty if it is not one, or cannot be read."""


class EngineFiles:
    """Reads the files of a container through the engine."""

    def __init__(self, docker: "DockerClient", container: str) -> None:
        self._docker, self._container = docker, container

    def at(self, path: Path) -> bool | None:
        """Implements `Files.at`."""
        return engine.executable(self._docker, self._container, path)

    def head(self, path: Path) -> bytes:
        """Implements `Files.head`."""
        return engine.head(self._docker, self._container, path)


def fault_of(
    argv: Sequence[str], path: str, workdir: Path, files: Files, where: str
) -> tuple[str, int] | None:
    """Returns why a program would not start, and the shell's exit code; None if it may start.

    Args:
        argv: the words of the program.
        path: the PATH of the program.
        workdir: the working directory of the program.
        where: a name of the container for the text, as in "which WHERE does not have".
    """

    def find(name: str) -> tuple[Path, bool] | None:
        first = None
        for folder in [""] if "/" in name else path.split(":"):
            file = workdir / folder / name
            runs = files.at(file)
            if runs:
                return file, True
            first = first or (None if runs is None else (file, False))
        return first

    found = find(argv[0])
    if found is None:
        if "/" in argv[0] and any(
            (workdir / argv[0]).is_relative_to(each) for each in _OF_THE_KERNEL
        ):
            return None
        beside = "/" not in argv[0] and files.at(workdir / argv[0]) is not None
        return start_errors.missing(argv, f"in {where}", beside=beside), start_errors.MISSING
    head = files.head(found[0])
    if not found[1]:
        return start_errors.not_executable(argv[0], head), start_errors.NOT_EXECUTABLE
    fault = start_errors.script_fault(argv[0], head, lambda name: find(name) is not None, where)
    return (fault, start_errors.MISSING) if fault else None


def fault_beside(container: str, argv: Sequence[str]) -> tuple[str, int] | None:
    """Returns why a command would not start in a running container, and the shell's exit code; None
    if it may start.

    Raises:
        HostFault: the engine does not answer, or refuses.
    """
    with engine.engine() as docker:
        config = docker.api.inspect_container(container)["Config"]
        env = dict(each.split("=", 1) for each in config.get("Env") or () if "=" in each)
        path = env.get("PATH", engine.PATH)
        files = EngineFiles(docker, container)
        return fault_of(
            argv, path, Path(config.get("WorkingDir") or "/"), files, "the container of the task"
        )
