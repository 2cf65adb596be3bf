"""Reads the GPUs of this machine with the driver's own program."""

import asyncio
import contextlib
from datetime import timedelta

from iris.model.host.gpus import NVIDIA_SMI, NVIDIA_SMI_LIST, Reading, read

#: The time limit of one call of `nvidia-smi`. A driver that is not loaded yet needs time, but a
#: driver that hangs must not stop the host from reporting.
NVIDIA_PATIENCE = timedelta(seconds=30)

#: The calls of `nvidia-smi` that were killed and have not ended. A process that hangs in the kernel
#: ends only when the driver answers, and keeps descriptors of this process open until then. So no
#: other call is started before they have ended.
_killed: set[asyncio.Task[tuple[bytes, bytes]]] = set()


async def read_gpus(patience: timedelta = NVIDIA_PATIENCE) -> Reading | None:
    """Returns the GPUs of this machine; None if it has no driver.

    Args:
        patience: the time limit of one call of the program, and of the end of a killed call.
    """
    if _killed:
        _, hanging = await asyncio.wait(_killed, timeout=patience.total_seconds())
        if hanging:
            return Reading(
                problem="nvidia-smi does not end after it was killed; restart the machine"
            )
    outputs, exit_code = [], 0
    for command in (NVIDIA_SMI, NVIDIA_SMI_LIST):
        try:
            asked = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            return Reading(problem=f"nvidia-smi cannot be run: {error}")
        answering = asyncio.create_task(asked.communicate())
        try:
            await asyncio.wait({answering}, timeout=patience.total_seconds())
        finally:
            if not answering.done():
                _kill(asked, answering)
        if not answering.done():
            return Reading(
                problem=f"nvidia-smi has not answered within {patience.total_seconds():.0f} s"
            )
        said, _ = answering.result()
        outputs.append(said.decode(errors="replace"))
        exit_code = exit_code or asked.returncode or 0
    return read(exit_code, *outputs)


def _kill(asked: asyncio.subprocess.Process, answering: asyncio.Task[tuple[bytes, bytes]]) -> None:
    """Kills the process without waiting for its end."""
    _killed.add(answering)
    answering.add_done_callback(_killed.discard)
    with contextlib.suppress(ProcessLookupError):
        asked.kill()
