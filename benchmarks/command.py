"""Measures the CPU of commands: of help, of those that ask a cluster, and of many submits.

The floor is `import temporalio.client`, which every command that asks a cluster needs. All commands
take turns, in a directory without a project. The cluster places nothing meanwhile, because the
programs would run on the same cores.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.ground import Ground, cluster
from benchmarks.table import Row

IRIS = str(Path(sys.executable).with_name("iris"))
FLOOR = [sys.executable, "-c", "import temporalio.client"]
SUBMIT = [IRIS, "submit", "-d", "-q", "--", "true"]
COMMANDS = {
    "`import temporalio.client`": FLOOR,
    "`iris jobs`": [IRIS, "jobs"],
    "`iris status JOB`": [IRIS, "status", "shown"],
    "`iris submit -d -- true`": SUBMIT,
}
#: Of a command and its floor, from issue 16.
TARGET = 1.25
#: Jobs of the batch and of the loop; of a quick loop; processes of a loop.
JOBS, FEW, PROCESSES = 200, 40, 8


def measure(*, quick: bool) -> list[Row]:
    rows = [_help(10)]
    with cluster(1) as ground:
        _cpu_seconds([IRIS, "submit", "-q", "-n", "shown", "--", "true"])
        asyncio.run(_pause(ground))
        rows += _each(5 if quick else 15)
        rows += [_batch(3 if quick else 5), *_loop(FEW if quick else JOBS)]
    return rows


def _help(times: int) -> Row:
    taken = sorted(_cpu_seconds([IRIS, "--help"]) for _ in range(times))
    return Row(
        "`iris --help`, CPU s",
        median(taken),
        target=0.2,
        format="{:.3f}",
        note=f"{taken[0]:.3f} to {taken[-1]:.3f}",
    )


def _each(rounds: int) -> list[Row]:
    for command in COMMANDS.values():
        _cpu_seconds(command)  # compiles the modules that no command has loaded before
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            taken[name].append(_cpu_seconds(command))
    (_, floor), *ours = taken.items()
    return [
        Row(
            f"{name}, CPU s",
            median(seconds),
            median(floor),
            target=TARGET,
            ratio=median(mine / theirs for mine, theirs in zip(seconds, floor, strict=True)),
            format="{:.3f}",
            note=(
                f"{rounds} rounds; {min(seconds):.3f} to {max(seconds):.3f}, floor {min(floor):.3f}"
                f" to {max(floor):.3f}"
            ),
        )
        for name, seconds in ours
    ]


def _batch(times: int) -> Row:
    """Returns the CPU of a batch beyond that of the import."""
    taken = []
    for turn in range(times):
        # The same lines again would submit nothing.
        command = [
            IRIS,
            "submit",
            "-q",
            "--batch",
            "-",
            "--batch-key",
            str(turn),
        ]
        taken.append(_cpu_seconds(command, "-- true\n" * JOBS) - _cpu_seconds(FLOOR))
    note = f"{min(taken):.2f} to {max(taken):.2f}"
    return Row(
        f"`iris submit --batch` of {JOBS} beyond the import, CPU s",
        median(taken),
        target=1.0,
        format="{:.2f}",
        note=note,
    )


def _loop(jobs: int) -> list[Row]:
    """Returns the time of a shell's loop, and the CPU of each of its submits beside that of an
    import in such a loop.
    """
    begun = time.perf_counter()
    cpu = _loop_cpu_seconds(SUBMIT, jobs)
    wall = time.perf_counter() - begun
    floor = _loop_cpu_seconds(FLOOR, max(FEW, jobs // 5))
    note = f"load {os.getloadavg()[0]:.0f}"
    return [
        Row(f"{jobs} `iris submit -d` by `xargs -P{PROCESSES}`, s", wall, note=note),
        Row("the same, CPU s of each", cpu, floor, format="{:.3f}", note=note),
    ]


def _loop_cpu_seconds(command: list[str], times: int) -> float:
    """Returns the CPU of one of many processes that share the cores."""
    return (
        _cpu_seconds(
            ["xargs", "-P", str(PROCESSES), "-I{}", *command], "\n".join(map(str, range(times)))
        )
        / times
    )


async def _pause(ground: Ground) -> None:
    await (await ground.client()).cluster.pause("commands are measured")


def _cpu_seconds(command: list[str], given: str = "") -> float:
    """Returns the user and system time of a command and of the processes that it has waited for."""
    with tempfile.TemporaryDirectory(prefix="iris-bench-") as no_project:
        process = subprocess.Popen(
            command, cwd=no_project, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        assert process.stdin is not None
        with process.stdin as words:
            words.write(given)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime
