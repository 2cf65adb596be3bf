"""Selects the tasks of a large job that a page shows. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from iris.model.cancelling import state_text
from iris.model.jobs import TaskStatus
from iris.model.states import ENDED, LIVE, TaskState


class TaskPage(NamedTuple):
    """Some tasks of a job."""

    tasks: tuple[TaskStatus, ...]
    #: The number of tasks by state, of all; empty if the page has all tasks.
    counts: str
    #: What is not on the page; empty: nothing.
    rest: str


def page_of_tasks(tasks: Sequence[TaskStatus], text: str, limit: int, page: int) -> TaskPage:
    """Returns a page of the tasks with the text in their state, host or reason.

    If not all tasks fit on one page, those that did not succeed come first, then those that run.
    """
    found = [task for task in tasks if text.lower() in f"{task.state} {state_text(task)} {task.host or ''} {task.reason}".lower()]
    if len(found) > limit:
        found.sort(key=_rank)
    shown = tuple(found[(page - 1) * limit : page * limit])
    if len(shown) == len(tasks):
        return TaskPage(shown, "", "")
    counts = ", ".join(f"{count:,} {state}" for state, count in Counter(task.state for task in tasks).most_common())
    pages = max(1, -(-len(found) // limit))
    rest = f"page {page} of {pages}: {len(shown):,} of {len(found):,} tasks" + (f" with {text!r}" if text else "")
    return TaskPage(shown, counts, rest + ("; see others with --page, --limit and --filter" if pages > 1 else ""))


def _rank(task: TaskStatus) -> int:
    if task.state in ENDED:
        return 3 if task.state is TaskState.SUCCEEDED else 0
    return 1 if task.state in LIVE else 2
