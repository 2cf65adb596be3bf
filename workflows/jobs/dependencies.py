"""The jobs that a job waits for (its dependencies), and the jobs that wait for it (its dependents).

A job registers with each of its dependencies, which signals its end to the job. A dependency that
is terminated signals nothing, so a waiting job also asks for the ends by itself, less and less
often.
"""

import asyncio
import contextlib
from collections.abc import Callable

from temporalio import workflow

from iris.activities.control.job_dependencies import JobDependencies
from iris.messages.dependencies import EndedJob, JobEnd, Lookup
from iris.messages.job import JobInput
from iris.model.job import dependencies
from iris.model.job.dependencies import Dependency
from iris.model.job.gangs import Gang
from iris.model.job.status import JobStatus
from iris.model.states import JobState, TaskState
from iris.workflows import policies
from iris.workflows.patient_call import until_done
from iris.workflows.scheduler_call import uninterrupted

#: The maximum number of dependents (jobs that wait for a job) that one activity signals. The ids of
#: that many take some 50 KiB in the activity's input.
SIGNALLED_AT_ONCE = 500
#: The maximum number of dependents (jobs that wait for a job) that a workflow passes to its next
#: run. Their ids need some 100 KiB. Further dependents learn of the job's end when they ask for it,
#: at most an hour later.
MOST_CARRIED = 1_000


class Dependencies:
    """The jobs that a job waits for before it requests hosts.

    Args:
        job: the job. It contains how the jobs that it waits for have ended, as far as earlier runs
            of its workflow have found out.
        has_ended: returns whether the job has ended while it waited, because its user has cancelled
            all of its tasks.
        changed: called when the set of jobs that the job waits for has changed.
        ready: called when a job that has dependencies may start.
        continue_as_new: continues the workflow as new; called when the workflow's history is long.
    """

    def __init__(
        self,
        job: JobInput,
        has_ended: Callable[[], bool],
        changed: Callable[[], None],
        ready: Callable[[], None],
        continue_as_new: Callable[[], None],
    ) -> None:
        self._cluster = job.cluster
        self._job = job.spec.id
        self._after = job.spec.after if job.ready_at is None else ()
        self._ends = {end.run_id: end.state for end in job.dependency_ends}
        self._has_ended = has_ended
        self._changed = changed
        self._ready = ready
        self._continue_as_new = continue_as_new
        #: True if an earlier run of the workflow has registered with the jobs that it waits for.
        self._registered = bool(job.tasks)
        self._waits = False

    @property
    def known(self) -> tuple[JobEnd, ...]:
        """The known ends, for the next run of the workflow."""
        return tuple(JobEnd(run_id=run_id, state=state) for run_id, state in self._ends.items())

    @property
    def _open(self) -> tuple[Dependency, ...]:
        """The dependencies whose ends are not known."""
        return tuple(each for each in self._after if each.run_id not in self._ends)

    @property
    def listed(self) -> str:
        """The jobs that this job waits for, as lists show them; empty if it does not wait."""
        return dependencies.listed(self._after, self._ends) if self._waits and self._open else ""

    def shown(self, status: JobStatus) -> JobStatus:
        """Returns the status with the jobs that this job waits for as its reason. A held job keeps
        its reason.
        """
        if not self._waits or not self._open or status.state is not JobState.PENDING:
            return status
        reason = dependencies.waiting_for(self._after, self._ends)
        waits = {"reason": reason}
        tasks = [
            task.model_copy(update=waits) if task.state is TaskState.PENDING else task
            for task in status.tasks
        ]
        return status.model_copy(update={"reason": reason, "tasks": tuple(tasks)})

    def receive(self, end: JobEnd) -> None:
        """Records the end of another job, which may end `wait`."""
        if any(each.run_id == end.run_id for each in self._after):
            self._ends.setdefault(end.run_id, end.state)
            self._changed()

    async def wait(self) -> str:
        """Waits until the job may start, can never start, or has ended. Returns why it can never
        start, or an empty text.

        Raises:
            asyncio.CancelledError: the job was cancelled meanwhile.
        """
        if not self._after:
            return ""
        pause = policies.DEPENDENCY_CHECK
        while not self._decided():
            await self._find_ends()
            if self._decided():
                break
            self._waits = True
            self._changed()
            with contextlib.suppress(asyncio.TimeoutError):
                await workflow.wait_condition(
                    self._decided,
                    timeout=pause,
                    timeout_summary="looks at the jobs that it waits for",
                )
            pause = min(2 * pause, policies.MAX_DEPENDENCY_CHECK)
            if workflow.info().is_continue_as_new_suggested() and not self._decided():
                self._continue_as_new()
        self._waits = False
        if refusal := dependencies.refusal(self._after, self._ends):
            return refusal
        self._ready()
        self._changed()
        return ""

    def _decided(self) -> bool:
        after, ends = self._after, self._ends
        cannot_start = bool(dependencies.refusal(after, ends))
        return dependencies.is_met(after, ends) or cannot_start or self._has_ended()

    async def _find_ends(self) -> None:
        """Asks for the ends of the other jobs. The first time, also registers with those that have
        not ended.
        """
        lookup = Lookup(
            cluster=self._cluster, jobs=self._open, dependent="" if self._registered else self._job
        )
        found = await until_done(
            JobDependencies.find_ends, lookup, cluster=self._cluster, timeout=policies.FIND_ENDS
        )
        self._registered = True
        for end in found.ends:
            self.receive(end)


class Dependents:
    """The jobs that wait for a job.

    Args:
        known: the ids of the jobs that have registered with earlier runs of the workflow.
    """

    def __init__(self, known: tuple[str, ...]) -> None:
        self.known = known
        self._signalled = 0

    @property
    def carried(self) -> tuple[str, ...]:
        """The latest dependents, for the next run of the workflow."""
        return self.known[-MOST_CARRIED:]

    def add(self, job: str) -> None:
        if job not in self.known:
            self.known = (*self.known, job)

    async def signal_end(self, job: Gang, state: JobState) -> None:
        """Signals the end of the job to all dependents, including those that register meanwhile."""
        # The job has ended already, so its own cancellation has no effect.
        with contextlib.suppress(asyncio.CancelledError):
            await uninterrupted(
                self._signal_end(job.cluster, JobEnd(run_id=job.run_id, state=state))
            )

    async def _signal_end(self, cluster: str, end: JobEnd) -> None:
        while some := self.known[self._signalled : self._signalled + SIGNALLED_AT_ONCE]:
            ended = EndedJob(cluster=cluster, dependents=some, end=end)
            summary = f"signals {len(some)} jobs that wait for it"
            await until_done(
                JobDependencies.signal_dependents, ended, cluster=cluster, summary=summary
            )
            self._signalled += len(some)
