"""What a program learns from the error of a job that failed, without another call."""

import copy
import json
import pickle
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from iris.client.jobs import results
from iris.client.jobs.results import LAST_LINE_LENGTH, LAST_LINES, results_of
from iris.client.logs.source import LogSource
from iris.model import store_paths
from iris.model.job import bundles
from iris.model.job.errors import JobCancelled, JobFailed
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.states import JobState, TaskState
from iris.storage.log_format import Stream, encode
from iris.storage.object_store import Store
from tests.builders import NOON, at

JOB, RUN = "ada/train", "0198c0de-aaaa-bbbb-cccc-0123456789ab"
PROGRAM, FUNCTION = LogSource(run_id=RUN, tasks=1), LogSource(run_id=RUN, tasks=1, function=True)


class AwayStore(Store):
    """Answers nothing."""

    async def folders(self, prefix: str) -> list[str]:
        raise ConnectionError("the store is away")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path.as_uri())


def failed_task(index: int = 0, **changes: object) -> TaskStatus:
    facts = {
        "state": TaskState.FAILED,
        "attempt": 1,
        "exit_code": 7,
        "reason": "exited with code 7",
        "finished_at": at(index),
    }
    return TaskStatus.model_validate({"index": index, **facts, **changes})


def ended(
    *tasks: TaskStatus, state: JobState = JobState.FAILED, reason: str = "exited with code 7"
) -> JobStatus:
    return JobStatus(id=JOB, state=state, reason=reason, user="ada", submitted_at=NOON, tasks=tasks)


async def wrote(
    store: Store,
    lines: Sequence[str],
    *,
    task: int = 0,
    attempt: int = 1,
    stream: Stream = Stream.STDERR,
) -> None:
    """The task has written these lines, in chunks of three."""
    for number, start in enumerate(range(0, len(lines), 3)):
        chunk = b"".join(
            encode(start, stream, [(line.encode(), False)]) for line in lines[start : start + 3]
        )
        await store.put(
            store_paths.log_chunk(store_paths.attempt_logs(JOB, RUN, task, attempt), number), chunk
        )


async def failure(store: Store, status: JobStatus, source: LogSource = PROGRAM) -> JobFailed:
    with pytest.raises(JobFailed) as failed:
        await results_of(store, source, status, only_first=True)
    return failed.value


async def test_a_failed_job_says_which_task_failed_its_exit_code_and_its_last_lines(
    store: Store,
) -> None:
    """Of all lines these explain a failure best. The code of the class is that of the command line,
    not the program's.
    """
    await wrote(store, [f"step {number}" for number in range(50)])
    error = await failure(store, ended(failed_task()))

    assert (error.exit_code, error.task_exit_code) == (125, 7)
    assert error.task is not None
    assert error.task.reason == "exited with code 7"
    assert error.last_lines == tuple(f"step {number}" for number in range(50 - LAST_LINES, 50))
    shown = "".join(traceback.format_exception(error))
    assert (
        "JobFailed: ada/train FAILED: exited with code 7\nThe last lines of task 0 of ada/train:\n "
        " | step 30\n" in shown
    )
    assert shown.endswith("  | step 49\n")


async def test_of_several_failed_tasks_the_first_to_fail_is_named_with_the_lines_of_its_last_attempt(
    store: Store,
) -> None:
    """The failure of one task of a gang ends the others, whose own messages mislead."""
    await wrote(store, ["connection reset by peer"], task=0, attempt=2)
    await wrote(store, ["first attempt"], task=1, attempt=1)
    await wrote(store, ["out of memory"], task=1, attempt=2)
    follower = failed_task(0, attempt=2, finished_at=at(9), exit_code=1)
    killed, lost = (
        failed_task(2, state=TaskState.KILLED, finished_at=at(1)),
        failed_task(3, state=TaskState.WORKER_FAILED, finished_at=at(2)),
    )
    error = await failure(
        store,
        ended(follower, failed_task(1, attempt=2, finished_at=at(5), exit_code=137), killed, lost),
    )

    assert error.task is not None
    assert (error.task.index, error.task_exit_code, error.last_lines) == (
        1,
        137,
        ("out of memory",),
    )


async def test_the_output_of_the_set_up_explains_a_job_whose_program_never_started(
    store: Store,
) -> None:
    """A requirement that does not exist is named by the installer, and by no one else."""
    await wrote(store, ["no version of numpyy was found"], stream=Stream.BUILD)

    assert (await failure(store, ended(failed_task()))).last_lines == (
        "no version of numpyy was found",
    )


async def test_a_job_that_never_had_a_host_has_no_failed_task(store: Store) -> None:
    """There is neither an exit code nor output."""
    waited = failed_task(state=TaskState.UNSCHEDULABLE, attempt=0, exit_code=None)
    error = await failure(
        store, ended(waited, state=JobState.UNSCHEDULABLE, reason="no host within 10m")
    )

    assert (error.task, error.task_exit_code, error.last_lines) == (None, None, ())
    assert "UNSCHEDULABLE: no host within 10m" in str(error)


@pytest.mark.parametrize("away", [True, False])
async def test_the_failure_is_raised_without_lines_if_the_store_has_none_or_does_not_answer(
    tmp_path: Path, *, away: bool
) -> None:
    """The lines only explain; the error itself must not be lost for them."""
    error = await failure((AwayStore if away else Store)(tmp_path.as_uri()), ended(failed_task()))

    assert (error.task_exit_code, error.last_lines) == (7, ())
    assert not hasattr(error, "__notes__")


async def test_a_huge_line_is_cut(store: Store) -> None:
    """A progress bar without newlines is one line of megabytes, and a notebook keeps what it
    shows.
    """
    await wrote(store, ["x" * 100_000])
    (line,) = (await failure(store, ended(failed_task()))).last_lines

    assert len(line) <= LAST_LINE_LENGTH


async def test_a_traceback_does_not_control_the_terminal_that_shows_it(store: Store) -> None:
    """Its last lines are a program's. As a value, they are what the program has written."""
    line = "\x1b[31mred\x1b[0m \x1b[2J\x1b]0;title\x07"
    await wrote(store, [line])
    error = await failure(store, ended(failed_task()))

    assert error.last_lines == (line,)
    assert error.__notes__[0].endswith("  | \x1b[31mred\x1b[0m ��]0;title�")


async def test_a_function_that_was_killed_or_whose_exception_cannot_be_restored_has_its_last_lines_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no exception to raise in these cases."""
    monkeypatch.setattr(results, "FAILED_PATIENCE", timedelta(milliseconds=1))
    await wrote(store, ["segmentation fault"], task=0)
    await wrote(store, ["here"], task=1)
    header = {
        "kind": "error",
        "pickled": False,
        "type": "their.Error",
        "message": "no",
        "traceback": "Traceback: no",
    }
    path = f"{store_paths.attempt_outputs(JOB, RUN, 1, 1)}/{bundles.RESULT}"
    await store.put(path, json.dumps(header).encode() + b"\n")
    killed = await failure(store, ended(failed_task(0, exit_code=139)), FUNCTION)
    raised = await failure(store, ended(failed_task(1)), FUNCTION)
    lost = await failure(
        store, ended(failed_task(0, exit_code=139), state=JobState.SUCCEEDED), FUNCTION
    )

    assert [killed.last_lines, raised.last_lines, lost.last_lines] == [
        ("segmentation fault",),
        ("here",),
        ("segmentation fault",),
    ]
    assert (raised.task_exit_code, lost.task_exit_code) == (7, 139)
    assert "task 1 of ada/train raised their.Error: no" in str(raised)
    assert raised.status is not None


async def test_the_failure_of_another_job_that_a_function_raised_is_left_as_it_is(
    store: Store,
) -> None:
    """A sweep whose trial failed: the last lines are those of the trial."""
    trial = JobFailed(
        "ada/trial FAILED: exited with code 2",
        ended(failed_task(exit_code=2)),
        failed_task(exit_code=2),
    )
    trial.last_lines = ("of the trial",)
    header = {
        "kind": "error",
        "pickled": True,
        "type": "JobFailed",
        "message": str(trial),
        "traceback": "Traceback: no",
    }
    path = f"{store_paths.attempt_outputs(JOB, RUN, 0, 1)}/{bundles.RESULT}"
    await store.put(path, json.dumps(header).encode() + b"\n" + pickle.dumps(trial))
    await wrote(store, ["of the sweep"])
    error = await failure(store, ended(failed_task()), FUNCTION)

    assert (error.last_lines, error.task_exit_code) == (("of the trial",), 2)


async def test_a_cancelled_job_is_an_error_without_a_failed_task(store: Store) -> None:
    """Its tasks did nothing wrong."""
    with pytest.raises(JobCancelled) as cancelled:
        await results_of(
            store,
            PROGRAM,
            ended(failed_task(state=TaskState.KILLED), state=JobState.KILLED),
            only_first=True,
        )

    assert (cancelled.value.task, cancelled.value.task_exit_code, cancelled.value.last_lines) == (
        None,
        None,
        (),
    )


async def test_the_error_can_be_pickled_with_what_it_knows(store: Store) -> None:
    """Process pools send exceptions between processes."""
    await wrote(store, ["the end"])
    error = await failure(store, ended(failed_task()))
    again = pickle.loads(pickle.dumps(copy.copy(error)))

    assert (str(again), again.status, again.task, again.last_lines) == (
        str(error),
        error.status,
        error.task,
        ("the end",),
    )
    assert again.__notes__ == error.__notes__
