"""Reads the GPUs of this machine with the driver's own program."""

import asyncio
import contextlib
from datetime import timedelta

from iris.model.gpus import NVIDIA_SMI, NVIDIA_SMI_LIST, Reading, read

#: A driver that is not loaded yet needs time. One that hangs must not keep the host from reporting.
NVIDIA_PATIENCE = timedelta(seconds=30)


async def read_gpus(patience: timedelta = NVIDIA_PATIENCE) -> Reading | None:
    """Returns the GPUs of this machine; None: it has no driver.

    Args:
        patience: how long one call of the program may take.
    """
    outputs, exit_code = [], 0
    for command in (NVIDIA_SMI, NVIDIA_SMI_LIST):
        try:
            asked = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            return Reading(problem=f"nvidia-smi cannot be run: {error}")
        try:
            said, _ = await asyncio.wait_for(asked.communicate(), patience.total_seconds())
        except TimeoutError:
            return Reading(problem=f"nvidia-smi has not answered within {patience.total_seconds():.0f} s")
        finally:
            if asked.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    asked.kill()  # without waiting: it may hang in the kernel
        outputs.append(said.decode(errors="replace"))
        exit_code = exit_code or asked.returncode or 0
    return read(exit_code, *outputs)
