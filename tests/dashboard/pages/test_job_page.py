"""The page of a job: its tasks and the time line of its attempts."""

from datetime import timedelta

from iris.dashboard.pages.attempts import MOST_LINES, time_line
from iris.dashboard.pages.job import LETTERS, MOST_CELLS, MOST_OF_A_STATE, numbers_of, tasks_of
from iris.model.job.attempts import Account, AttemptRecord
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import JobState, TaskState
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from tests.builders import NOON, at


def tasks(count: int, state: TaskState = TaskState.RUNNING) -> list[TaskStatus]:
    return [TaskStatus(index=index, state=state) for index in range(count)]


def record(number: int, start: float, account: Account = Account.PREEMPTIONS) -> AttemptRecord:
    """An attempt that waited until `start`, was set up for 2 s and ran for 3 s."""
    return AttemptRecord(
        number=number,
        hosts=("h1", "h1", "h2"),
        placed_at=at(start),
        started_at=at(start + 2),
        ended_at=at(start + 5),
        account=account,
        reason="host lost",
        ends=(),
    )


def a_status(task: TaskStatus, state: JobState = JobState.RUNNING) -> JobStatus:
    return JobStatus(id="ada/train", state=state, user="ada", submitted_at=NOON, tasks=(task,))


def test_few_tasks_are_a_table_and_many_a_grid_in_parts() -> None:
    """A table of ten thousand rows is not read."""
    few, many = tasks_of(tasks(64), "", 1), tasks_of(tasks(10_000), "", 3)

    assert (len(few.table), len(few.cells)) == (64, 0)
    assert (len(many.table), len(many.cells), many.parts) == (0, 10_000 - 2 * MOST_CELLS, 3)
    assert tasks_of(tasks(10_000), "", 99).part == 3


def test_the_tasks_of_a_state_are_a_table() -> None:
    """Who clicks on FAILED wants the reasons."""
    mixed = [*tasks(300, TaskState.FAILED), *tasks(5)]
    found = tasks_of(mixed, "FAILED", 1)

    assert (len(found.table), found.left_out) == (MOST_OF_A_STATE, 100)
    assert dict(found.counts) == {TaskState.RUNNING: 5, TaskState.FAILED: 300}


def test_each_state_has_a_letter_of_its_own() -> None:
    """A grid must be readable without colours."""
    assert LETTERS.keys() == set(TaskState)
    assert len(set(LETTERS.values())) == len(TaskState)


def test_a_time_line_has_the_wait_the_set_up_and_the_run_of_each_attempt() -> None:
    """They say where the time has gone."""
    status = a_status(TaskStatus(index=0, state=TaskState.RUNNING, attempt=3, started_at=at(40)))
    line = time_line(status, {0: (record(1, 10), record(2, 20, Account.FAILURES))}, None, at(100))

    assert line is not None
    first, second, third = line.lines
    seconds = [(each.kind, (each.end - each.start).total_seconds()) for each in second.segments]
    assert seconds == [("waiting", 5), ("set-up", 2), ("run", 3)]
    assert (first.sign, first.end, second.end) == ("⇄", "preempted", "failed")
    assert first.hosts == ["h1", "h2"]
    assert (third.number, third.end, third.segments[-1].start) == (3, "RUNNING", at(40))
    assert line.start == NOON


def test_a_running_attempt_does_not_change_the_page_at_every_moment() -> None:
    """Each change of the page is sent to all who look at it."""
    status = a_status(TaskStatus(index=0, state=TaskState.RUNNING, attempt=1, started_at=at(1)))
    ends = {
        line.end
        for second in range(3600, 3660)
        if (line := time_line(status, {}, None, at(second))) is not None
    }
    assert len(ends) <= 7
    assert min(ends) >= at(3600)


def test_a_waiting_task_waits_for_its_next_attempt() -> None:
    """The attempt that is not placed yet has the next number."""
    status = a_status(TaskStatus(index=0, attempt=1, reason="BUSY"), JobState.PENDING)
    line = time_line(status, {0: (record(1, 1),)}, None, at(60))

    assert line is not None
    assert [(each.number, each.end) for each in line.lines] == [(1, "preempted"), (2, "PENDING")]
    assert line.lines[1].segments[0].start == at(6)


def test_the_newest_of_very_many_attempts_are_shown() -> None:
    """A job on spot machines may have hundreds."""
    records = tuple(record(n, 10 * n) for n in range(1, 201))
    ended = TaskStatus(index=0, state=TaskState.FAILED, attempt=200, finished_at=at(2005))
    line = time_line(a_status(ended, JobState.FAILED), {0: records}, None, at(9999))

    assert line is not None
    assert (len(line.lines), line.left_out, line.lines[-1].number) == (MOST_LINES, 140, 200)
    assert line.end - NOON == timedelta(seconds=2005)


def test_the_numbers_of_a_reason_are_in_units_of_people() -> None:
    """Millicores and bytes are for programs."""
    refusal = Refusal(
        code=RefusalCode.BUSY,
        message="busy",
        needed={"cpu": 4000, "memory": 2**33, "disk": 0},
        free={"cpu": 1500},
    )
    assert [tuple(each) for each in numbers_of(refusal)] == [
        ("cpu", "4 cpu", "1.5 cpu"),
        ("memory", "8 GiB memory", ""),
    ]
    assert numbers_of(None) == []
