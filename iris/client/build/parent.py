"""Finds the job in which a program runs. It is the parent of the jobs that the program submits."""

import hashlib
import itertools
import os
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.service import first_run
from iris.client.build.inheritance import inherit
from iris.client.build.names import word_of
from iris.client.connect.rpc import Connection
from iris.client.jobs.rows import state_of
from iris.client.jobs.submitted import submitted_spec
from iris.model import names
from iris.model.errors import Rejected
from iris.model.job.children import Parent
from iris.model.job.spec import JobSpec

#: If a job's history has this number of events, further child jobs do not register with the job. A
#: registration adds up to four events. The server accepts 10,000 signals and 50,000 events, and the
#: job itself needs some of them.
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
    #: The directory in which the job's programs start.
    workdir: Path | None
    #: True if child jobs register with the workflow of this job; False if the history of this job
    #: already has `MOST_EVENTS` events.
    registers: bool
    #: Counters of the child jobs that this attempt submits, one for each name. If a name is used
    #: again, its counter becomes the suffix of the name.
    submitted: "defaultdict[str, itertools.count[int]]"

    @property
    def shares_files(self) -> bool:
        """Whether the current directory is still the one in which the program was started. Only
        then its children get the same files.
        """
        return self.workdir is not None and Path.cwd() == self.workdir

    @property
    def root(self) -> Path | None:
        """The directory of the job's bundle. None if the job has no bundle."""
        if self.workdir is None or self.spec.bundle is None:
            return None
        inner = Path(self.spec.environment.project).parts
        return self.workdir.parents[len(inner) - 1] if inner else self.workdir

    def child(self, spec: JobSpec, work: str, *, named: bool, given: Collection[str]) -> JobSpec:
        """Returns the job as a child of this job.

        Args:
            work: the digest of the child's work, as `child_digest.py` makes it. Each attempt that
                submits the same work has the same digest.
            named: whether the user chose the name.
            given: as for `inherit`.

        Raises:
            InvalidJob: the child with the settings that it inherits is not valid.
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
        #: Counters of the child jobs that this program submits, one for each name. A retry of the
        #: task runs a new program, whose counters begin again at 1.
        self._submitted: defaultdict[str, itertools.count[int]] = defaultdict(
            lambda: itertools.count(1)
        )

    async def find(self, env: Mapping[str, str] = os.environ) -> EnclosingJob | None:
        """Returns the job. Returns None if this program does not run in a job of this cluster.

        Raises:
            Rejected: the job has ended.
            Unreachable: the service does not answer.
        """
        job, cluster = env.get(names.ENV_JOB_ID), self._connection.record.name
        if job is None or env.get(names.ENV_CLUSTER) != cluster:
            return None
        remedy = f"to submit a job without a parent job, unset {names.ENV_JOB_ID}"
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
                f"job {job}, in which this program runs, has ended{state} and can have no"
                f" further child jobs; {remedy}"
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
