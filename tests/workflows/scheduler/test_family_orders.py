"""Families of jobs in any order of events: no job outlives an ancestor that ended without success,
and no job runs twice.
"""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from iris.activities.control import notifier as notifier_activities
from iris.messages.task import RunTask
from iris.model import names
from iris.model.errors import Rejected
from iris.model.job.attempts import TaskOutcome
from iris.workflows import policies
from tests.builders import some
from tests.harness import Cluster, Held, Program, child, dev_server_cluster, fails, succeeds
from tests.strategies import examples

pytestmark = pytest.mark.long

SECOND = timedelta(seconds=1)


class Event(NamedTuple):
    """What happens to one of the jobs: those of one list happen at the same time."""

    kind: Literal["submit", "submit again", "succeed", "fail", "cancel", "terminate"]
    #: Of the job, among those that there are; of the parent, if it is a submission.
    number: int


KINDS = ["submit", "submit", "submit", "submit again", "succeed", "fail", "cancel", "terminate"]
EVENTS = st.lists(
    st.builds(Event, kind=st.sampled_from(KINDS), number=st.integers(0, 20)), min_size=1, max_size=4
)


class Families:
    """The jobs of one example, and what their programs have done."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.jobs: list[str] = []
        self._numbers = itertools.count(1)
        self._programs: dict[str, Held] = {}
        self._verdicts: dict[str, Program] = {}
        self.running: Counter[str] = Counter()
        self.overlaps: list[str] = []
        self.successes: Counter[str] = Counter()

    async def program(self, task: RunTask) -> TaskOutcome:
        """Runs until the test ends it."""
        if self.running[task.job]:
            self.overlaps.append(task.job)
        self.running[task.job] += 1
        try:
            return await self._programs.setdefault(task.job, Held(then=self._end))(task)
        finally:
            self.running[task.job] -= 1

    async def _end(self, task: RunTask) -> TaskOutcome:
        verdict = self._verdicts[task.job]
        self.successes[task.job] += verdict is succeeds
        return await verdict(task)

    async def happens(self, event: Event) -> None:
        job = self.jobs[event.number % len(self.jobs)]
        match event.kind:
            case "submit":
                self.jobs.append(await child(self._cluster, job, f"j{next(self._numbers)}"))
            case "submit again":
                parent, _, name = job.rpartition("/")
                if "/" in parent and await self.status(job) is not None:
                    try:
                        assert await child(self._cluster, parent, name, attempt=2) == job
                    except Rejected as refusal:
                        assert "already exists" in str(refusal), refusal  # noqa: PT017
            case "succeed" | "fail":
                self._verdicts.setdefault(job, succeeds if event.kind == "succeed" else fails)
                self._programs.setdefault(job, Held(then=self._end)).let_go()
            case "cancel":
                with contextlib.suppress(RPCError):  # it has ended, or has not begun
                    await self._cluster.job(job).cancel()
            case "terminate":
                with contextlib.suppress(RPCError):
                    await self._cluster.job(job).terminate()

    async def status(self, job: str) -> WorkflowExecutionStatus | None:
        try:
            return (await self._cluster.job(job).describe()).status
        except RPCError:
            return None

    async def wrong(self) -> list[str]:
        """The live jobs below a job that ended without success."""
        known = {job: await self.status(job) for job in self.jobs}
        return [
            job
            for job in self.jobs
            if known[job] is WorkflowExecutionStatus.RUNNING and _is_doomed(job, known)
        ]

    async def live(self) -> list[str]:
        return [
            job for job in self.jobs if await self.status(job) is WorkflowExecutionStatus.RUNNING
        ]


def _is_doomed(job: str, known: dict[str, WorkflowExecutionStatus | None]) -> bool:
    parent = names.parent_id(job)
    if parent is None or known[parent] is WorkflowExecutionStatus.RUNNING:
        return False
    return known[parent] is not WorkflowExecutionStatus.COMPLETED or _is_doomed(parent, known)


@settings(max_examples=examples(4), deadline=None, derandomize=True, database=None)
@given(st.lists(EVENTS, min_size=6, max_size=16))
async def test_no_child_outlives_an_unsuccessful_job_or_runs_twice_in_any_order(
    steps: list[list[Event]],
) -> None:
    """Such a child would run for ever, and two runs would write the same result."""
    usual = policies.CHECK_JOBS_EVERY, notifier_activities.LEFT_TO_HOSTS
    policies.CHECK_JOBS_EVERY = notifier_activities.LEFT_TO_HOSTS = SECOND
    try:
        async with dev_server_cluster() as cluster:
            families = Families(cluster)
            await cluster.join(offers=some(cpu=64), program=families.program)
            families.jobs.append(await cluster.submit("top"))
            await _play(families, steps)
            await cluster.until(lambda: _is_empty(families.wrong))
            assert families.overlaps == []
            assert [job for job, count in families.successes.items() if count > 1] == []
            await asyncio.gather(*(cluster.cancel(job) for job in await families.live()))
            await cluster.until(lambda: _is_empty(families.live))
            await cluster.until(cluster.nothing_held)
    finally:
        policies.CHECK_JOBS_EVERY, notifier_activities.LEFT_TO_HOSTS = usual


async def _play(families: Families, steps: Iterable[Iterable[Event]]) -> None:
    for step in steps:
        await asyncio.gather(*(families.happens(event) for event in step))


async def _is_empty(found: Callable[[], Awaitable[list[str]]]) -> bool:
    return await found() == []
