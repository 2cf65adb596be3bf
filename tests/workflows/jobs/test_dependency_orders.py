"""Whatever jobs wait for each other and however they end: none starts early, none starts in vain,
and none waits for ever.
"""

import contextlib
import re
from datetime import timedelta
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.client import WorkflowFailureError
from temporalio.service import RPCError

from iris.activities.control import notifier as notifier_activities
from iris.messages.task import RunTask
from iris.model.job.attempts import TaskOutcome
from iris.model.job.dependencies import Condition, Dependency
from iris.model.states import JobState
from iris.workflows import policies
from tests.builders import some
from tests.harness import Cluster, Held, dev_server_cluster, fails, succeeds
from tests.strategies import examples

pytestmark = pytest.mark.long

#: So short that jobs which wait, and jobs for which others wait, continue as new.
SHORT = "limit.historyCount.suggestContinueAsNew=25"
SECOND = timedelta(seconds=1)
VERDICTS = ["succeed", "succeed", "fail", "cancel", "terminate"]


class Sizes(NamedTuple):
    jobs: int
    seed: int


class Graph:
    """Jobs that wait for earlier ones, and what their programs have done."""

    def __init__(self, cluster: Cluster, sizes: Sizes) -> None:
        self._cluster = cluster
        self._random = Random(sizes.seed)
        self.jobs = [f"ada/j{number}" for number in range(sizes.jobs)]
        self.verdicts = {job: self._random.choice(VERDICTS) for job in self.jobs}
        self.after: dict[str, tuple[Dependency, ...]] = {}
        for place, job in enumerate(self.jobs):
            others = self._random.sample(self.jobs[:place], min(place, self._random.randrange(4)))
            self.after[job] = tuple(
                Dependency(job=other, on=self._random.choice(list(Condition))) for other in others
            )
        self._programs = {job: Held(then=self._end) for job in self.jobs}
        self.early: list[str] = []
        self._over: set[str] = set()
        self.ran: set[str] = set()

    async def program(self, task: RunTask) -> TaskOutcome:
        self.ran.add(task.job)
        self.early += [
            task.job for each in self.after[task.job] if each.job in self.ran - self._over
        ]
        try:
            return await self._programs[task.job](task)
        finally:
            self._over.add(task.job)

    async def _end(self, task: RunTask) -> TaskOutcome:
        return await (fails if self.verdicts[task.job] == "fail" else succeeds)(task)

    async def play(self) -> None:
        """Submits the jobs in their order, and ends them in any order; some before others are
        submitted.
        """
        ending = list(self.jobs)
        self._random.shuffle(ending)
        for job in self.jobs:
            await self._cluster.submit(
                job.removeprefix("ada/"),
                after=self.after[job],
                replicas=self._random.choice([1, 1, 2]),
            )
            if self._random.random() < 0.3 and ending[0] <= job:
                await self._ends(ending.pop(0))
        for job in ending:
            await self._ends(job)

    async def _ends(self, job: str) -> None:
        self._programs[job].let_go()
        with contextlib.suppress(RPCError):  # it has ended
            if self.verdicts[job] == "cancel":
                await self._cluster.job(job).cancel()
            if self.verdicts[job] == "terminate":
                await self._cluster.job(job).terminate()

    async def end(self, job: str) -> tuple[JobState, str]:
        """The job's state and reason after its end. One that was terminated before its first step
        answers no questions.
        """
        with contextlib.suppress(WorkflowFailureError):
            await self._cluster.result(self._cluster.job(job))
        if await self._cluster.shown_end(self._cluster.job(job)) == "TERMINATED":
            return JobState.KILLED, "terminated"
        status = await self._cluster.status(job)
        return status.state, status.reason


@settings(max_examples=examples(4), deadline=None, derandomize=True, database=None)
@given(st.builds(Sizes, jobs=st.integers(2, 9), seed=st.integers(0, 2**32)))
async def test_every_job_starts_after_those_that_it_waits_for_or_ends_because_of_one(
    sizes: Sizes,
) -> None:
    """A result that is computed from a half-finished one is wrong, and a job that waits for ever is
    never noticed.
    """
    usual = (
        policies.DEPENDENCY_CHECK,
        policies.MAX_DEPENDENCY_CHECK,
        policies.CHECK_JOBS_EVERY,
        notifier_activities.LEFT_TO_HOSTS,
    )
    policies.DEPENDENCY_CHECK = policies.MAX_DEPENDENCY_CHECK = 2 * SECOND
    policies.CHECK_JOBS_EVERY = notifier_activities.LEFT_TO_HOSTS = SECOND
    try:
        async with dev_server_cluster(SHORT) as cluster:
            graph = Graph(cluster, sizes)
            await cluster.join(offers=some(cpu=64), program=graph.program)
            await graph.play()
            ends = {job: await graph.end(job) for job in graph.jobs}
            await cluster.until(cluster.nothing_held)
    finally:
        policies.DEPENDENCY_CHECK, policies.MAX_DEPENDENCY_CHECK = usual[:2]
        policies.CHECK_JOBS_EVERY, notifier_activities.LEFT_TO_HOSTS = usual[2:]

    assert graph.early == []
    for job in graph.jobs:
        impossible = [each for each in graph.after[job] if not each.allows(ends[each.job][0])]
        if job in graph.ran:
            assert impossible == []
        elif graph.verdicts[job] in ("succeed", "fail"):
            assert impossible
            assert re.search("ada/.* ended ", ends[job][1]), ends[job]
