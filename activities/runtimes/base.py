"""What a runtime is: where the commands of an attempt run, on the host itself or in a container."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict


class CannotStart(Exception):
    """The attempt cannot be started, and could not be on another host either. The exit code is the shell's for the case."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


class HostUnable(Exception):
    """This host cannot start the attempt, or not now, through no fault of the program's; another one may.

    Args:
        fault: a name for the kind of trouble, as in `iris.faults`.
    """

    def __init__(self, reason: str, fault: str) -> None:
        super().__init__(reason)
        self.fault = fault


class Launch(BaseModel):
    """What a shim is to start: a process, or a container that has been made and waits."""

    model_config = ConfigDict(frozen=True)

    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    #: The directories of the cgroups the process is put into, one for each hierarchy.
    cgroups: tuple[str, ...] = ()
    #: The id of the container; empty: it is a process.
    container: str = ""
    #: Where the container engine listens.
    docker_socket: str = ""


class Runtime(Protocol):
    """Where the commands of one attempt run.

    Every command gets the same files under the same paths as on the host: the working directory, the attempt's directory, and
    the cache of environments.
    """

    @property
    def identity(self) -> str:
        """What an environment that is made here depends on: another one may not work with it."""

    async def prepare(self) -> None:
        """Get what has to be there before any command, such as the container image.

        Raises:
            CannotStart: it will not be had anywhere.
            HostUnable: this host cannot get it.
        """

    async def step(self, argv: Sequence[str], env: Mapping[str, str], workdir: Path, output: Path) -> int:
        """Run a command of the set-up to its end, what it prints appended to the file. Its exit status, negative for a signal.

        A cancellation kills the command and everything that it has started.

        Raises:
            CannotStart: there is no such command.
            HostUnable: it cannot be run here.
        """

    async def launch(self, argv: Sequence[str], env: Mapping[str, str], workdir: Path) -> Launch:
        """What the shim is to start, everything ready for it.

        Raises:
            CannotStart: the working directory or the image will not do.
            HostUnable: the host cannot make the container.
        """

    async def clear(self, *, swept: bool = False) -> None:
        """Kill and remove whatever there is of this attempt, also what another agent has made. Safe to repeat; raises nothing.

        Args:
            swept: its shim has seen the program to its end, and everything below it: no process is left.
        """
