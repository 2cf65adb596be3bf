"""Defines the contract of a runtime, which runs the commands of an attempt on the host itself or in
a container.
"""

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pydantic import Field

from iris.model.frozen import Frozen

#: The numbers of the system's errors for a lack of resources or a broken disk. A job's files and
#: commands do not cause these errors.
OF_THE_MACHINE = {
    errno.EAGAIN,
    errno.ENOMEM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EROFS,
}
#: The name of the fault if a service outside the cluster does not answer, such as a package index
#: or Google.
NETWORK_FAULT = "network"
#: The name of the fault if the cluster's object store does not answer.
STORE_FAULT = "store"


class JobFault(Exception):
    """The error if a mistake in the job prevents its start on every host.

    Args:
        exit_code: the exit code that a shell gives in this case.
    """

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


class HostFault(Exception):
    """The error if this host cannot start the attempt, at least not now. The job is not the cause,
    so another host may start the attempt.

    Args:
        fault: the name of the kind of fault, as in `iris.model.host.faults`.
    """

    def __init__(self, reason: str, fault: str) -> None:
        super().__init__(reason)
        self.fault = fault


class Launch(Frozen):
    """Describes the process that a shim has to start, or the prepared container."""

    argv: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str = ""
    #: The directories of the cgroups that the process joins, one for each hierarchy.
    cgroups: tuple[str, ...] = ()
    #: The umask of the process; -1 for the agent's umask.
    umask: int = -1
    #: The uid and gid of a process that runs as a user of its own; -1 for the agent's user.
    uid: int = -1
    #: The additional groups of a process that runs as a user of its own. They give access to the
    #: host's devices.
    groups: tuple[int, ...] = ()
    #: The id of the container; empty if the program is a process.
    container: str = ""
    #: The path of the container engine's socket.
    docker_socket: str = ""
    #: If the program ends by itself and leaves processes, they have this time to end, in seconds.
    grace: float = 0.0


class Runtime(Protocol):
    """Runs the program and the commands of one attempt.

    Every command gets some of the host's files under the same paths as on the host: the working
    directory, the attempt's directory, and the parts of the cache of environments that the caller
    lists.
    """

    @property
    def identity(self) -> str:
        """An identifier of the runtime that an environment is built for. An environment may not
        work with another identity.
        """

    @property
    def owner(self) -> int | None:
        """The uid of the commands, if they have a user of their own; None if they run as the
        agent's user or in a container.
        """

    @property
    def apart(self) -> bool:
        """True if the commands run as another user or in a container. They then reach only the
        files that the agent lends to them.
        """

    async def prepare(self) -> None:
        """Gets everything that must exist before a command runs, such as the container image.

        Raises:
            JobFault: no host can get the image.
            HostFault: this host cannot get the image.
        """

    async def step(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        workdir: Path,
        output: Path,
        *,
        written: Sequence[Path] = (),
        read: Sequence[Path] = (),
    ) -> int:
        """Runs a setup command to its end and appends its output to the file. Returns the exit
        status, negative for a signal.

        A cancellation kills the command and everything that it started.

        Args:
            written: existing directories to which the command may write, besides the attempt's
                files. A runtime in which commands see the host's files may ignore them.
            read: existing directories that the command may only read.

        Raises:
            JobFault: the command does not exist.
            HostFault: this host cannot run the command.
        """

    async def launch(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        workdir: Path,
        *,
        read: Sequence[Path] = (),
    ) -> Launch:
        """Prepares the program and returns what the shim starts.

        Args:
            read: as in `step`.

        Raises:
            JobFault: the working directory or the image cannot be used.
            HostFault: the host cannot create the container.
        """

    async def clear(self, *, swept: bool = False) -> None:
        """Kills the processes of this attempt and removes its containers and cgroups, including
        those that another agent created. Can be repeated; raises nothing.

        Args:
            swept: True if the shim saw the end of the program and of all processes below it.
        """
