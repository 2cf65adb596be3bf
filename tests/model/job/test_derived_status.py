"""The one line that explains the state of a job of several tasks."""

import pytest

from iris.messages.job import JobInput
from iris.model.job.derived_status import reason_of
from iris.model.job.status import TaskStatus
from iris.model.states import TaskState, roll_up
from tests.builders import a_spec

S = TaskState


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ([S.SUCCEEDED, S.SUCCEEDED], ""),
        (
            [S.SUCCEEDED, S.FAILED, S.SUCCEEDED],
            "2 of 3 tasks ended with exit code 0; 1 failed, as the job allows",
        ),
        (
            [S.SUCCEEDED, S.CANCELLED, S.CANCELLED],
            "1 of 3 tasks ended with exit code 0; 2 were cancelled",
        ),
        (
            [S.FAILED, S.CANCELLED, S.SUCCEEDED],
            "1 of 3 tasks ended with exit code 0; 1 failed, as the job allows; 1 was cancelled",
        ),
        ([S.CANCELLED, S.CANCELLED], "because"),
        (
            [S.FAILED, S.FAILED, S.CANCELLED],
            "2 failed, more than max_task_failures 1; task 0: because",
        ),
        ([S.CANCELLED, S.KILLED], "task 1: because"),
        ([S.PENDING, S.CANCELLED], "task 0: because"),
        ([S.RUNNING, S.SUCCEEDED], ""),
    ],
)
def test_the_reason_of_a_job_is_that_of_the_tasks_that_decided_its_state(
    states: list[TaskState], reason: str
) -> None:
    """A success that lacks tasks says so, and a task that a user cancelled does not explain the end
    of the others.
    """
    tasks = tuple(
        TaskStatus(index=i, state=state, reason="because") for i, state in enumerate(states)
    )
    spec = a_spec(replicas=len(states), max_task_failures=1)
    job = JobInput(cluster="lab", spec=spec, tasks=tasks)

    assert reason_of(job, roll_up(states, max_task_failures=1)) == reason
