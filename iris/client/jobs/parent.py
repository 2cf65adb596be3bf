"""The job in which a program runs, as the parent of the jobs that the program submits."""

import hashlib
import itertools
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.service import first_run
from iris.client.build.options import invalid_job, word_of
from iris.client.connect.rpc import Connection
from iris.client.jobs.lists import JobFilter, list_jobs
from iris.client.jobs.submitted import submitted_spec
from iris.client.views import JobRow, state_of
from iris.model import names
from iris.model.errors import Rejected
from iris.model.host.constraints import REGION, ZONE
from iris.model.host.resources import format_amounts
from iris.model.job.children import Parent
from iris.model.job.environments import SETUP_TIMEOUT, EnvironmentSpec
from iris.model.job.spec import JobSpec
from iris.scheduling.placement.refusals import Refusal, RefusalCode

#: The events in the history of a job from which on its children do not register with it. A
#: registration is up to four events. The server accepts 10,000 signals and 50,000 events, and the
#: job itself needs some.
MOST_EVENTS = 4_000


class EnclosingJob(NamedTuple):
    """The job in which this program runs."""

    spec: JobSpec
    job: str
    run_id: str
    current_run: str
    task: int
    num_tasks: int
    attempt: int
    #: The directory in which its programs start.
    workdir: Path | None
    #: Whether its children register with its workflow.
    registers: bool
    #: Counts the children of each name that the attempt submits.
    submitted: "defaultdict[str, itertools.count[int]]"

    @property
    def shares_files(self) -> bool:
        """Returns whether the program is in the directory in which it was started, so that its
        children start in the same.
        """
        return self.workdir is not None and Path.cwd() == self.workdir

    @property
    def root(self) -> Path | None:
        """The directory of the job's bundle; None: it has none."""
        if self.workdir is None or self.spec.bundle is None:
            return None
        inner = Path(self.spec.environment.project).parts
        return self.workdir.parents[len(inner) - 1] if inner else self.workdir

    def child(self, spec: JobSpec, work: str, *, named: bool, given: Collection[str]) -> JobSpec:
        """Returns the job as a child of this one.

        Args:
            work: what tells it from others (`work_digest.py`), the same in each attempt that
                submits the same.
            named: whether the user has chosen its name.
            given: as for `inherit`.

        Raises:
            InvalidJob: it does not go with what it inherits.
        """
        text = work if self.num_tasks == 1 or named else f"{self.task} {work}"
        digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
        name, number = spec.name, 1
        if not named:
            name = f"{word_of(spec.command)}-{digest[:12]}"
            number = next(self.submitted[name])
            name = name if number == 1 else f"{name}-{number}"
        parent = Parent(
            job=self.job,
            run_id=self.run_id,
            current_run=self.current_run,
            task=self.task,
            attempt=self.attempt,
            work=digest,
            registers=self.registers,
            named=named,
            number=number,
        )
        return inherit(
            spec.model_copy(update={"user": self.spec.user, "name": name, "parent": parent}),
            self.spec,
            given=given,
        )


class ParentLookup:
    """Finds the job in which this program runs, if it runs in a job of the cluster."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._specs: dict[str, JobSpec] = {}
        #: The program that uses the client belongs to one attempt.
        self._submitted: defaultdict[str, itertools.count[int]] = defaultdict(
            lambda: itertools.count(1)
        )

    async def find(self, env: Mapping[str, str] = os.environ) -> EnclosingJob | None:
        """Returns the job, or None outside of the jobs of this cluster.

        Raises:
            Rejected: the job has ended.
            Unreachable: the service does not answer.
        """
        job, cluster = env.get(names.ENV_JOB_ID), self._connection.record.name
        if job is None or env.get(names.ENV_CLUSTER) != cluster:
            return None
        remedy = f"to submit a job that belongs to no other, unset {names.ENV_JOB_ID}"
        handle = self._connection.workflow(names.job_workflow(cluster, job))
        with self._connection.rpc_errors():
            try:
                found = await handle.describe()
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    text = f"cluster {cluster} has no job {job}, in which this program runs"
                    raise Rejected(f"{text}; {remedy}") from None
                raise
        run_id = first_run(found)
        replaced = not env.get(names.ENV_ATTEMPT_KEY, "").endswith(f"/{names.short_run(run_id)}")
        if replaced or found.status is not WorkflowExecutionStatus.RUNNING or state_of(found).ended:
            state = "" if replaced else f" {state_of(found)}"
            raise Rejected(
                f"job {job}, in which this program runs, has ended{state}: nothing can belong to"
                f" it; {remedy}"
            )
        if run_id not in self._specs:
            self._specs[run_id] = await submitted_spec(self._connection, job, run_id)
        workdir = env.get(names.ENV_WORKDIR)
        return EnclosingJob(
            spec=self._specs[run_id],
            job=job,
            run_id=run_id,
            current_run=found.run_id or run_id,
            task=int(env[names.ENV_TASK_INDEX]),
            num_tasks=int(env[names.ENV_NUM_TASKS]),
            attempt=int(env[names.ENV_ATTEMPT]),
            workdir=Path(workdir).resolve() if workdir is not None else None,
            registers=found.history_length < MOST_EVENTS,
            submitted=self._submitted,
        )


def inherit(child: JobSpec, parent: JobSpec, *, given: Collection[str]) -> JobSpec:
    """Returns the child with what it has from its parent: all but the resources, the devices, the
    times and the numbers.

    Args:
        given: what was chosen for the child, among `files`, `workdir` and `priority`. Other options
            count as chosen if they differ from the default.

    Raises:
        InvalidJob: both together are not a valid job.
    """
    changes: dict[str, Any] = {
        "env": (
            {name: value for name, value in parent.env.items() if name not in child.secrets}
            | child.env
        ),
        "secrets": (
            {name: source for name, source in parent.secrets.items() if name not in child.env}
            | child.secrets
        ),
        "image": child.image or parent.image,
        "band": child.band if "priority" in given else parent.band,
    }
    if not any(each.key in (REGION, ZONE) for each in child.constraints):
        changes["constraints"] = (
            *child.constraints,
            *(each for each in parent.constraints if each.key in (REGION, ZONE)),
        )
    if "files" not in given:
        changes |= {
            "bundle": parent.bundle,
            "environment": _environment(child.environment, parent.environment),
        }
        changes["workdir"] = parent.workdir if changes["image"] == parent.image else None
    elif "workdir" not in given and child.image is None and parent.image is not None:
        changes["workdir"] = None  # a directory of the host, which the container does not have
    try:
        return JobSpec(
            **{**{name: getattr(child, name) for name in JobSpec.model_fields}, **changes}
        )
    except ValidationError as error:
        raise invalid_job(error) from None


def _environment(child: EnvironmentSpec, parent: EnvironmentSpec) -> EnvironmentSpec:
    """Returns the parent's environment, or the child's own for the parent's project."""
    limit = child.setup_timeout
    if child == EnvironmentSpec(setup_timeout=limit):
        return (
            parent if limit == SETUP_TIMEOUT else parent.model_copy(update={"setup_timeout": limit})
        )
    return child.model_copy(update={"project": parent.project, "build_env": parent.build_env})


#: The most children of a job that are listed.
MAX_CHILDREN = 1000


class FamilyClient:
    """The jobs of one cluster that belong to other jobs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def children(self, job: str, first_run: str) -> list[JobRow]:
        """Returns the jobs that belong to the job, the first one first; none from a service that
        cannot list workflows.

        Args:
            first_run: which of the jobs of this name.

        Raises:
            Unreachable: the service does not answer.
        """
        try:
            rows = await list_jobs(self._connection, JobFilter(below=job), MAX_CHILDREN)
        except RPCError as error:
            if (
                error.status is RPCStatusCode.UNIMPLEMENTED
            ):  # it keeps no lists; the rest of an explanation does not need them
                return []
            raise
        return [
            row
            for row in reversed(rows)
            if row.parent_run == first_run and names.parent_id(row.id) == job
        ]

    async def live_below(self, job: str) -> int:
        """Returns the number of live jobs that belong to the job or to one of those. They end with
        it, unless it succeeds.

        Raises:
            Unreachable: the service does not answer.
        """
        return len(
            await list_jobs(self._connection, JobFilter(below=job, live_only=True), MAX_CHILDREN)
        )

    async def held_above(self, job: str, refusal: Refusal) -> str:
        """Returns a remark for a job that waits for capacity: which job above it holds as much.
        Empty: none does.

        Raises:
            Unreachable: the service does not answer.
        """
        if refusal.code not in (RefusalCode.BUSY, RefusalCode.KEPT):
            return ""
        from iris.client.jobs.submitted import submitted_spec  # few jobs wait for one above them

        for parent in _above(job):
            resources = (await submitted_spec(self._connection, parent)).resources.amounts()
            if all(
                refusal.free.get(name, 0) + resources.get(name, 0) >= needed
                for name, needed in refusal.needed.items()
            ):
                return (
                    f"{parent}, to which it belongs, holds {format_amounts(resources)} itself: if"
                    " that job waits for this one, request less for one of them, or add a host"
                )
        return ""


def _above(job: str) -> Iterator[str]:
    while (parent := names.parent_id(job)) is not None:
        yield parent
        job = parent
