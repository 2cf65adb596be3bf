"""The job whose checkpoint another one starts from."""

import pytest

from iris.model.checkpoint.sources import CheckpointSource, parse_checkpoint_source
from iris.model.errors import InvalidValue
from iris.model.job.arrays import Array

FOLDER = "checkpoints/ada/train/0198c0de-aaaa"


@pytest.mark.parametrize(
    ("text", "run", "task"),
    [
        ("train", None, None),
        ("ada/train", None, None),
        ("train#2", 2, None),
        ("train:0", None, 0),
        ("ada/sweep/x#12:3", 12, 3),
    ],
)
def test_a_source_is_a_job_a_run_of_it_or_one_of_its_tasks(
    text: str, run: int | None, task: int | None
) -> None:
    """As the other commands name them."""
    source = parse_checkpoint_source(text)
    assert (source.run, source.task) == (run, task)
    assert str(source) == text


@pytest.mark.parametrize("text", ["", ":0", "train:", "train#0", "train:-1", "train:1#2", "#1"])
def test_another_text_is_refused(text: str) -> None:
    """With the forms that there are."""
    with pytest.raises(
        InvalidValue,
        match="does not name a job; write NAME or USER/NAME; NAME#2 for an earlier run, NAME:0 for",
    ):
        parse_checkpoint_source(text)


def test_each_task_starts_from_the_task_of_its_number_or_all_from_one() -> None:
    """A task whose counterpart has saved nothing, such as all but the first of many trainings,
    starts without a checkpoint.
    """
    own = CheckpointSource(job="ada/train").found(FOLDER, [0, 2], 4)
    assert [own.saves_of(index) for index in range(4)] == [f"{FOLDER}/0", "", f"{FOLDER}/2", ""]
    one = CheckpointSource(job="ada/train", task=2).found(FOLDER, [0, 2], 4)
    assert {one.saves_of(index) for index in range(4)} == {f"{FOLDER}/2"}


@pytest.mark.parametrize(
    ("task", "tasks", "problem"),
    [
        (None, [], "'ada/train' has no checkpoint in the store; name another job or run: files in"),
        (
            1,
            [0, 2],
            "'ada/train:1' has no checkpoint in the store; name a task that has one: 0, 2$",
        ),
        (
            None,
            [0, 7],
            (
                "'ada/train' has a checkpoint of task 7, but the last task of the new job is 1; give"
                " the new job 8 tasks, or name the task"
            ),
        ),
    ],
)
def test_a_checkpoint_that_would_not_be_used_is_refused(
    task: int | None, tasks: list[int], problem: str
) -> None:
    """A job that begins anew by mistake costs more than an error."""
    with pytest.raises(InvalidValue, match=problem):
        CheckpointSource(job="ada/train", task=task).found(FOLDER, tasks, 2)


@pytest.mark.parametrize(
    ("tasks", "array"),
    [
        ([3, 17], Array(indices="3,17", size=2)),
        ([0, 3, 99], Array(indices="3,17", size=2)),
        ([5], Array(indices="3,17", size=100)),
    ],
    ids=[
        "the same array",
        "some tasks of another job",
        "tasks that run again and had no checkpoint before",
    ],
)
def test_the_tasks_of_an_array_start_from_those_with_their_indices(
    tasks: list[int], array: Array
) -> None:
    """Indices may be larger than the number of tasks: `iris rerun --failed` gives a few tasks those
    of a large array.
    """
    source = CheckpointSource(job="ada/train").found(FOLDER, tasks, 2, array)

    assert [source.saves_of(index) != "" for index in (3, 17)] == [
        index in tasks for index in (3, 17)
    ]


def test_an_array_of_which_no_task_has_a_checkpoint_is_refused() -> None:
    """The user meant other indices: no task of the job would start from a checkpoint."""
    problem = (
        "'ada/train' has checkpoints of tasks 0, 1, but the new job has only the tasks 3, 17; name"
        " the task whose"
    )
    with pytest.raises(InvalidValue, match=problem):
        CheckpointSource(job="ada/train").found(FOLDER, [0, 1], 2, Array(indices="3,17", size=2))
