"""Measures what it costs to look on: CPU per minute of `iris top` and of the live block of an
attached job, and of a completion.

The floor of the first two is a bare Temporal client that asks one workflow the same question at the
same rate and shows nothing. A command's start does not count: it runs for a short and for a long
time, and the shorter is subtracted. The floor of a completion is the start of the interpreter.

    python -m benchmarks.live ADDRESS WORKFLOW QUERY ARGUMENT SECONDS INTERVAL    # the floor
"""

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from temporalio.client import Client

from benchmarks.ground import NAME, Ground, cluster
from benchmarks.table import Row
from iris.cli.show.live_job import INTERVAL_S
from iris.model import names

#: The seconds of the short run: until the first looks are over.
SHORT = 4.0
#: The seconds between two looks of `iris top`, its default.
TOP_INTERVAL = 2.0
PRESSES = 10


def measure(*, quick: bool) -> list[Row]:
    minutes = 0.25 if quick else 1.0
    with cluster(1) as ground:
        return [*_looking_on(ground, minutes), _completion()]


def _looking_on(ground: Ground, minutes: float) -> list[Row]:
    def per_minute(command: Callable[[float], list[str]]) -> float:
        """Takes a command that runs for some seconds."""
        short, long = (
            _cpu_on_a_terminal(command(seconds), seconds)
            for seconds in (SHORT, SHORT + 60 * minutes)
        )
        return (long - short) / minutes

    iris = [str(Path(sys.executable).with_name("iris")), "--cluster", NAME]
    submitted = subprocess.run(
        [*iris, "submit", "-d", "-q", "--", "sleep", "3600"],
        capture_output=True,
        text=True,
        check=True,
    )
    job = names.job_workflow(NAME, submitted.stdout.strip())
    scheduler = names.scheduler_workflow(NAME)
    top = per_minute(lambda seconds: [*iris, "top"])
    top_floor = per_minute(
        lambda seconds: _floor(ground, scheduler, "snapshot", {"limit": 0}, seconds, TOP_INTERVAL)
    )
    block = per_minute(lambda seconds: [*iris, "submit", "--", "sleep", f"{seconds:g}"])
    block_floor = per_minute(
        lambda seconds: _floor(ground, job, "status", None, seconds, INTERVAL_S)
    )
    block_note = "a look and a drawing a second"
    return [
        Row(
            "`iris top`, CPU s per minute",
            top,
            top_floor,
            format="{:.2f}",
            note="every 2 s: three questions and a drawing",
        ),
        Row(
            "live block of a job, CPU s per minute",
            block,
            block_floor,
            format="{:.2f}",
            note=block_note,
        ),
    ]


def _floor(
    ground: Ground, workflow: str, query: str, argument: object, seconds: float, interval: float
) -> list[str]:
    arguments = (
        ground.record.address,
        workflow,
        query,
        json.dumps(argument),
        f"{seconds:g}",
        f"{interval:g}",
    )
    return [sys.executable, "-m", "benchmarks.live", *arguments]


async def _ask(
    address: str, workflow: str, query: str, argument: object, seconds: float, interval: float
) -> None:
    client, end = await Client.connect(address), time.monotonic() + seconds
    while time.monotonic() < end:
        await client.get_workflow_handle(workflow).query(
            query, args=[] if argument is None else [argument]
        )
        await asyncio.sleep(interval)


def _cpu_on_a_terminal(command: list[str], seconds: float) -> float:
    """Returns the CPU seconds of a command on a terminal.

    `top` is ended by Ctrl-C, so many seconds after its first screen; the others end by themselves.
    """
    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, env=environment, cwd=Path(__file__).parents[1]
    )
    os.close(its)
    ends = threading.Timer(seconds, process.send_signal, [signal.SIGINT])
    with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:
        while terminal.read(65536):
            # Its first screen, which may come late on a busy machine.
            if "top" in command and ends.ident is None:
                ends.start()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime


def _completion() -> Row:
    """The press of a key that completes a command: no cluster is asked."""
    iris = str(Path(sys.executable).with_name("iris"))
    press = {
        **os.environ,
        "COMP_WORDS": "iris sta",
        "COMP_CWORD": "1",
        "_IRIS_COMPLETE": "bash_complete",
    }
    taken, floor = (
        _seconds([iris], press),
        _seconds([sys.executable, "-c", "pass"], dict(os.environ)),
    )
    return Row(
        "the press of a key, s",
        taken,
        floor,
        format="{:.3f}",
        note=f"`iris sta`; median of {PRESSES}",
    )


def _seconds(command: list[str], environment: dict[str, str]) -> float:
    taken = []
    for _ in range(PRESSES):
        began = time.perf_counter()
        subprocess.run(command, env=environment, capture_output=True, check=True)
        taken.append(time.perf_counter() - began)
    return median(taken)


if __name__ == "__main__":
    address, workflow, query, argument, seconds, interval = sys.argv[1:]
    asyncio.run(
        _ask(address, workflow, query, json.loads(argument), float(seconds), float(interval))
    )
