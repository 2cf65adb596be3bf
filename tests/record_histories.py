"""Record the histories that `tests/workflows/test_replay.py` replays: python -m tests.record_histories

Run it after a change of the workflows that histories under way may not survive and need not, and commit what it writes.
Where they need to survive, guard the change with `workflow.patched`, and leave the old histories as they are.
"""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle

from iris.workflows import autoscaler, policies
from tests.builders import a_host, a_silent, some
from tests.harness import (
    Cluster,
    Held,
    by_index,
    dev_server_cluster,
    fails,
    hangs,
    in_turn,
    is_preempted,
    is_refused,
    succeeds,
)

HISTORIES = Path(__file__).with_name("histories")
SECOND = timedelta(seconds=1)


class Recorder:
    """Writes histories down as they are, without what differs from machine to machine."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def keep(self, name: str, handle: WorkflowHandle[Any, Any], *, first: bool = True) -> None:
        """The history of the workflow's first run, or of its present one."""
        if first:
            described = await handle.describe()
            first_run = described.raw_description.workflow_execution_info.first_run_id
            handle = self._cluster.client.get_workflow_handle(handle.id, run_id=first_run)
        history = _without_stack_traces(json.loads((await handle.fetch_history()).to_json()))
        text = json.dumps({"workflowId": handle.id, **history}, separators=(",", ":"), ensure_ascii=False)
        (HISTORIES / f"{name}.json").write_text(text + "\n")


def _without_stack_traces(part: Any) -> Any:
    """They name files of the machine on which they were recorded."""
    if isinstance(part, dict):
        return {key: _without_stack_traces(value) for key, value in part.items() if key != "stackTrace"}
    if isinstance(part, list):
        return [_without_stack_traces(value) for value in part]
    return part


async def record(cluster: Cluster) -> None:
    keep = Recorder(cluster).keep
    await _jobs(cluster, keep)
    await _slow(cluster, keep)
    await _tasks(cluster, keep)
    await _slices(cluster, keep)
    await _autoscaler(cluster, keep)
    # Its first run has seen the first jobs, and continued as new; the present one has seen the rest.
    await keep("scheduler-continued-as-new", cluster.scheduler)
    await keep("scheduler-running", cluster.scheduler, first=False)


async def _jobs(cluster: Cluster, keep: Callable[..., Any]) -> None:
    waited = await cluster.submit("waited")
    await cluster.waits(waited)
    host = await cluster.join()
    await cluster.end(waited)
    await keep("job-waited-and-succeeded", cluster.job(waited))

    at_once = await cluster.submit("at-once")
    await cluster.end(at_once)
    await keep("job-placed-at-once", cluster.job(at_once))

    never = await cluster.submit("never", resources=some(cpu=32), scheduling_timeout=SECOND)
    await cluster.end(never)
    await keep("job-unschedulable", cluster.job(never))

    waiting = await cluster.submit("waiting", resources=some(cpu=32))
    await cluster.waits(waiting)
    await cluster.cancel(waiting, "not needed")
    await cluster.end(waiting)
    await keep("job-cancelled-while-waiting", cluster.job(waiting))

    host.program = Held()
    running = await cluster.submit("running")
    await cluster.until(lambda: host.taken[-1].job == running)
    await cluster.announce(host.taken[-1])
    await cluster.until(lambda: _state_is(cluster, running, "RUNNING"))
    await cluster.cancel(running)
    await cluster.end(running)
    await keep("job-cancelled-while-running", cluster.job(running))

    host.program = in_turn(hangs, fails, is_refused, is_preempted, fails)
    tried = await cluster.submit("tried", max_retries_failure=1)
    await cluster.end(tried)
    await keep("job-tried-five-times", cluster.job(tried))

    host.program = in_turn(*[is_preempted] * 8, succeeds)
    long = await cluster.submit("long")
    await cluster.end(long)
    await keep("job-continued-as-new", cluster.job(long))
    await keep("job-continued", cluster.job(long), first=False)


async def _slow(cluster: Cluster, keep: Callable[..., Any]) -> None:
    """The scheduler does not answer within the time of the quick exchange; the patient one takes over."""
    cluster.hosts["h1"].program = succeeds
    releases = cluster.outbox.releases
    before = releases.seen
    releases.close()
    job = await cluster.submit("slowly-released")
    await cluster.until(lambda: releases.seen == before + 2)
    releases.open()
    await cluster.end(job)
    await keep("job-slowly-released", cluster.job(job))


async def _state_is(cluster: Cluster, job: str, state: str) -> bool:
    return (await cluster.status(job)).state == state


async def _tasks(cluster: Cluster, keep: Callable[..., Any]) -> None:
    cluster.hosts["h1"].program = by_index(in_turn(is_preempted, succeeds), succeeds)
    good = await cluster.submit("good", replicas=3)
    await cluster.end(good)
    await keep("job-of-three", cluster.job(good))
    await keep("task-preempted-and-succeeded", cluster.task(good, 0))

    cluster.hosts["h1"].program = by_index(Held(), fails)
    bad = await cluster.submit("bad", replicas=2)
    await cluster.end(bad)
    await keep("job-of-two-failed", cluster.job(bad))
    await keep("task-killed", cluster.task(bad, 0))
    await keep("task-failed", cluster.task(bad, 1))

    cluster.hosts["h1"].program = Held()
    unwanted = await cluster.submit("unwanted", replicas=2, resources=some(cpu=3))
    await cluster.until(lambda: _one_waits(cluster))
    await cluster.cancel(unwanted)
    await cluster.end(unwanted)
    await keep("job-of-two-cancelled", cluster.job(unwanted))


async def _one_waits(cluster: Cluster) -> bool:
    shown = await cluster.snapshot()
    return (shown.running, shown.waiting) == (1, 1)


async def _slices(cluster: Cluster, keep: Callable[..., Any]) -> None:
    host = await cluster.join("gone")
    await cluster.join("gone", incarnation="second")
    await cluster.lose(a_host("gone", incarnation="first"))
    await cluster.lose(host.host)
    await cluster.result(cluster.slice(host.host))
    await keep("slice-lost", cluster.slice(host.host))

    back = await cluster.join("back")
    await cluster.lose(back.host)
    await cluster.report(a_host("back", incarnation="second"))
    await cluster.until(lambda: cluster.offers(a_host("back", incarnation="second")))
    await keep("slice-came-back", cluster.slice(back.host))


async def _autoscaler(cluster: Cluster, keep: Callable[..., Any]) -> None:
    lost, orphan = await cluster.join("lost"), await cluster.join("orphan")
    await cluster.slice(orphan.host).terminate()
    silent = (a_silent("lost"), a_silent("orphan"))
    cluster.watch.sees(silent, silent)
    watching = await cluster.start_autoscaler()
    await cluster.result(cluster.slice(lost.host))
    await cluster.until(lambda: _continued(watching))
    await keep("autoscaler-continued-as-new", cluster.autoscaler)


async def _continued(handle: WorkflowHandle[Any, Any]) -> bool:
    described = await handle.describe()
    return described.run_id != described.raw_description.workflow_execution_info.first_run_id


async def main() -> None:
    policies.HEARTBEAT = SECOND
    autoscaler.LOOK_EVERY = autoscaler.LOOK_AGAIN = SECOND
    HISTORIES.mkdir(exist_ok=True)
    for old in HISTORIES.glob("*.json"):
        old.unlink()
    async with dev_server_cluster("limit.historyCount.suggestContinueAsNew=50") as cluster:
        await record(cluster)


if __name__ == "__main__":
    asyncio.run(main())
