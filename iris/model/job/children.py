"""Jobs that belong to another job: who submitted a child, what it inherits, and whether a second
submission is the same child.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from iris.model import names
from iris.model.frozen import Frozen
from iris.model.states import JobState


class Parent(Frozen):
    """The job that a child belongs to, and which of its attempts submitted the child."""

    #: The parent's id.
    job: str
    #: The parent's first run, which identifies it among the jobs of its name.
    run_id: str
    #: The run of the parent's workflow at the submission: another one, if the workflow has
    #: continued as new.
    current_run: str
    #: The task and its attempt that submitted the child.
    task: int
    attempt: int
    #: A digest of what the child does: its function and arguments, or its command.
    work: str
    #: Whether the child registers with the parent's workflow. It does not if the history of that is
    #: long already.
    registers: bool = True
    #: Whether the user has chosen the child's name.
    named: bool = True
    #: Of a child that Iris names: how many times its program has submitted the same. Its name ends
    #: with it, from 2 on.
    number: int = 1

    def is_of(self, job: str, run_id: str) -> bool:
        """Returns whether this run of this job is the parent."""
        return (self.job, self.run_id) == (job, run_id)


class Reuse(Enum):
    """What the submission of a child does about a job that has its name."""

    ATTACH = auto()  # it is this child: it is not started again
    START = auto()  # it has ended and is replaced
    RENAME = (
        auto()
    )  # it is another one of the same attempt, and Iris chooses the names: the next name is tried
    REFUSE = auto()  # it is another one, and lives


def reuse(child: Parent, found: Parent | None, state: JobState) -> Reuse:
    """Decides what the submission of a child does about the job that has its name.

    A child is found again by the parent's later attempts, and by its other tasks, if it does the
    same. One that has failed is tried again, as the parent is.

    Args:
        found: the parent of the job that has the name; None: it is no child.
        state: that job's state.
    """
    same_parent = found is not None and found.is_of(child.job, child.run_id)
    if same_parent and found is not None and found.work == child.work:
        if (found.task, found.attempt) != (child.task, child.attempt):
            return Reuse.ATTACH if not state.ended or state is JobState.SUCCEEDED else Reuse.START
        if not child.named:
            return Reuse.RENAME
    return Reuse.START if state.ended else Reuse.REFUSE


def parent_in(memo: Mapping[str, Any]) -> Parent | None:
    """Returns the parent that a job's memo names; None if it names none. Any client can write any
    memo.
    """
    try:
        return Parent.model_validate(memo[names.MEMO_PARENT])
    except (KeyError, ValueError):
        return None
