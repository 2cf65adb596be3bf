"""What is done for an attempt before its program starts: files, ports, environment, container. All of it can be done again."""

import asyncio
import contextlib
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from iris.activities.caches import DISK_FAULT
from iris.activities.environment import attempt_env
from iris.activities.ports import TakenGpus
from iris.activities.runtimes.base import HostUnable, Launch, Runtime
from iris.activities.setup import set_up
from iris.activities.workbench import Workbench
from iris.resources import DeviceKind
from iris.units import MIB, format_bytes
from iris.workflows.messages import RunTask

#: With less of the disk free than this, in bytes, no program could even write its first lines.
ROOM = 4 * MIB


class Built(NamedTuple):
    """A program that can be started."""

    launch: Launch
    #: File descriptors: locks on what it uses, open for as long as it lives. Whoever is given them closes them.
    keep: tuple[int, ...]
    ports: dict[str, int]


async def build(bench: Workbench, task: RunTask, directory: Path, runtime: Runtime) -> Built:
    """Prepare the attempt; what the set-up prints goes into the file `build` of its directory.

    Raises:
        CannotStart: it will not start anywhere: its bundle, image, environment or directory will not do.
        HostUnable: this host cannot prepare it, or not now.
    """
    if (free := shutil.disk_usage(directory).free) < ROOM:
        raise HostUnable(f"the disk for tasks is full on this host: {format_bytes(free)} are free", DISK_FAULT)
    with contextlib.ExitStack() as undo:
        ports, gpus = bench.ports.take(task.ports), None
        undo.callback(_close, ports.keep)
        if (taken := _gpus(bench, task)) is not None:
            gpus = taken.numbers
            undo.callback(_close, taken.keep)
        await runtime.prepare()
        workdir = Path(task.workdir) if task.workdir is not None else await _fresh(directory / "work")
        (directory / "outputs").mkdir(exist_ok=True)
        if task.bundle is not None:
            await bench.bundles.unpack(task.bundle, workdir)
        env = attempt_env(
            task,
            bench.base_env,
            bench.cluster,
            bench.host,
            defaults=bench.env_vars,
            workdir=workdir,
            outputs=directory / "outputs",
            ports=ports.numbers,
            tpu=bench.accelerators.tpu,
            gpus=gpus,
        )
        # Only the attempt's own copy of a project is synced: in a directory of the user's that would write a lock file.
        wanted = task.environment.model_copy(update={} if task.bundle is not None else {"sync": False})
        ready = await set_up(
            wanted,
            runtime,
            workdir,
            env,
            bench.environments,
            await _fresh(directory / "environment"),
            directory / "build",
            content=task.bundle.sha256 if task.bundle is not None else "",
        )
        undo.callback(ready.release)
        launch = await runtime.launch(task.command, ready.env, workdir)
        undo.pop_all()
        return Built(launch, (*ports.keep, *(taken.keep if taken else ()), *ready.keep), ports.numbers)


def _gpus(bench: Workbench, task: RunTask) -> TakenGpus | None:
    """Those that it alone has of the host's real ones; None: there are none, or it has asked for all of them."""
    wanted, there = task.resources.device, bench.accelerators.device
    if there is None or there.kind is not DeviceKind.GPU:
        return None
    count = wanted.count if wanted is not None and wanted.kind is DeviceKind.GPU else 0
    return bench.gpus.take(count, there.count) if count < there.count else None


def _close(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


async def _fresh(directory: Path) -> Path:
    """An empty directory, whatever an agent that died has left there."""
    await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
    directory.mkdir()
    return directory
