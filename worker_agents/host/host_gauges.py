"""Gathers the values of a host's gauges, for the metrics of its agent."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from iris.activities.host.attempt.run_task import Tasks
from iris.activities.host.machine.gpu_health import GpuHealth
from iris.activities.host.runtimes.shim import shim
from iris.metrics import declared


async def gather(tasks: Tasks, health: GpuHealth, directories: Mapping[str, Path]) -> None:
    """Shows the present values.

    Args:
        directories: the directories with the files of tasks, by their names in the metrics.
    """
    loads = tasks.loads()
    states = Counter(load.state for load in loads)
    declared.ATTEMPTS.show({(state,): count for state, count in states.items()})
    declared.LOG_BACKLOG.show_one(sum(load.log_backlog for load in loads))
    leases = [load.lease - shim.now() for load in loads if load.lease is not None]
    declared.LEASE_LEFT.show({(): min(leases)} if leases else {})
    disks = await asyncio.to_thread(
        lambda: {name: shutil.disk_usage(path) for name, path in directories.items()}
    )
    declared.DISK_FREE.show({(name,): disk.free for name, disk in disks.items()})
    declared.DISK_SIZE.show({(name,): disk.total for name, disk in disks.items()})
    declared.GPU_FAULT.show({(): bool(health.fault)} if health.watches else {})
