"""`iris cluster validate` before and after its jobs: what it asks for, and what it makes of the
answers.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click
import pytest

from iris.cli.cluster.validate import CASES
from iris.cli.main import run
from iris.client.operate.validation import (
    Case,
    CaseResult,
    Ended,
    TaskReport,
    cases,
    job_spec,
    problems,
)
from iris.model.host.accelerators import Tpu, tpu
from iris.model.host.constraints import TPU_NAME
from iris.model.job.status import JobStatus
from iris.model.states import JobState, TaskState
from tests.builders import a_task, at

POD = tpu("v5litepod-16")
CASE = Case(name="compute", what="", numbers=(3, 4))


def answered(kind: Tpu = POD, job: str = "ada/one", **changes: Any) -> Ended:
    """A job that went well: each of the slice's hosts has said what is right.

    Args:
        changes: of every answer.
    """
    tasks = [
        a_task(
            index=each,
            state=TaskState.SUCCEEDED,
            host=f"s1-w-{each}",
            started_at=at(0),
            finished_at=at(10),
        )
        for each in range(kind.hosts)
    ]
    status = JobStatus(
        id=job, state=JobState.SUCCEEDED, user="ada", submitted_at=at(0), tasks=tuple(tasks)
    )
    answers = [
        TaskReport(
            task=each,
            host=f"s1-w-{each}",
            slice="s1",
            worker=str(each),
            kind=kind.variant,
            result=25 + each,
        )
        for each in range(kind.hosts)
    ]
    return Ended(status=status, answers=tuple(each.model_copy(update=changes) for each in answers))


def without_the_last(ended: Ended) -> Ended:
    return ended.model_copy(update={"answers": ended.answers[:-1]})


def with_state(state: JobState, reason: str) -> Callable[[Ended], Ended]:
    def changed(ended: Ended) -> Ended:
        return ended.model_copy(
            update={"status": ended.status.model_copy(update={"state": state, "reason": reason})}
        )

    return changed


def with_last_answer(**changes: Any) -> Callable[[Ended], Ended]:
    def changed(ended: Ended) -> Ended:
        return ended.model_copy(
            update={"answers": (*ended.answers[:-1], ended.answers[-1].model_copy(update=changes))}
        )

    return changed


@pytest.mark.parametrize("variant", ["v5litepod-8", "v5litepod-16", "v6e-64", "v4-8"])
def test_a_job_has_a_task_on_each_host_of_one_slice(variant: str) -> None:
    """And wants all chips of it, so that two of them never share a host."""
    kind = tpu(variant)
    spec = job_spec(CASE, kind, "validate-1", timedelta(minutes=3))
    assert spec.replicas == kind.hosts
    assert spec.resources.device is not None
    assert (spec.resources.device.variant, spec.resources.device.count) == (
        variant,
        kind.chips_per_host,
    )
    assert (spec.coscheduling.group_by if spec.coscheduling else None) == (
        TPU_NAME if kind.hosts > 1 else None
    )
    assert spec.scheduling_timeout == timedelta(minutes=3)
    assert spec.command[-3:] == ("0", "3", "4")


def test_there_are_the_three_cases_and_their_numbers_are_new_each_time() -> None:
    """What an earlier run has left in the store must not pass for an answer of this one."""
    first, second = cases(), cases()
    assert [each.name for each in first] == ["simple", "compute", "two-jobs"]
    assert [each.jobs for each in first] == [1, 1, 2]
    assert first[1].numbers != second[1].numbers


@pytest.mark.parametrize("variant", ["v5litepod-8", "v5litepod-16"])
def test_a_case_passes_when_every_host_has_said_what_is_right(variant: str) -> None:
    """Also on a slice of a single host."""
    kind = tpu(variant)
    assert problems(CASE, kind, [answered(kind)]) == []


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            with_state(JobState.FAILED, "exited with code 3"),
            "ada/one ended FAILED: exited with code 3",
        ),
        (
            with_state(JobState.UNSCHEDULABLE, "no capacity"),
            "ada/one ended UNSCHEDULABLE: no capacity",
        ),
        (without_the_last, "ada/one has no answer from task 3"),
        (with_last_answer(result=7), "task 3 of ada/one answered 7, expected 28"),
        (with_last_answer(worker="0"), "task 3 of ada/one is worker 0 of its slice, expected 3"),
        (with_last_answer(kind="v6e-16"), "task 3 of ada/one ran on v6e-16, expected v5litepod-16"),
        (with_last_answer(host="s1-w-0"), "s1-w-0 ran 2 tasks of ada/one at once"),
        (with_last_answer(slice="s2"), "the tasks of ada/one were on several slices: s1, s2"),
    ],
)
def test_a_case_fails_for_a_reason_that_is_told(
    spoil: Callable[[Ended], Ended], words: str
) -> None:
    """Whoever reads it knows where to look."""
    assert problems(CASE, POD, [spoil(answered())]) == [words]


@pytest.mark.parametrize(("begins", "clash"), [(5, True), (10, False), (20, False)])
def test_two_jobs_on_one_slice_must_have_run_one_after_the_other(
    begins: float, clash: bool
) -> None:
    """A TPU serves one program at a time: two on one host mean that the scheduler has given it
    twice.
    """
    other = answered(job="ada/two")
    late = [
        task.model_copy(update={"started_at": at(begins), "finished_at": at(30)})
        for task in other.status.tasks
    ]
    other = other.model_copy(
        update={"status": other.status.model_copy(update={"tasks": tuple(late)})}
    )
    found = problems(CASE, POD, [answered(), other])
    assert found == (
        [f"host s1-w-{each} ran ada/one and ada/two at the same time" for each in range(4)]
        if clash
        else []
    )


def test_the_results_are_a_table_for_people_and_a_promise_to_programs() -> None:
    """With what was seen, or what was wrong, and how long it took."""
    result = CaseResult(
        name="simple", passed=False, took=61.23456, said="no answer", jobs=("ada/one",)
    )
    assert CASES.json(result) == {
        "name": "simple",
        "passed": False,
        "took_seconds": 61.235,
        "said": "no answer",
        "jobs": ["ada/one"],
    }
    assert [click.unstyle(line).split() for line in CASES.table([result]).splitlines()] == [
        ["CASE", "RESULT", "TOOK", "DETAILS"],
        ["simple", "FAILED", "1m", "1s", "no", "answer"],
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ["--tpu-type", "v5litepod-17"],
            2,
            "tpu-type: 'v5litepod-17' is not a TPU variant; did you mean v5litepod-16",
        ),
        (["--timeout", "soon"], 2, "'soon' is not a duration"),
        (["--config", "nowhere.yaml"], 2, "'nowhere.yaml' does not exist"),
        ([], 4, "no cluster: no local cluster runs"),
    ],
)
def test_what_cannot_be_validated_is_said_before_anything_is_done(
    arguments: list[str],
    code: int,
    words: str,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a sentence, with the exit code of its kind."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("IRIS_CLUSTER", raising=False)
    assert run(["cluster", "validate", *arguments]) == code
    assert words in capsys.readouterr().err
