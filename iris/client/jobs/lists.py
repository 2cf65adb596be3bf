"""Lists jobs as the Temporal service knows them, and numbers the runs of a name that was used
again.
"""

import difflib
import os
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.service import first_run
from iris.client.connect.rpc import UNREADABLE_MEMO, Connection, memo_of
from iris.client.views import JobRow, attribute, state_of, tags_of
from iris.model import names
from iris.model.errors import NotFound
from iris.model.job.arrays import MAX_TASKS
from iris.model.job.cancelling import CANCELLING, cancelling_in
from iris.model.job.children import parent_in
from iris.model.job.spec import MAX_REPLICAS
from iris.model.job.tags import MEMO_NOTE, check_tag, format_tags, has_tags, written
from iris.model.states import JobState

#: The command of a job whose description is encrypted with a key that this client does not have.
UNREADABLE = "(cannot be read with the keys known here)"
#: About how many jobs are read together if not all of them are in the list.
READ_TOGETHER = 500
#: How alike two names are of which one is a misspelling of the other: the part of their letters
#: that they have in common.
NEAR = 0.75


@dataclass(frozen=True)
class JobFilter:
    """Which jobs a list has; by default all.

    Args:
        live_only: leaves out ended jobs.
        states: only jobs in these states; empty: in any state.
        user: only jobs of this user; empty: of all.
        since: only jobs submitted at this time or later.
        text: only jobs with this text in their id, command, state, reason, tags or note, in small
            or capital letters.
        below: only jobs that belong to this job, or to one of those; empty: all.
        prefix: only jobs whose ids begin with this, in which there is no quote and no backslash;
            empty: all.
        tags: only jobs with all these tags: keys with a value, or with an empty one for any value.
    """

    live_only: bool = False
    states: Collection[JobState] = ()
    user: str = ""
    since: datetime | None = None
    text: str = ""
    below: str = ""
    prefix: str = ""
    tags: Collection[tuple[str, str]] = ()

    @property
    def needs_all(self) -> bool:
        """Returns whether the service cannot check all conditions, so that more jobs must be read
        than are shown.
        """
        return bool(self.states or self.text or self.tags)

    @property
    def only_running(self) -> bool:
        """Returns whether no job that has ended is wanted. No ended workflow shows a live state."""
        return self.live_only or (
            bool(self.states) and not any(state.ended for state in self.states)
        )

    def takes(self, *texts: str, tags: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Returns whether one of a job's texts has the text, and the job all the tags.

        The service has looked for the tags too, but Temporal's dev server takes small and capital
        letters for the same.
        """
        return has_tags(tags, self.tags) and self.text.casefold() in " ".join(texts).casefold()

    def query(self) -> str:
        """Returns the conditions that the service checks, for the end of a visibility query. It
        does not check states and text.

        Raises:
            InvalidValue: no user can have this name, or no job such a tag.
        """
        conditions = ["ExecutionStatus != 'ContinuedAsNew'"]
        if self.only_running:
            conditions.append("ExecutionStatus = 'Running'")
        if self.user:
            conditions.append(f"{names.SA_USER} = '{names.check_name('user', self.user)}'")
        for key, value in self.tags:
            check_tag(key, value)
            conditions.append(f"{names.SA_TAGS} = '{written(key, value)}'")
        if self.since is not None:
            conditions.append(f"StartTime >= '{self.since.astimezone(UTC).isoformat()}'")
        return " AND ".join(conditions)


def device_in(memo: Mapping[str, Any]) -> str:
    """Returns the accelerators of each of a job's tasks by its memo; empty if the memo has none."""
    device = memo.get(names.MEMO_DEVICE)
    return device if isinstance(device, str) else ""


def commit_in(memo: Mapping[str, Any]) -> str:
    """Returns the git commit of a job's files by its memo; empty if the memo has none."""
    commit = memo.get(names.MEMO_COMMIT)
    return commit if isinstance(commit, str) else ""


def note_in(memo: Mapping[str, Any]) -> str:
    """Returns what a job's user has noted, by the job's memo; empty if the memo has nothing."""
    note = memo.get(MEMO_NOTE)
    return note if isinstance(note, str) else ""


def reason_in(memo: Mapping[str, Any], state: JobState) -> str:
    """Returns the reason of a job's state by its memo; empty if the memo has none, or that of
    another state.
    """
    shown = memo.get(names.MEMO_REASON)
    reason = (
        shown.get("reason") if isinstance(shown, dict) and shown.get("state") == state else None
    )
    return reason if isinstance(reason, str) else ""


def tasks_in(memo: Mapping[str, Any]) -> int:
    """Returns the number of a job's tasks by its memo; 1 if the memo has none: any client can start
    a workflow with any memo.
    """
    tasks = memo.get(names.MEMO_TASKS)
    return tasks if isinstance(tasks, int) and 0 < tasks <= max(MAX_REPLICAS, MAX_TASKS) else 1


async def list_jobs(connection: Connection, wanted: JobFilter, limit: int) -> list[JobRow]:
    """Returns the jobs, the newest first. If ended jobs are wanted, those of which there is a newer
    run have its number.

    Raises:
        InvalidValue: no user can have this name.
        Unreachable: the service does not answer.
    """
    found: list[tuple[JobRow, str]] = []
    with connection.rpc_errors():
        query = f"{connection.list_query(names.KIND_JOB)} AND {wanted.query()}"
        if wanted.below:
            query += (
                " AND WorkflowId STARTS_WITH"
                f" '{names.job_workflow(connection.record.name, wanted.below)}/'"
            )
        if wanted.prefix:
            query += (
                " AND WorkflowId STARTS_WITH"
                f" '{names.job_workflow(connection.record.name, wanted.prefix)}'"
            )
        async for execution in _newest_first(connection, query, wanted, limit):
            if wanted.states and state_of(execution) not in wanted.states:
                continue
            if len(found) == limit:
                break
            row = await _row(execution)
            texts = (
                row.id,
                row.command,
                row.state,
                CANCELLING * (row.cancelling is not None),
                row.reason,
                row.note,
            )
            if wanted.takes(*texts, *format_tags(row.tags), tags=row.tags):
                found.append((row, execution.run_id))
    if wanted.live_only or not found:
        return [row for row, _ in found]
    runs = await runs_of(connection, {row.id for row, _ in found})
    return [_numbered(row, run_id, runs.get(row.id, ())) for row, run_id in found]


async def listed_job(connection: Connection, job: str, run_id: str | None = None) -> JobRow:
    """Returns what lists show of a job. Asks only the service, so it works while no control plane
    answers.

    Raises:
        NotFound: there is no such job.
        Unreachable: the service does not answer.
    """
    return await _row(await describe_job(connection, job, run_id))


async def count_jobs(connection: Connection, wanted: JobFilter, *, ended: bool) -> int:
    """Returns how many jobs that the filter takes have ended, or have not. The service counts, so
    it ignores states and text.

    Raises:
        InvalidValue: no user can have this name.
        Unreachable: the service does not answer.
    """
    query = (
        f"{connection.list_query(names.KIND_JOB)} AND"
        f" {replace(wanted, live_only=not ended).query()}"
    )
    with connection.rpc_errors():
        return (
            await connection.client.count_workflows(
                query + " AND ExecutionStatus != 'Running'" * ended
            )
        ).count


async def runs_of(connection: Connection, jobs: Iterable[str]) -> dict[str, list[str]]:
    """Returns the ids of all runs of each of these jobs that the service knows, the oldest first.

    Of a workflow that continued as new, it is the id of its last run.

    Raises:
        Unreachable: the service does not answer.
    """
    found = [
        (each.start_time.timestamp(), each.run_id, each.id)
        for each in await executions_of(connection, jobs)
    ]
    runs: dict[str, list[str]] = {}
    for _, run_id, workflow_id in sorted(found):
        runs.setdefault(names.job_of_workflow(workflow_id), []).append(run_id)
    return runs


async def numbered_run(connection: Connection, job: str, number: int) -> str:
    """Returns the id of a run of the job, by its number among the runs that the service knows, the
    oldest of which is 1.

    Raises:
        NotFound: the job has no such run.
        Unreachable: the service does not answer.
    """
    runs = (await runs_of(connection, [job])).get(job) or []
    if not runs:
        raise await unknown_job(connection, job)
    if not 1 <= number <= len(runs):
        raise NotFound(f"job {job} has no run {number}; its runs are 1 to {len(runs)}")
    return runs[number - 1]


async def executions_of(connection: Connection, jobs: Iterable[str]) -> list[WorkflowExecution]:
    """Returns all runs of each of these jobs that the service knows, in no particular order, as
    `runs_of` does.

    Raises:
        Unreachable: the service does not answer.
    """
    # Any client can start a workflow of any id, and the service has no way to write a quote in a
    # query.
    ids = [
        f"'{names.job_workflow(connection.record.name, job)}'"
        for job in sorted(jobs)
        if "'" not in job and "\\" not in job
    ]
    if not ids:
        return []
    only = f"WorkflowId IN ({', '.join(ids)}) AND ExecutionStatus != 'ContinuedAsNew'"
    with connection.rpc_errors():
        return [
            each
            async for each in connection.client.list_workflows(
                f"{connection.list_query(names.KIND_JOB)} AND {only}"
            )
        ]


async def describe_job(
    connection: Connection, job: str, run_id: str | None = None
) -> WorkflowExecutionDescription:
    """Describes the job's latest run, or the run with this id where a later job has taken the name.

    Raises:
        NotFound: there is no such job.
        Unreachable: the service does not answer.
    """
    described = await find_job(connection, job, run_id)
    if described is None:
        raise await unknown_job(connection, job)
    return described


async def find_job(
    connection: Connection, job: str, run_id: str | None = None
) -> WorkflowExecutionDescription | None:
    """Describes the job as `describe_job` does. Returns None if there is no such job.

    Raises:
        Unreachable: the service does not answer.
    """
    workflow_id = names.job_workflow(connection.record.name, job)
    with connection.rpc_errors():
        try:
            described = await connection.workflow(workflow_id).describe()
            if run_id is not None and first_run(described) != run_id:
                described = await connection.workflow(workflow_id, run_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
    # Otherwise, something else in the namespace has the id.
    return described if described.workflow_type == names.WORKFLOW_TYPES[names.KIND_JOB] else None


async def unknown_job(connection: Connection, job: str) -> NotFound:
    """Returns the error for a job that does not exist, with the names of similar ones.

    Raises:
        Unreachable: the service does not answer.
    """
    known = [row.id for row in await list_jobs(connection, JobFilter(), 500)]
    within, name = os.environ.get(names.ENV_JOB_ID), job.partition("/")[2]
    near = near_jobs(job, known)
    if within is not None and "/" not in name:
        near = list(dict.fromkeys([*near, *near_jobs(names.child_id(within, name), known)]))
    hint = f"did you mean {', '.join(near)}?" if near else "`iris jobs --all` lists them"
    return NotFound(f"there is no job {job}; {hint}")


def near_jobs(job: str, known: Iterable[str]) -> list[str]:
    """Returns the jobs of which the id may be a misspelling: the nearest names, and the same name
    of other users and parents.

    The user's name does not count: it is the same in most ids, and makes any two of them alike.
    """
    others = [other for other in dict.fromkeys(known) if other != job]  # it has just begun
    _, _, name = job.partition("/")
    names_of = {other: other.partition("/")[2] for other in others}
    # The id of a child is no misspelling of one of a job.
    alike = {
        own: other for other, own in reversed(names_of.items()) if own.count("/") == name.count("/")
    }
    near = [alike[own] for own in difflib.get_close_matches(name, list(alike), n=3, cutoff=NEAR)]
    near += [
        other
        for own, other in alike.items()
        if own.startswith(f"{name}-") or name.startswith(f"{own}-")
    ][:3]
    near += [other for other in others if f"/{other}".endswith(f"/{name}")]
    return list(dict.fromkeys(near))


def _newest_first(
    connection: Connection, query: str, wanted: JobFilter, limit: int
) -> AsyncIterator[WorkflowExecution]:
    if wanted.only_running:  # those the service sorts by their start
        return connection.client.list_workflows(query, limit=None if wanted.needs_all else limit)
    from iris.client.jobs.lists import newest_first  # most lists have only jobs that run

    return newest_first(connection.client, query, READ_TOGETHER if wanted.needs_all else limit)


def _numbered(row: JobRow, run_id: str, runs: Sequence[str]) -> JobRow:
    if run_id not in runs[:-1]:
        return row
    return row.model_copy(update={"run": runs.index(run_id) + 1})


async def _row(execution: WorkflowExecution) -> JobRow:
    memo = await memo_of(execution)
    known, state = memo is not UNREADABLE_MEMO, state_of(execution)
    cancelling = None if state.ended else cancelling_in(memo)
    return JobRow(
        id=names.job_of_workflow(execution.id),
        state=state,
        user=attribute(execution, names.SA_USER),
        submitted_at=execution.start_time,
        command=str(memo.get(names.MEMO_COMMAND, "")) if known else UNREADABLE,
        priority=attribute(execution, names.SA_PRIORITY),
        tasks=tasks_in(memo) if known else None,
        device=device_in(memo),
        commit=commit_in(memo),
        parent_run=parent.run_id if (parent := parent_in(memo)) is not None else "",
        reason=str(cancelling) if cancelling is not None else reason_in(memo, state),
        cancelling=cancelling,
        tags=tags_of(execution),
        note=note_in(memo),
        run_id=execution.run_id,
    )


#: The length of the first window, and how many times longer the next one is if it has too few.
FIRST_WINDOW, GROWTH = timedelta(hours=1), 8
#: Windows that have too many are halved at most this many times: decades become a second, which is
#: not halved.
MOST_HALVINGS = 30
#: How many times more than wanted are read together.
MOST_TIMES = 4
#: No workflow of Iris started before.
_FIRST = datetime(2025, 1, 1, tzinfo=UTC)


async def newest_first(client: Client, query: str, least: int) -> AsyncIterator[WorkflowExecution]:
    """Yields the workflows, the latest started first.

    Args:
        query: the conditions of a visibility query.
        least: how many are wanted at least, if there are so many; about so many are read together.
    """
    until: datetime | None = None
    left = (await client.count_workflows(query)).count
    while left > 0:
        start = (
            await _start(client, query, until, least, left) if left > MOST_TIMES * least else None
        )
        found = [each async for each in client.list_workflows(_within(query, start, until))]
        found.sort(key=lambda each: each.start_time, reverse=True)
        for each in found:
            yield each
        if start is None:
            return
        until, left = start, left - len(found)


async def _start(
    client: Client, query: str, until: datetime | None, least: int, left: int
) -> datetime | None:
    """Returns the start of a window that has enough workflows and not too many, if there is one;
    None: it has the whole past.

    Args:
        until: the end of the window; None: it is not over.
        left: how many workflows started before its end.
    """
    latest = until or datetime.now(UTC).replace(microsecond=0)
    length, few = FIRST_WINDOW, latest
    while True:
        start = latest - length
        if start < _FIRST:
            return None
        count = (await client.count_workflows(_within(query, start, until))).count
        if count >= least or count >= left:
            break
        few, length = start, GROWTH * length
    for _ in range(MOST_HALVINGS):
        middle = (start + (few - start) / 2).replace(microsecond=0)
        if count <= MOST_TIMES * least or middle <= start:
            break
        between = (await client.count_workflows(_within(query, middle, until))).count
        if between >= least:
            start, count = middle, between
        else:
            few = middle
    return start


def _within(query: str, start: datetime | None, until: datetime | None) -> str:
    since = f" AND StartTime >= '{start.isoformat()}'" if start is not None else ""
    return f"{query}{since}" + (
        f" AND StartTime < '{until.isoformat()}'" if until is not None else ""
    )
