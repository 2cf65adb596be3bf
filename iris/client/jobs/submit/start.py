"""Starts the workflows of jobs. A job of a batch is started once, even if the batch is submitted
several times.
"""

from typing import NamedTuple

from temporalio.client import WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.service import first_run
from iris.client import secrets
from iris.client.connect.rpc import Connection, memo_of
from iris.client.jobs.lists import executions_of
from iris.client.jobs.rows import state_of
from iris.client.jobs.submit.dependencies import bound
from iris.messages.submission import JobSubmission
from iris.model import names
from iris.model.errors import InvalidValue, NameTaken, NotFound
from iris.model.frozen import Frozen
from iris.model.job.children import Parent, Reuse, parent_in, reuse
from iris.model.job.demand_limits import check_demands
from iris.model.job.spec import JobSpec
from iris.model.states import JobState
from iris.workflows import policies, web_ui
from iris.workflows.search_attributes import job_facts, keywords


class Submitted(Frozen):
    """A job that the service accepted."""

    id: str
    workflow_id: str
    run_id: str
    #: The address of the job's page in Temporal's Web UI. Empty if the cluster has no Web UI.
    ui: str
    #: The address of the job's page in the dashboard. Empty if this machine reaches no dashboard.
    dashboard: str = ""


class BatchResult(NamedTuple):
    """The result of the submission of one job of a batch."""

    job: Submitted
    #: True if an earlier submission of the same batch started the job.
    before: bool


async def start_job(connection: Connection, spec: JobSpec) -> Submitted:
    """Starts the job.

    Raises:
        InvalidValue: the job demands more of its hosts than the scheduler can represent.
        NotFound: a job that it depends on does not exist.
        NameTaken: a job that has not ended has this name.
        Unreachable: the service does not answer.
    """
    spec = await _with_checkpoint(connection, await bound(connection, spec))
    if spec.parent is not None:
        return await _start_child(connection, spec, spec.parent)
    try:
        return await _start(connection, spec, WorkflowIDReusePolicy.ALLOW_DUPLICATE)
    except WorkflowAlreadyStartedError:
        raise _exists(spec) from None


async def _start_child(connection: Connection, spec: JobSpec, parent: Parent) -> Submitted:
    """Starts a child job, or finds the child that an earlier attempt of the parent started."""
    number, policy = parent.number, WorkflowIDReusePolicy.REJECT_DUPLICATE
    base = spec.name.removesuffix(f"-{number}") if number > 1 else spec.name
    while True:
        try:
            return await _start(connection, spec, policy)
        except WorkflowAlreadyStartedError:
            with connection.rpc_errors():
                found = await connection.workflow(
                    names.job_workflow(connection.record.name, spec.id)
                ).describe()
        policy, owner = WorkflowIDReusePolicy.REJECT_DUPLICATE, parent_in(await memo_of(found))
        state = state_of(found)
        if found.status is WorkflowExecutionStatus.RUNNING and state.ended:
            state = JobState.RUNNING  # the job still cancels its own children
        match reuse(parent, owner, state):
            case Reuse.ATTACH:
                return _submitted(connection, spec, first_run(found))
            case Reuse.START:
                policy = WorkflowIDReusePolicy.ALLOW_DUPLICATE
            case Reuse.RENAME:
                number += 1
                spec = spec.model_copy(update={"name": f"{base}-{number}"})
            case Reuse.REFUSE:
                raise _exists(spec, owner)


async def start_once(connection: Connection, spec: JobSpec, key: str) -> BatchResult:
    """Starts the job of a batch, unless a job of this name was started with the same key, even if
    that job has ended.

    Args:
        key: identifies the job among all jobs of all batches.

    Raises:
        InvalidValue: the job demands more of its hosts than the scheduler can represent.
        NotFound: a job that it depends on does not exist.
        NameTaken: another job that has not ended has this name.
        Unreachable: the service does not answer.
    """
    try:
        spec = await _with_checkpoint(connection, await bound(connection, spec))
    except (InvalidValue, NotFound):
        # The service forgets jobs. The first submission may have found the jobs that this needs.
        if (before := await _started_before(connection, spec, key)) is not None:
            return before
        raise
    try:
        return BatchResult(
            await _start(connection, spec, WorkflowIDReusePolicy.REJECT_DUPLICATE, key),
            before=False,
        )
    except WorkflowAlreadyStartedError:
        pass  # this batch started it before, or another job has the name
    if (before := await _started_before(connection, spec, key)) is not None:
        return before
    with connection.rpc_errors():
        found = await connection.workflow(
            names.job_workflow(connection.record.name, spec.id)
        ).describe()
    if found.status is WorkflowExecutionStatus.RUNNING:
        raise _exists(spec)
    try:
        return BatchResult(
            await _start(connection, spec, WorkflowIDReusePolicy.ALLOW_DUPLICATE, key), before=False
        )
    except WorkflowAlreadyStartedError:  # another program was faster
        raise _exists(spec) from None


async def _started_before(connection: Connection, spec: JobSpec, key: str) -> BatchResult | None:
    """Returns the job that an earlier submission of the batch started, if there is one."""
    with connection.rpc_errors():
        try:
            found = await connection.workflow(
                names.job_workflow(connection.record.name, spec.id)
            ).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
    if (await memo_of(found)).get(names.MEMO_BATCH) == key:
        return BatchResult(_submitted(connection, spec, first_run(found)), before=True)
    # Another batch may have used the name since.
    for earlier in await executions_of(connection, [spec.id]):
        if (await memo_of(earlier)).get(names.MEMO_BATCH) == key:
            return BatchResult(_submitted(connection, spec, earlier.run_id), before=True)
    return None


async def _with_checkpoint(connection: Connection, spec: JobSpec) -> JobSpec:
    if spec.from_checkpoint is None:
        return spec
    from iris.client.jobs.submit.checkpoints import with_source  # few jobs need the store for it

    return await with_source(connection, spec, spec.from_checkpoint)


async def _start(
    connection: Connection, spec: JobSpec, reuse: WorkflowIDReusePolicy, key: str = ""
) -> Submitted:
    check_demands(spec)
    await connection.check_keys()
    if not spec.secrets:
        return await _start_sealed(connection, spec, reuse, key)
    async with secrets.sealing.sealing(connection.record, spec) as sealed:
        return await _start_sealed(connection, sealed, reuse, key)


async def _start_sealed(
    connection: Connection, spec: JobSpec, reuse: WorkflowIDReusePolicy, key: str
) -> Submitted:
    cluster = connection.record.name
    memo, attributes = job_facts(cluster, spec)
    if key:
        memo[names.MEMO_BATCH] = key
    client = connection.client
    if spec.from_checkpoint is not None:
        from iris.client.jobs.submit.checkpoints import client_for  # few jobs need it

        client = client_for(connection, spec.from_checkpoint)
    with connection.rpc_errors():
        handle = await client.start_workflow(
            # Importing the workflow's code would take a tenth of a second.
            names.WORKFLOW_TYPES[names.KIND_JOB],
            JobSubmission(cluster=cluster, spec=spec),
            id=names.job_workflow(cluster, spec.id),
            task_queue=names.control_queue(cluster),
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=reuse,
            task_timeout=policies.job_task(spec),
            memo=memo,
            search_attributes=keywords(attributes),
            static_summary=web_ui.escaped(web_ui.summary(spec)),
            static_details=connection.dashboard_link(spec.id),
        )
    return _submitted(connection, spec, handle.first_execution_run_id or "")


def _submitted(connection: Connection, spec: JobSpec, run_id: str) -> Submitted:
    workflow_id = names.job_workflow(connection.record.name, spec.id)
    page = connection.page(workflow_id, run_id)
    return Submitted(
        id=spec.id,
        workflow_id=workflow_id,
        run_id=run_id,
        ui=page,
        dashboard=connection.dashboard_page(spec.id),
    )


def _exists(spec: JobSpec, found: Parent | None = None) -> NameTaken:
    """Returns the error about a job that has this name and has not ended.

    Args:
        found: the parent of that job, if it is a child.
    """
    whose, again = "", ""
    if found is not None and spec.parent is not None:
        if not found.is_of(spec.parent.job, spec.parent.run_id):
            whose = f" for an earlier run of {found.job}"
        elif (found.task, found.attempt) != (spec.parent.task, spec.parent.attempt):
            whose = f" for other work that task {found.task} submitted in attempt {found.attempt}"
            again = ": a later attempt finds a job again if it does the same"
    return NameTaken(
        f"job {spec.id} already exists{whose} and has not ended{again}; show it with `iris status"
        f" {spec.id}`, cancel it with `iris cancel {spec.id}`, or choose another name with -n"
    )
