"""Watches the GPUs of this host, and reports their faults.

A fault quarantines the host: the scheduler places nothing new on it. The running tasks continue,
because they may use other GPUs.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path

from iris.activities.host.machine.gpus import NVIDIA_PATIENCE, read_gpus
from iris.model.host.gpus import Gpu, Reading, missing_fault, start_fault, xid_fault
from iris.model.host.resources import Device

#: The interval between two checks of the GPUs.
CHECK_INTERVAL = timedelta(seconds=30)
LEAST_INTERVAL = timedelta(seconds=1)
#: The pause before the second check of a fault. `nvidia-smi` itself may have caused the fault, so
#: it counts only if both checks find it.
CONFIRM_DELAY = timedelta(seconds=2)
#: The kernel's log. Only root may read it, and only if the agent does not run in a container.
KERNEL_LOG = Path("/dev/kmsg")


class GpuHealth:
    """Checks the health of a host's GPUs during one incarnation of the host.

    Args:
        expected: the GPUs that the host had when its incarnation began; empty if there is
            nothing to check.
        lasting: a fault that an earlier agent of the incarnation found in the kernel's log. Only a
            new incarnation ends it: the machine was restarted, or an operator has repaired the GPU
            and restarted the agent.
        incomplete: None if the incarnation began without a fault. Otherwise the fault with which it
            began, and the device that the operator has configured for the machine (None if the
            operator has configured none).
        on_lasting: stores a lasting fault.
        patience: how long one call of `nvidia-smi` may take.
    """

    def __init__(
        self,
        expected: Sequence[Gpu] = (),
        *,
        lasting: str = "",
        incomplete: tuple[str, Device | None] | None = None,
        on_lasting: Callable[[str], None] = lambda _: None,
        patience: timedelta = NVIDIA_PATIENCE,
        kernel_log: Path = KERNEL_LOG,
    ) -> None:
        self._expected = tuple(expected)
        self._lasting = lasting
        self._incomplete = incomplete
        self._on_lasting = on_lasting
        self._patience = patience
        self._log = _open_log(kernel_log) if self.watches else None
        self._checking: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        #: The fault of the GPUs; empty if they have no fault.
        self.fault = incomplete[0] if incomplete is not None else lasting
        #: True if the incarnation began without some of its GPUs and all are available now. The
        #: agent then begins a new incarnation, because this one cannot offer the GPUs.
        self.completed = False

    @property
    def watches(self) -> bool:
        """Whether there is anything to check."""
        return bool(self._expected) or self._incomplete is not None

    def close(self) -> None:
        """Closes the kernel's log."""
        if self._log is not None:
            os.close(self._log)
            self._log = None

    async def check(self) -> str:
        """Checks the GPUs now, and returns the fault. Calls at the same time share one check."""
        if not self.watches:
            return self.fault
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())
        await asyncio.shield(self._checking)
        return self.fault

    async def watch(self, interval: timedelta, on_change: Callable[[], Awaitable[None]]) -> None:
        """Checks the GPUs at the interval, and calls `on_change` after each change of the fault,
        until this is cancelled.
        """
        if not self.watches:
            return
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._changed.wait(), max(interval, LEAST_INTERVAL).total_seconds()
                )
            if not self._changed.is_set():
                await self.check()
            if self._changed.is_set():
                self._changed.clear()
                await on_change()

    async def _check(self) -> None:
        reading = await read_gpus(self._patience)
        if self._incomplete is not None:
            # The incarnation began without its GPUs, so that it cannot offer them.
            self.completed = (
                reading is not None
                and bool(reading.gpus)
                and not start_fault(reading, self._incomplete[1])
            )
            return
        fault = missing_fault(self._expected, reading)
        if fault and not self.fault and not _is_certain(reading):
            await asyncio.sleep(CONFIRM_DELAY.total_seconds())
            fault = missing_fault(self._expected, await read_gpus(self._patience))
        if not self._lasting and (found := xid_fault(self._new_log_lines())):
            self._lasting = found
            self._on_lasting(found)
        fault = self._lasting or fault
        if fault != self.fault:
            self.fault = fault
            self._changed.set()

    def _new_log_lines(self) -> list[str]:
        if self._log is None:
            return []
        lines: list[str] = []
        while True:
            try:
                record = os.read(self._log, 1 << 16)
            except BrokenPipeError:
                # The kernel has overwritten lines before they were read. The next read returns the
                # lines after them.
                continue
            except OSError:  # there are no new lines
                return lines
            if not record:
                return lines
            lines += record.decode(errors="replace").splitlines()


def _is_certain(reading: Reading | None) -> bool:
    return reading is not None and reading.lost


def _open_log(path: Path) -> int | None:
    """Opens the kernel's log at its end. Returns None if this process may not read the log."""
    try:
        log = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    os.lseek(log, 0, os.SEEK_END)
    return log
