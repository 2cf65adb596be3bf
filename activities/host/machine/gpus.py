"""Reads the GPUs of this machine with the driver's own program."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta

from iris.model.host.gpus import (
    NVIDIA_SMI,
    NVIDIA_SMI_LIST,
    NVIDIA_SMI_USE,
    GpuUse,
    Reading,
    parse_gpu_use,
    read,
)

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
    outputs, exit_code = [], 0
    for command in (NVIDIA_SMI, NVIDIA_SMI_LIST):
        try:
            code, said = await _ask(command, patience)
        except FileNotFoundError:
            return None
        except _NoAnswer as error:
            return Reading(problem=str(error))
        outputs.append(said)
        exit_code = exit_code or code
    return read(exit_code, *outputs)


async def read_gpu_use(patience: timedelta = NVIDIA_PATIENCE) -> dict[str, GpuUse]:
    """Returns the use of this machine's GPUs by UUID; empty if it cannot be read.

    Args:
        patience: as for `read_gpus`.
    """
    try:
        _, said = await _ask(NVIDIA_SMI_USE, patience)
    except (FileNotFoundError, _NoAnswer):  # the check of the GPUs' health reports that
        return {}
    return parse_gpu_use(said)


class _NoAnswer(Exception):
    """The error if `nvidia-smi` cannot be run or does not answer. The message says why."""


async def _ask(command: Sequence[str], patience: timedelta) -> tuple[int, str]:
    """Returns the exit code and the output of a call of `nvidia-smi`, with its errors.

    Raises:
        FileNotFoundError: there is no such program.
        _NoAnswer: it cannot be run or does not answer.
    """
    if _killed:
        _, hanging = await asyncio.wait(_killed, timeout=patience.total_seconds())
        if hanging:
            raise _NoAnswer("nvidia-smi does not end after it was killed; restart the machine")
    try:
        asked = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _NoAnswer(f"nvidia-smi cannot be run: {error}") from None
    answering = asyncio.create_task(asked.communicate())
    try:
        await asyncio.wait({answering}, timeout=patience.total_seconds())
    finally:
        if not answering.done():
            _kill(asked, answering)
    if not answering.done():
        raise _NoAnswer(f"nvidia-smi has not answered within {patience.total_seconds():.0f} s")
    said, _ = answering.result()
    return asked.returncode or 0, said.decode(errors="replace")


def _kill(asked: asyncio.subprocess.Process, answering: asyncio.Task[tuple[bytes, bytes]]) -> None:
    """Kills the process without waiting for its end."""
    _killed.add(answering)
    answering.add_done_callback(_killed.discard)
    with contextlib.suppress(ProcessLookupError):
        asked.kill()
