"""Runs the commands of an attempt as plain processes, with the host's files, interpreter and
devices.
"""

import asyncio
import contextlib
import ctypes
import functools
import os
import platform
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iris.activities.host.runtimes.base import OF_THE_MACHINE, HostFault, JobFault, Launch
from iris.activities.host.runtimes.cleanup import leftover_processes, links
from iris.activities.host.runtimes.process import cgroups, job_users
from iris.activities.host.runtimes.program import Program
from iris.activities.host.runtimes.shim import start_errors
from iris.activities.host.runtimes.shim import user as shim_user
from iris.activities.host.runtimes.shim.starter import end_escaped
from iris.model import names
from iris.model.host.resources import Resources

#: The fault that an attempt reports if this host cannot start a command.
HOST_FAULT = "host"
#: The name in error messages of the place in which commands run.
_HERE = "this host"


class ProcessRuntime:
    """The `Runtime` of attempts that run as processes, without an image.

    Args:
        key: the attempt's key. Every process has it in its environment, so that an agent can find
            the process.
        directory: the attempt's directory.
        resources: the program's memory limit and its share of the cores, if the host can enforce
            them.
        umask: the umask of the commands; -1 for the agent's umask.
        user: the person who submitted the job. If the jobs run as operating-system users of their
            own, an environment is shared only between jobs of the same person.
        groups: the groups of the job's own operating-system user, for access to the host's devices.
    """

    def __init__(
        self,
        key: str,
        directory: Path,
        resources: Resources,
        *,
        umask: int = -1,
        user: str = "",
        groups: Sequence[int] = (),
    ) -> None:
        self._key = key
        self._dir = directory
        self._resources = resources
        self._umask = umask
        self._user = user
        self._groups = tuple(groups)
        #: The cgroups of the last command that this agent launched; None before the first launch.
        #: After the end of the attempt, `clear` looks whether they still exist.
        self._cgroups: tuple[str, ...] | None = None

    @property
    def identity(self) -> str:
        """Implements `Runtime.identity`: the machine, its C library, and the interpreter that an
        environment gets by default.
        """
        return _identity() if self.owner is None else f"{_identity()} for {self._user}"

    @property
    def owner(self) -> int | None:
        """Implements `Runtime.owner`."""
        return job_users.owner_of(self._dir)

    @property
    def apart(self) -> bool:
        """Implements `Runtime.apart`."""
        return self.owner is not None

    async def prepare(self) -> None:
        """Implements `Runtime.prepare`. A process needs no preparation."""

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
        """Implements `Runtime.step`."""
        launch = await self.launch(argv, env, workdir)  # a setup step has the program's limits
        try:
            with os.fdopen(
                links.open_file(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab"
            ) as out:
                if launch.uid >= 0:
                    # With this owner, a command can open its standard output again.
                    os.fchown(out.fileno(), launch.uid, launch.uid)
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    env=launch.env,
                    cwd=shim_user.root_cwd(launch.model_dump()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                    preexec_fn=functools.partial(_enter, launch.model_dump()),
                    umask=self._umask,
                )
        except subprocess.SubprocessError as error:
            if shim_user.lost_cwd(launch.model_dump()):
                raise _no_directory(workdir) from None
            raise HostFault(f"{argv[0]!r} could not be started: {error}", HOST_FAULT) from None
        except (OSError, ValueError) as error:
            raise _start_fault(launch, error) from None
        try:
            return await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
            # Some processes may have sessions of their own.
            await asyncio.to_thread(leftover_processes.kill, {self._key})
            raise

    async def launch(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        workdir: Path,
        *,
        read: Sequence[Path] = (),
    ) -> Launch:
        """Implements `Runtime.launch`. A missing program is noticed only when it is started."""
        owner = self.owner
        groups = self._cgroups = await asyncio.to_thread(
            self._checked_groups, argv, env, workdir, owner
        )
        launch = Launch(
            argv=tuple(argv),
            env=self._marked(env),
            cwd=str(workdir),
            cgroups=groups,
            umask=self._umask,
        )
        return (
            launch
            if owner is None
            else launch.model_copy(update={"uid": owner, "groups": self._groups})
        )

    async def clear(self, *, swept: bool = False) -> None:
        """Implements `Runtime.clear`. A shim that saw the end of all processes has also removed the
        cgroups.
        """
        groups = _launched_in(self._dir) if self._cgroups is None else self._cgroups
        if not swept or any(Path(group).exists() for group in groups):
            await asyncio.to_thread(self._clear)
        with contextlib.suppress(OSError):  # the directory of the job's files was deleted
            if (owner := self.owner) is not None:
                await asyncio.to_thread(job_users.end_user, owner)

    def _checked_groups(
        self, argv: Sequence[str], env: Mapping[str, str], workdir: Path, owner: int | None
    ) -> tuple[str, ...]:
        _check(workdir, owner)
        _check_script(argv, env, workdir, owner)
        return cgroups.make(self._key, self._resources)

    def _clear(self) -> None:
        end_escaped()
        leftover_processes.end({self._key})
        cgroups.remove(self._key, *_launched_in(self._dir))

    def _marked(self, env: Mapping[str, str]) -> dict[str, str]:
        return {**env, names.ENV_ATTEMPT_KEY: self._key}


def _enter(launch: dict[str, Any]) -> None:
    """Prepares the process of a setup step between fork and exec: joins the cgroups and becomes the
    job's user. The process ends with its agent, because no other agent continues a step.
    """
    for group in launch["cgroups"]:
        with contextlib.suppress(OSError):
            shim_user.join(group)
    shim_user.become(launch)
    if sys.platform == "linux":  # done last, because a change of the user would undo it
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, linux/prctl.h


@functools.cache
def _identity() -> str:
    library = "-".join(part for part in platform.libc_ver() if part)
    return " ".join(
        part
        for part in ("process", sysconfig.get_platform(), library, sys.implementation.cache_tag)
        if part
    )


def _check(workdir: Path, owner: int | None) -> None:
    try:
        with job_users.acting_as(owner):
            exists = workdir.is_dir()
            if owner is not None and exists:
                (workdir / ".").stat()  # fails if the user may not enter the directory
    except (OSError, ValueError) as error:  # no permission, or not a valid path
        remedy = ""
        if owner is not None and isinstance(error, PermissionError):
            remedy = (
                f"; the task has a user of its own, with uid {owner}: let all users of the host"
                " enter and read the directory, "
            )
            remedy += (
                "submit the task with the files (--workspace), or start the host's agent with"
                " --run-as root"
            )
        raise JobFault(f"the working directory cannot be used: {error}{remedy}", 126) from None
    if not exists:
        raise _no_directory(workdir)


def _no_directory(workdir: Path) -> JobFault:
    return JobFault(f"the working directory {str(workdir)!r} does not exist on this host", 126)


def _check_script(
    argv: Sequence[str], env: Mapping[str, str], workdir: Path, owner: int | None
) -> None:
    """Checks the first line of a program that is a script, because the system's own error would not
    name the cause. Raises `JobFault` if the interpreter does not exist.
    """
    # If the file cannot be read, the start will show the fault.
    with (
        contextlib.suppress(OSError, ValueError),
        job_users.acting_as(owner),
    ):
        if fault := start_errors.fault_of(argv, env, str(workdir), _HERE):
            raise JobFault(*fault)


def _start_fault(launch: Launch, error: OSError | ValueError) -> Exception:
    """Returns the exception for a command that could not be started."""
    if isinstance(error, OSError) and error.errno in OF_THE_MACHINE:
        return HostFault(f"{launch.argv[0]!r} could not be started: {error.strerror}", HOST_FAULT)
    return JobFault(*start_errors.why(error, launch.argv, launch.env, launch.cwd, _HERE))


def _launched_in(directory: Path) -> list[str]:
    """Returns the cgroups in which this agent or an earlier one started the program."""
    with contextlib.suppress(OSError, ValueError):
        return list(Program(directory).launch.cgroups)
    return []
