"""Programs as plain processes: each in a session and process group of its own, so that it can be ended as a whole."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path


class CannotStart(Exception):
    """The program could not be started, and would not be on another host either. The exit code is the shell's for the case."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


class Program:
    """A started program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid
        self._ended = False

    async def wait(self) -> int:
        """The exit status once the program has ended and the rest of its group with it; negative: the signal that ended it."""
        status = await self._process.wait()
        self.signal(signal.SIGKILL)
        self._ended = True  # its number may be somebody else's from now on
        return status

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group; a group that is gone needs none."""
        if self._ended:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


async def start(command: Sequence[str], env: Mapping[str, str], workdir: Path, stdout: Path, stderr: Path) -> Program:
    """Start the command with its output appended to two files: they outlive the agent, and a slow reader stalls no program.

    Raises:
        CannotStart: the program or its directory does not exist, may not be executed, or its arguments are too long.
    """
    try:
        exists = workdir.is_dir()
    except OSError as error:  # not allowed to look, or no possible name
        raise CannotStart(f"the working directory cannot be used: {error}", 126) from None
    if not exists:
        raise CannotStart(f"the working directory {str(workdir)!r} does not exist on this host", 126)
    with stdout.open("ab") as out, stderr.open("ab") as err:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=dict(env),
                cwd=workdir,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise CannotStart(f"there is no program {command[0]!r} on this host", 127) from None
        except PermissionError:
            raise CannotStart(f"{command[0]!r} is not a program that may be executed", 126) from None
        except (OSError, ValueError) as error:
            raise CannotStart(f"{command[0]!r} could not be started: {error}", 126) from None
    return Program(process)
