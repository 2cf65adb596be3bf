"""The commands of an attempt as plain processes of the host: its files, its interpreter, its devices."""

import asyncio
import contextlib
import ctypes
import errno
import functools
import os
import platform
import signal
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from iris import names
from iris.activities import leftovers
from iris.activities.runtimes import cgroups
from iris.activities.runtimes.base import CannotStart, HostUnable, Launch
from iris.activities.runtimes.program import Program
from iris.resources import Resources

#: What the system says when it is short of something, whatever the command is.
_SHORT_OF = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
#: The name of the fault when it is this host on which a command cannot be run.
HOST_FAULT = "host"


class ProcessRuntime:
    """The `Runtime` of attempts without an image.

    Args:
        key: of the attempt; every process gets it in its environment, so that it can be found again.
        directory: the attempt's.
        resources: the memory that its program may use at most, and its share of the cores, where the host can see to it.
    """

    def __init__(self, key: str, directory: Path, resources: Resources) -> None:
        self._key = key
        self._dir = directory
        self._resources = resources

    @property
    def identity(self) -> str:
        """See `Runtime`: the machine, its C library, and the interpreter that an environment gets unless it says otherwise."""
        return _identity()

    async def prepare(self) -> None:
        """See `Runtime`. All that a host has is there already."""

    async def step(self, argv: Sequence[str], env: Mapping[str, str], workdir: Path, output: Path) -> int:
        """See `Runtime`."""
        _check(workdir)
        groups = await asyncio.to_thread(cgroups.make, self._key, self._resources)  # what is built has the limits of what is run
        try:
            with output.open("ab") as out:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    env=self._marked(env),
                    cwd=workdir,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                    preexec_fn=functools.partial(_enter, groups),
                )
        except (OSError, ValueError) as error:
            raise _refusal(argv[0], error) from None
        try:
            return await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
            await asyncio.to_thread(leftovers.kill, {self._key})  # what went into a session of its own
            raise

    async def launch(self, argv: Sequence[str], env: Mapping[str, str], workdir: Path) -> Launch:
        """See `Runtime`. Whether there is such a program is found out when it is started."""
        _check(workdir)
        groups = await asyncio.to_thread(cgroups.make, self._key, self._resources)
        return Launch(argv=tuple(argv), env=self._marked(env), cwd=str(workdir), cgroups=groups)

    async def clear(self, *, swept: bool = False) -> None:
        """See `Runtime`."""
        if not swept:
            await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        leftovers.kill({self._key})
        cgroups.remove(self._key, *_launched_in(self._dir))

    def _marked(self, env: Mapping[str, str]) -> dict[str, str]:
        return {**env, names.ENV_ATTEMPT_KEY: self._key}


def _enter(groups: Sequence[str]) -> None:
    """Between fork and exec: into the cgroups; and without an agent nobody goes on with what a step makes, so it ends with it."""
    for group in groups:
        with contextlib.suppress(OSError):
            Path(group, "cgroup.procs").write_text("0")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, linux/prctl.h


@functools.cache
def _identity() -> str:
    library = "-".join(part for part in platform.libc_ver() if part)
    return " ".join(part for part in ("process", sysconfig.get_platform(), library, sys.implementation.cache_tag) if part)


def _check(workdir: Path) -> None:
    try:
        exists = workdir.is_dir()
    except (OSError, ValueError) as error:  # not allowed to look, or no possible name
        raise CannotStart(f"the working directory cannot be used: {error}", 126) from None
    if not exists:
        raise CannotStart(f"the working directory {str(workdir)!r} does not exist on this host", 126)


def _refusal(command: str, error: OSError | ValueError) -> Exception:
    """What it means that the command could not be started."""
    if isinstance(error, OSError) and error.errno in _SHORT_OF:
        return HostUnable(f"{command!r} could not be started: {error.strerror}", HOST_FAULT)
    if isinstance(error, FileNotFoundError):
        return CannotStart(f"there is no program {command!r} on this host", 127)
    if isinstance(error, PermissionError):
        return CannotStart(f"{command!r} is not a program that may be executed", 126)
    return CannotStart(f"{command!r} could not be started: {error}", 126)


def _launched_in(directory: Path) -> list[str]:
    """The cgroups that an agent, this one or an earlier one, has had the program started in."""
    with contextlib.suppress(OSError, ValueError):
        return list(Program(directory).launch.cgroups)
    return []
