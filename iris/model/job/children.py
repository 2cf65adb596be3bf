"""Child jobs: the parent that submitted a child, and when a second submission is the same child."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from iris.model import names
from iris.model.frozen import Frozen
from iris.model.states import JobState


class Parent(Frozen):
    """A child's parent job, and the attempt of the parent that submitted the child."""

    #: The id of the parent job.
    job: str
    #: The id of the parent's first run, which distinguishes the parent from other jobs with the
    #: same name.
    run_id: str
    #: The run of the parent's workflow at the submission. It differs from `run_id` after the
    #: workflow has continued as new.
    current_run: str
    #: The index of the parent's task that submitted the child.
    task: int
    #: The number of the task's attempt that submitted the child.
    attempt: int
    #: A digest of the child's work: its function and arguments, or its command. With it, Iris
    #: recognises a child that a later attempt of the parent submits again.
    work: str
    #: Whether the child registers with the parent's workflow by a signal. It is False if the
    #: history of the parent is already long, because each signal makes it longer.
    registers: bool = True
    #: True if the user chose the child's name.
    named: bool = True
    #: The child's number among identical children that Iris names: 1 for the first one. The names
    #: of later ones end with -2, -3, …
    number: int = 1

    def is_of(self, job: str, run_id: str) -> bool:
        """Returns whether this run of this job is the parent."""
        return (self.job, self.run_id) == (job, run_id)


class Reuse(Enum):
    """What Iris does with a new child if a job with the child's name already exists."""

    ATTACH = auto()  # the job is this child: use it, and start nothing
    START = auto()  # the job has ended: replace it
    # The job is another child of the same attempt, and Iris chooses the names: try the next name.
    RENAME = auto()
    REFUSE = auto()  # the job is another one, and has not ended: refuse the submission


def reuse(child: Parent, found: Parent | None, state: JobState) -> Reuse:
    """Decides what submitting a child does if a job with its name exists.

    Later attempts of the parent, and its other tasks, find a child again if it does the same work.
    A child that failed is started again.

    Args:
        found: the parent of the existing job; None if that job is not a child.
        state: the state of the existing job.
    """
    same_parent = found is not None and found.is_of(child.job, child.run_id)
    if same_parent and found is not None and found.work == child.work:
        if (found.task, found.attempt) != (child.task, child.attempt):
            return Reuse.ATTACH if not state.ended or state is JobState.SUCCEEDED else Reuse.START
        if not child.named:
            return Reuse.RENAME
    return Reuse.START if state.ended else Reuse.REFUSE


def parent_in(memo: Mapping[str, Any]) -> Parent | None:
    """Returns the parent in a job's memo, or None. An invalid value counts as none, because any
    client can write any memo.
    """
    try:
        return Parent.model_validate(memo[names.MEMO_PARENT])
    except (KeyError, ValueError):
        return None
