"""Measures a large array of tasks that do nothing, beside GNU parallel with as many processes at
once.

GNU parallel is no dependency of Iris; without it, only Iris is measured. A second array is
cancelled in the middle. The commands run in processes of their own, as a user's do, while the
arrays are there. Events are those of all workflows of the cluster, with those of the scheduler and
the autoscaler.
"""

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from benchmarks.events import added, count_events, longest_histories, of_cluster
from benchmarks.ground import NAME, Ground, cluster, cpu_seconds
from benchmarks.table import Row
from iris.client.client import AsyncIrisClient
from iris.client.connect.connection import connect
from iris.client.jobs.submit.start import Submitted
from iris.model import names
from iris.model.job.arrays import MAX_TASKS, Array
from iris.model.job.spec import JobSpec
from iris.model.job.status import JobStatus
from iris.model.states import ENDED, JobState

TASKS = MAX_TASKS
QUICK_TASKS = 1_000
#: Tasks, or processes of GNU parallel, at the same time.
AT_ONCE = 32
#: The presses of a key for one completion, each after the names of the last one are forgotten.
PRESSES = 5
#: Seconds between two looks at an array.
LOOK_EVERY = 1.0
#: The most events of a history. Temporal ends a workflow at 51,200.
MOST_EVENTS = 51_200


def measure(*, quick: bool) -> list[Row]:
    tasks = QUICK_TASKS if quick else TASKS
    parallel = _parallel(tasks)
    with cluster(1) as ground:
        return asyncio.run(_measure(ground, tasks, parallel))


async def _measure(ground: Ground, tasks: int, parallel: float | None) -> list[Row]:
    iris, temporal = await ground.client(), await connect(ground.record.address)
    ours = of_cluster(ground.record.name)
    before, cpu = await count_events(temporal, ours), _cpu(ground)
    began = time.perf_counter()
    array = await _submit(iris, tasks)
    running = await _until_ended(iris, array, tasks // 2)
    commands = {"running": _commands(array.id)}
    status = await _end(iris, array)
    seconds = time.perf_counter() - began
    if status.state is not JobState.SUCCEEDED or any(task.attempt != 1 for task in status.tasks):
        raise RuntimeError(f"the array ended {status.state}: {status.reason}")
    spent = {part: 1000 * (now - cpu[part]) / tasks for part, now in _cpu(ground).items()}
    commands["ended"] = _commands(array.id)
    events = added(before, await count_events(temporal, ours))
    longest = await longest_histories(temporal, ours)
    cancelled, begun = await _cancel(iris, tasks)
    load = f"load {os.getloadavg()[0]:.0f}"
    rate = (
        f"tasks per second of an array of {tasks:,}, {AT_ONCE} at once; the floor is GNU parallel"
    )
    return [
        Row(
            rate,
            tasks / seconds,
            None if parallel is None else tasks / parallel,
            note=f"{seconds:.0f} s, {load}",
        ),
        Row(
            "CPU of server, control plane and agent, ms per task",
            sum(spent.values()),
            note=_list(spent, "{:.1f}"),
        ),
        Row(
            "history events per task",
            sum(events.values()) / tasks,
            format="{:.2f}",
            note=_list({kind: count / tasks for kind, count in events.items()}, "{:.2f}"),
        ),
        Row(
            "events in the longest history",
            max(longest.values()),
            target=MOST_EVENTS,
            format="{:,.0f}",
            note=_list(longest, "{:,}"),
        ),
        *_command_rows(commands),
        Row(
            "the status of the running array, ms",
            1000 * running,
            format="{:.0f}",
            note="the query, with all tasks",
        ),
        Row(
            "cancelled in the middle → all tasks have ended, s",
            cancelled,
            note=f"{begun:,} tasks had begun",
        ),
    ]


def _list(numbers: Mapping[str, float], form: str) -> str:
    return ", ".join(f"{what} {form.format(number)}" for what, number in numbers.items())


def _cpu(ground: Ground) -> dict[str, float]:
    control, agents = cpu_seconds((ground.controller,)), cpu_seconds(ground.agents, children=True)
    return {
        "server": ground.server_seconds(),
        "control plane": control,
        "agent with its programs": agents,
    }


async def _submit(iris: AsyncIrisClient, tasks: int) -> Submitted:
    array = Array(indices=f"0-{tasks - 1}", size=tasks, limit=AT_ONCE)
    name = f"array-{secrets.token_hex(4)}"
    return await iris.jobs.submit(
        JobSpec(user="bench", name=name, command=("true",), array=array, replicas=tasks)
    )


async def _until_ended(iris: AsyncIrisClient, array: Submitted, ended: int) -> float:
    """Waits until so many tasks have ended, and returns how long the last question for the status
    took.
    """
    while True:
        asked = time.perf_counter()
        status = await iris.jobs.status(array.id, array.run_id)
        took = time.perf_counter() - asked
        if sum(task.state in ENDED for task in status.tasks) >= ended:
            return took
        await asyncio.sleep(LOOK_EVERY)


async def _end(iris: AsyncIrisClient, array: Submitted) -> JobStatus:
    await iris.jobs.wait_until_ended(array.id, array.run_id)
    return await iris.jobs.status(array.id, array.run_id)


async def _cancel(iris: AsyncIrisClient, tasks: int) -> tuple[float, int]:
    """Cancels an array in the middle. Returns how long that took, and how many of its tasks had
    begun.
    """
    array = await _submit(iris, tasks)
    await _until_ended(iris, array, tasks // 10)
    asked = time.perf_counter()
    await iris.jobs.cancel(array.id)
    status = await _end(iris, array)
    return time.perf_counter() - asked, sum(task.started_at is not None for task in status.tasks)


def _parallel(tasks: int) -> float | None:
    """Returns the seconds that GNU parallel takes for as many processes; None: it is not there."""
    if (parallel := shutil.which("parallel")) is None:
        return None
    numbers = "\n".join(map(str, range(tasks)))
    began = time.perf_counter()
    subprocess.run(
        [parallel, "--will-cite", "-j", str(AT_ONCE), "true"], input=numbers, text=True, check=True
    )
    return time.perf_counter() - began


def _commands(job: str) -> dict[str, float]:
    """Returns the seconds that some commands take, and the press of a key that completes the name
    of a job.
    """
    iris = str(Path(sys.executable).with_name("iris"))
    completion = {
        "COMP_WORDS": "iris status ",
        "COMP_CWORD": "2",
        "_IRIS_COMPLETE": "bash_complete",
    }
    commands: dict[str, tuple[list[str], dict[str, str]]] = {
        "status": (["status", job], {}),
        "jobs": (["jobs"], {}),
        "explain": (["explain", job], {}),
        "completion": ([], completion),
    }
    found = {}
    for what, (arguments, environment) in commands.items():
        took = []
        for _ in range(PRESSES):
            shutil.rmtree(Path(os.environ[names.ENV_STATE_DIR]) / "completions", ignore_errors=True)
            began = time.perf_counter()
            subprocess.run(
                [iris, *arguments],
                env={**os.environ, names.ENV_CLUSTER: NAME, **environment},
                capture_output=True,
                check=True,
            )
            took.append(time.perf_counter() - began)
        found[what] = median(took)
    return found


def _command_rows(commands: Mapping[str, Mapping[str, float]]) -> list[Row]:
    return [
        Row(
            f"`iris {what}`, s" if what != "completion" else "the press of a key, s",
            seconds,
            format="{:.2f}",
            note=note,
        )
        for what, seconds in commands["running"].items()
        for note in (f"while the array runs; after its end {commands['ended'][what]:.2f}",)
    ]
