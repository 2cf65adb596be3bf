"""Asks a task of several independent ones for its own status.

Tasks report to their job less and less often, and so do the parts of a large array. The job may know for minutes, or after days
for hours, nothing of the latest change.
"""

from iris.client.connect.rpc import Connection, NotStarted
from iris.messages.task import OwnStatus
from iris.model import names
from iris.model.jobs import JobStatus
from iris.model.states import ENDED, LIVE, JobState, TaskState


async def with_own_status(connection: Connection, status: JobStatus, index: int, run_id: str) -> JobStatus:
    """Returns the status of a live job with that of one task as the task's own workflow has it.

    Args:
        run_id: the job's first run. A workflow of that name may belong to an earlier job.

    Raises:
        Unreachable: no control plane answers.
    """
    known = next(task for task in status.tasks if task.index == index)
    if len(status.tasks) == 1 or known.state in ENDED:
        return status
    task_id = names.task_id(status.id, index)
    try:
        own = await connection.query(names.task_workflow(connection.record.name, task_id), "own_status", OwnStatus)
    except NotStarted:  # it has not begun, or belongs to a gang
        return status
    if own.run_id != run_id:
        return status
    task = own.task
    if task.state is TaskState.KILLED:  # alone, for the job goes on
        task = task.model_copy(update={"state": TaskState.CANCELLED})
    if known.cancelling is not None and task.state not in ENDED:  # the job knows who cancelled it
        task = task.model_copy(update={"cancelling": known.cancelling, "reason": known.reason})
    runs = {}
    if status.state is JobState.PENDING and task.state in LIVE:
        is_built = task.state is TaskState.BUILDING
        runs = {"state": JobState.BUILDING, "reason": task.reason} if is_built else {"state": JobState.RUNNING, "reason": ""}
    tasks = tuple(task if each.index == index else each for each in status.tasks)
    return status.model_copy(update={"tasks": tasks, **runs})
