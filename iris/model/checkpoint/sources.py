"""Parses and checks whose checkpoint a job starts from (`--from-checkpoint`)."""

import re
from collections.abc import Sequence
from typing import Self

from pydantic import Field

from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.job.arrays import Array, parse_indices

#: The name of the option `from_checkpoint` in error messages.
FIELD = "from_checkpoint"


class CheckpointSource(Frozen):
    """The earlier job whose checkpoint the first attempts of a job's tasks restore. Later attempts
    restore the job's own checkpoint, once it has one.
    """

    #: The id of the earlier job.
    job: str
    #: True if the user wrote a job name without a user, in a program that runs in a job. Such a
    #: name is first looked up among the children of that job. `bare` becomes False when the job is
    #: looked up.
    bare: bool = Field(default=False, exclude=True)
    #: The number of the earlier job's run, as `iris jobs --all` shows it. None means the latest run
    #: at the time of the submission.
    run: int | None = None
    #: The index of the task whose checkpoint all tasks restore. If it is None, each task restores
    #: the checkpoint of the earlier job's task with the same index, if there is one.
    task: int | None = None
    #: The folder of the run's checkpoints in the object store. It is empty until the job is looked
    #: up.
    folder: str = ""
    #: The indices of the tasks of the earlier job's run that had a checkpoint at the time of the
    #: submission.
    tasks: tuple[int, ...] = ()

    def found(
        self, folder: str, tasks: Sequence[int], replicas: int, array: Array | None = None
    ) -> Self:
        """Returns the source with its folder.

        Args:
            tasks: the tasks of the run that have a checkpoint.
            replicas: the number of tasks of the new job.
            array: the array of the new job.

        Raises:
            InvalidValue: the tasks of the new job cannot start from these checkpoints.
        """
        if not tasks:
            why = "files in $IRIS_CHECKPOINT_DIR are saved some seconds after their last change"
            raise InvalidValue(
                FIELD, self, "has no checkpoint in the store", f"name another job or run: {why}"
            )
        if self.task is not None and self.task not in tasks:
            raise InvalidValue(
                FIELD,
                self,
                "has no checkpoint in the store",
                f"name a task that has one: {_first(tasks)}",
            )
        if self.task is None:
            self._check_tasks(tasks, replicas, array)
        return self.model_copy(update={"folder": folder, "tasks": tuple(tasks)})

    def _check_tasks(self, tasks: Sequence[int], replicas: int, array: Array | None) -> None:
        one = f"name the task whose checkpoint all of them get: {self.job}:{tasks[0]}"
        if array is None and max(tasks) >= replicas:
            remedy = f"give the new job {max(tasks) + 1} tasks, or {one}"
            raise InvalidValue(
                FIELD,
                self,
                f"has a checkpoint of task {max(tasks)}, but the last task of the new job is"
                f" {replicas - 1}",
                remedy,
            )
        # A rerun of part of an array may include tasks without a checkpoint.
        if array is None or array.size > replicas:
            return
        indices = parse_indices(array.indices)
        if not {*tasks} & {*indices}:
            problem = (
                f"has checkpoints of tasks {_first(tasks)}, but the new job has only the tasks"
                f" {_first(indices)}"
            )
            raise InvalidValue(FIELD, self, problem, one)

    def saves_of(self, index: int) -> str:
        """Returns the folder of the saves that a task of the job restores; empty if it starts
        without a checkpoint.
        """
        task = index if self.task is None else self.task
        return f"{self.folder}/{task}" if self.folder and task in self.tasks else ""

    def __str__(self) -> str:
        run = "" if self.run is None else f"#{self.run}"
        return f"{self.job}{run}" + ("" if self.task is None else f":{self.task}")


def _first(tasks: Sequence[int]) -> str:
    return ", ".join(map(str, tasks[:10])) + (", …" if len(tasks) > 10 else "")


def parse_checkpoint_source(text: str) -> CheckpointSource:
    """Parses `train`, `ada/train`, an earlier run `train#2`, or one task `train:0`.

    Raises:
        InvalidValue: the text has another form.
    """
    match = re.fullmatch(
        "(?P<job>[^#:]+)(#(?P<run>[1-9][0-9]{0,8}))?(:(?P<task>[0-9]{1,9}))?", text
    )
    if match is None:
        remedy = (
            "write NAME or USER/NAME; NAME#2 for an earlier run, NAME:0 for the checkpoint of one"
            " task"
        )
        raise InvalidValue(FIELD, text, "does not name a job", remedy)
    run, task = match["run"], match["task"]
    return CheckpointSource(
        job=match["job"], run=int(run) if run else None, task=int(task) if task else None
    )
