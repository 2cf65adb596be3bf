"""Validates a cluster with three cases. Each case finds or creates a slice, runs a task on each of
its hosts, and checks the results.
"""

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import timedelta
from itertools import combinations

from pydantic import ValidationError

from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import current_user
from iris.client.jobs.files import outputs_of
from iris.client.jobs.submit.start import Submitted
from iris.model import names
from iris.model.errors import IrisError, Rejected, Unreachable, first_line
from iris.model.frozen import Frozen
from iris.model.host.accelerators import Tpu, parse_tpu
from iris.model.host.constraints import TPU_NAME
from iris.model.host.resources import Resources
from iris.model.job.spec import Coscheduling, JobSpec
from iris.model.job.status import JobStatus
from iris.model.states import JobState
from iris.model.units import GIB
from iris.storage.object_store import STORE_ERRORS, Store

#: The time limit of the test program. The program computes a sum; in the third test case, it also
#: sleeps for a second.
RUN = timedelta(minutes=5)
#: The maximum number of problems that the result of one test case lists.
MAX_PROBLEMS = 5
#: The file that each task writes to its output directory.
ANSWER = "answer.json"

#: The program of each task, which needs only Python. It reports its host and a sum over its
#: arguments. The first argument is the number of seconds that the program sleeps.
PROGRAM = f"""
import json, os, sys, time
pause, *numbers = map(int, sys.argv[1:])
time.sleep(pause)
task = int(os.environ["{names.ENV_TASK_INDEX}"])
answer = dict(
    task=task,
    host=os.environ["{names.ENV_HOST_ID}"],
    slice=os.environ["{names.ENV_SLICE_ID}"],
    worker=os.environ.get("{names.ENV_TPU_WORKER_ID}", ""),
    kind=os.environ.get("{names.ENV_TPU_TYPE}", ""),
    result=sum(number * number for number in numbers) + task,
)
print(json.dumps(answer))
with open(os.path.join(os.environ["{names.ENV_OUTPUT_DIR}"], "{ANSWER}"), "w") as file:
    json.dump(answer, file)
"""


class Case(Frozen):
    """A test case: some jobs that run at the same time, each with a task on every host of one
    slice.
    """

    name: str
    #: A description of the test case, for people.
    what: str
    jobs: int = 1
    #: How long each task sleeps, in seconds.
    pause: int = 0
    #: The numbers whose squares the program adds up. They are arguments of the program.
    numbers: tuple[int, ...] = ()


class CaseResult(Frozen):
    """The result of a test case."""

    name: str
    passed: bool
    #: The duration of the test case, in seconds.
    took: float
    #: The text of the result: what the test case found, or all problems.
    said: str
    jobs: tuple[str, ...] = ()


class TaskReport(Frozen):
    """The report of one task of a test case."""

    task: int
    host: str
    slice: str
    #: The task's worker number in the slice, as set for libtpu; empty if it is not set.
    worker: str = ""
    #: The TPU type that the host's agent gives to the task, in `TPU_ACCELERATOR_TYPE`; empty if the
    #: task does not have this variable.
    kind: str = ""
    result: int


class Ended(Frozen):
    """A job of a test case after its end, and the reports of its tasks."""

    status: JobStatus
    answers: tuple[TaskReport, ...]


def cases() -> tuple[Case, ...]:
    """Returns the cases in order. The second case has new random numbers each time, so the results
    of an earlier run do not pass.
    """
    return (
        Case(name="simple", what="a task on every host of a slice"),
        Case(
            name="compute",
            what="a computation with arguments",
            numbers=tuple(secrets.randbelow(1000) for _ in range(8)),
        ),
        Case(name="two-jobs", what="two jobs at once, through the scheduler", jobs=2, pause=1),
    )


def job_spec(case: Case, kind: Tpu, name: str, timeout: timedelta) -> JobSpec:
    """Builds the job of a case: a task on every host of one slice of that kind."""
    tpu = parse_tpu(kind.variant)
    return JobSpec(
        user=current_user(),
        name=name,
        command=("python3", "-c", PROGRAM, str(case.pause), *map(str, case.numbers)),
        resources=Resources(memory_bytes=GIB, device=tpu.device),
        replicas=tpu.hosts,
        coscheduling=Coscheduling(group_by=TPU_NAME) if tpu.hosts > 1 else None,
        scheduling_timeout=timeout,
        timeout=RUN,
    )


def problems(case: Case, kind: Tpu, ended: Sequence[Ended]) -> list[str]:
    """Lists everything that is wrong with the results of a case. An empty list means that the case
    has passed.
    """
    found = [problem for each in ended for problem in _of_job(case, kind, each)]
    return found + [
        problem
        for one, other in combinations(ended, 2)
        for problem in _overlap(one.status, other.status)
    ]


def _of_job(case: Case, kind: Tpu, ended: Ended) -> list[str]:
    status, answers = ended.status, ended.answers
    if status.state is not JobState.SUCCEEDED:
        return [
            f"{status.id} ended {status.state}" + (f": {status.reason}" if status.reason else "")
        ]
    found = []
    silent = sorted(set(range(kind.hosts)) - {answer.task for answer in answers})
    if silent:
        found.append(f"{status.id} has no answer from task {', '.join(map(str, silent))}")
    by_host = Counter(answer.host for answer in answers)
    found += [
        f"{host} ran {count} tasks of {status.id} at once"
        for host, count in by_host.items()
        if count > 1
    ]
    if len(slices := sorted({answer.slice for answer in answers})) > 1:
        found.append(f"the tasks of {status.id} were on several slices: {', '.join(slices)}")
    for answer in answers:
        right = sum(number * number for number in case.numbers) + answer.task
        if answer.result != right:
            found.append(
                f"task {answer.task} of {status.id} answered {answer.result}, expected {right}"
            )
        if answer.worker != str(answer.task):
            found.append(
                f"task {answer.task} of {status.id} is worker {answer.worker or '(none)'} of its"
                f" slice, expected {answer.task}"
            )
        if answer.kind != kind.variant:
            found.append(
                f"task {answer.task} of {status.id} ran on {answer.kind or 'no TPU'}, expected"
                f" {kind.variant}"
            )
    return found


def _overlap(one: JobStatus, other: JobStatus) -> Iterable[str]:
    """Yields the hosts that ran both jobs at the same time. That is wrong, because each job needs
    all chips of its hosts.
    """
    for a in one.tasks:
        for b in other.tasks:
            if (
                a.host is None
                or a.host != b.host
                or not (a.started_at and a.finished_at and b.started_at and b.finished_at)
            ):
                continue
            if a.started_at < b.finished_at and b.started_at < a.finished_at:
                yield f"host {a.host} ran {one.id} and {other.id} at the same time"


async def validate(
    client: AsyncIrisClient, kind: Tpu, timeout: timedelta, progress: Callable[[str], None]
) -> AsyncIterator[CaseResult]:
    """Runs the cases one after the other, and yields the result of each. An interrupt cancels the
    running jobs.

    After a case that gets no slice, no further case runs, because it would wait just as long. The
    same holds after a case whose end is unknown because the cluster or its store does not answer.

    Args:
        timeout: how long a job may wait for its slice, including the creation of the slice.
        progress: called with the jobs that are submitted.
    """
    run = secrets.token_hex(3)
    stopped_by = ""
    for case in cases():
        if stopped_by:
            yield CaseResult(name=case.name, passed=False, took=0, said=f"not run: {stopped_by}")
            continue
        began = time.monotonic()
        job_names = [
            f"validate-{run}-{case.name}" + (f"-{number}" if case.jobs > 1 else "")
            for number in range(1, case.jobs + 1)
        ]
        specs = [job_spec(case, kind, name, timeout) for name in job_names]
        try:
            if (infeasible := await client.jobs.why_infeasible(specs[0])) is not None:
                raise Rejected(
                    infeasible.message + (f"; {infeasible.remedy}" if infeasible.remedy else "")
                )
            progress(f"{case.name}: {', '.join(spec.id for spec in specs)}")
            ended = await _run(client, specs, timeout + RUN)
            wrong = problems(case, kind, ended)
            if any(each.status.state is JobState.UNSCHEDULABLE for each in ended):
                stopped_by = f"{case.name} found no slice"
        except IrisError as error:
            ended, wrong, stopped_by = [], [str(error)], f"{case.name} did not finish"
        yield CaseResult(
            name=case.name,
            passed=not wrong,
            took=time.monotonic() - began,
            said=_some(wrong) if wrong else _seen(case, ended),
            jobs=tuple(spec.id for spec in specs),
        )


async def _run(
    client: AsyncIrisClient, specs: Sequence[JobSpec], timeout: timedelta
) -> list[Ended]:
    """Submits the jobs and waits until they have ended."""
    live: set[str] = set()

    async def until_ended(spec: JobSpec, submitted: Submitted) -> Ended:
        status = await client.jobs.wait(spec.id, submitted.run_id, timeout)
        live.discard(spec.id)
        return Ended(status=status, answers=await _answers(client, submitted))

    try:
        submitted = []
        for spec in specs:
            live.add(spec.id)  # before the answer, which an interrupt may cut off
            submitted.append(await client.jobs.submit(spec))
        return await asyncio.gather(*map(until_ended, specs, submitted))
    finally:
        for job in live:
            # The job may have ended, or the cluster does not answer.
            with contextlib.suppress(IrisError):
                await asyncio.shield(client.jobs.cancel(job, "the validation was interrupted"))


async def _answers(client: AsyncIrisClient, submitted: Submitted) -> tuple[TaskReport, ...]:
    """Returns the reports that the tasks wrote to the store. Skips a malformed report.

    Raises:
        Unreachable: the store does not answer.
    """
    store = Store(client.record.store)
    found = []
    try:
        for file in await outputs_of(store, submitted.id, submitted.run_id):
            if str(file.path) == ANSWER and (text := await store.get(file.object)) is not None:
                with contextlib.suppress(ValidationError):
                    found.append(TaskReport.model_validate_json(text))
    except STORE_ERRORS as error:
        raise Unreachable(f"the store {store.url} does not answer: {first_line(error)}") from None
    return tuple(found)


def _seen(case: Case, ended: Sequence[Ended]) -> str:
    """Describes a case that has passed, such as `4 host(s) of v5e-16-1 answered`, and how several
    jobs shared the slices.
    """
    slices = sorted({answer.slice for each in ended for answer in each.answers})
    parts = [f"{len(ended[0].answers)} host(s) of {' and of '.join(slices)} answered"]
    if case.numbers:
        parts.append("with correct sums")
    if len(ended) > 1:
        parts.append(
            "to one job after the other" if len(slices) == 1 else "each to a job of its own"
        )
    return ", ".join(parts)


def _some(wrong: Sequence[str]) -> str:
    more = f"; and {len(wrong) - MAX_PROBLEMS} more" if len(wrong) > MAX_PROBLEMS else ""
    return "; ".join(wrong[:MAX_PROBLEMS]) + more
