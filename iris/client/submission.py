"""Starts the workflows of jobs. A job of a batch is started once, however often the batch is submitted."""

from datetime import timedelta
from typing import Any, NamedTuple

from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from iris.client.connect.rpc import Connection, memo_of
from iris.client.views import Submitted, page_of
from iris.messages.job import JobInput
from iris.model import names
from iris.model.bounds import check_demands
from iris.model.errors import Rejected
from iris.model.jobs import JobSpec
from iris.workflows import web_ui
from iris.workflows.search_attributes import keywords

#: How long a job waits for a control plane that died with the job's workflow task: half of the server's default. A task takes
#: milliseconds, or two seconds when the scheduler answers slowly (`policies.EXCHANGE_QUICK`).
TASK_TIMEOUT = timedelta(seconds=5)


class BatchResult(NamedTuple):
    """A job of a batch that is on the cluster."""

    job: Submitted
    #: An earlier submission of the batch started it.
    before: bool


async def start_job(connection: Connection, spec: JobSpec) -> Submitted:
    """Starts the job.

    Raises:
        InvalidValue: the job demands more of its hosts than the scheduler can represent.
        Rejected: a live job has this name.
        Unreachable: the service does not answer.
    """
    try:
        return await _start(connection, spec, WorkflowIDReusePolicy.ALLOW_DUPLICATE)
    except WorkflowAlreadyStartedError:
        raise _exists(spec) from None


async def start_once(connection: Connection, spec: JobSpec, key: str) -> BatchResult:
    """Starts the job of a batch, unless a job of this name was started with the same key. That job may have ended.

    Args:
        key: identifies the job among all that were ever submitted.

    Raises:
        InvalidValue: the job demands more of its hosts than the scheduler can represent.
        Rejected: another live job has this name.
        Unreachable: the service does not answer.
    """
    try:
        return BatchResult(await _start(connection, spec, WorkflowIDReusePolicy.REJECT_DUPLICATE, key), before=False)
    except WorkflowAlreadyStartedError:
        pass  # by this batch, or by another job with the name
    workflow_id = names.job_workflow(connection.record.name, spec.id)
    with connection.rpc_errors():
        found: WorkflowExecutionDescription = await connection.workflow(workflow_id).describe()
    if ((await memo_of(found)) or {}).get(names.MEMO_BATCH) == key:
        run_id = found.raw_description.workflow_execution_info.first_run_id or found.run_id or ""
        return BatchResult(_submitted(connection, spec, run_id), before=True)
    if found.status is WorkflowExecutionStatus.RUNNING:
        raise _exists(spec)
    try:
        return BatchResult(await _start(connection, spec, WorkflowIDReusePolicy.ALLOW_DUPLICATE, key), before=False)
    except WorkflowAlreadyStartedError:  # since the line above
        raise _exists(spec) from None


async def _start(connection: Connection, spec: JobSpec, reuse: WorkflowIDReusePolicy, key: str = "") -> Submitted:
    check_demands(spec)
    cluster = connection.record.name
    await connection.check_keys()
    memo: dict[str, Any] = {names.MEMO_COMMAND: web_ui.summary(spec), names.MEMO_TASKS: spec.replicas}
    if spec.resources.device is not None:
        memo[names.MEMO_DEVICE] = str(spec.resources.device)
    if spec.call is not None:
        memo[names.MEMO_FUNCTION] = True
    if key:
        memo[names.MEMO_BATCH] = key
    with connection.rpc_errors():
        handle = await connection.client.start_workflow(
            names.WORKFLOW_TYPES[names.KIND_JOB],  # importing its code would take a tenth of a second
            JobInput(cluster=cluster, spec=spec),
            id=names.job_workflow(cluster, spec.id),
            task_queue=names.control_queue(cluster),
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=reuse,
            task_timeout=TASK_TIMEOUT,
            memo=memo,
            search_attributes=keywords(
                {
                    names.SA_CLUSTER: cluster,
                    names.SA_KIND: names.KIND_JOB,
                    names.SA_USER: spec.user,
                    names.SA_PRIORITY: spec.band,
                }
            ),
            static_summary=web_ui.escaped(web_ui.summary(spec)),
        )
    return _submitted(connection, spec, handle.first_execution_run_id or "")


def _submitted(connection: Connection, spec: JobSpec, run_id: str) -> Submitted:
    record = connection.record
    workflow_id = names.job_workflow(record.name, spec.id)
    page = page_of(record.ui, record.namespace, workflow_id, run_id)
    return Submitted(id=spec.id, workflow_id=workflow_id, run_id=run_id, ui=page)


def _exists(spec: JobSpec) -> Rejected:
    return Rejected(
        f"job {spec.id} already exists and has not ended; show it with `iris status {spec.id}`, "
        f"cancel it with `iris cancel {spec.id}`, or choose another name with -n"
    )
