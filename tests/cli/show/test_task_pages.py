"""Which tasks of a large job a terminal shows."""

from iris.cli.show.jobs import page_of_tasks
from iris.model.states import TaskState
from tests.builders import a_task

TASKS = [a_task(index=index, state=TaskState.SUCCEEDED) for index in range(10)]
TASKS[4] = a_task(index=4, state=TaskState.FAILED, reason="exited with code 3")
TASKS[7] = a_task(index=7, state=TaskState.RUNNING, host="h1")


def test_tasks_that_fit_are_shown_in_their_order() -> None:
    """A job of a few tasks looks as it always did."""
    assert page_of_tasks(TASKS, "", 10, 1) == (tuple(TASKS), "", "")


def test_of_many_tasks_those_that_did_not_succeed_come_first_and_every_task_has_a_page() -> None:
    """Ten thousand rows would hide the one that matters."""
    pages = [page_of_tasks(TASKS, "", 4, page) for page in (1, 2, 3)]

    assert [task.index for page in pages for task in page.tasks] == [4, 7, 0, 1, 2, 3, 5, 6, 8, 9]
    assert pages[0].counts == "8 SUCCEEDED, 1 FAILED, 1 RUNNING"
    assert (
        pages[2].rest == "page 3 of 3: 2 of 10 tasks; see others with --page, --limit and --filter"
    )


def test_a_filter_finds_tasks_by_state_host_or_reason() -> None:
    """As that of `iris jobs`."""
    assert [page_of_tasks(TASKS, text, 4, 1).tasks for text in ("failed", "code 3", "H1")] == [
        (TASKS[4],),
        (TASKS[4],),
        (TASKS[7],),
    ]
    assert page_of_tasks(TASKS, "absent", 4, 1).rest == "page 1 of 1: 0 of 0 tasks with 'absent'"
