"""The earlier job whose checkpoint a new job starts from."""

import re
from collections.abc import Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict

from iris.model.errors import InvalidValue

#: The option, as errors name it.
FIELD = "from_checkpoint"


class CheckpointSource(BaseModel):
    """Whose checkpoint the first attempts of a job's tasks restore. Later attempts restore the job's own, once it has one."""

    model_config = ConfigDict(frozen=True)

    #: The id of the earlier job.
    job: str
    #: The number of its run, as `iris jobs --all` shows it; None: the latest at the time of the submission.
    run: int | None = None
    #: All tasks restore the checkpoint of this one; None: each restores that of the task with its own index, if there is one.
    task: int | None = None
    #: The folder of the run's checkpoints in the object store; empty: it has not been looked up yet.
    folder: str = ""
    #: The tasks that had a checkpoint at the time of the submission.
    tasks: tuple[int, ...] = ()

    def found(self, folder: str, tasks: Sequence[int], replicas: int) -> Self:
        """Returns the source with its folder, for a job of this many tasks.

        Raises:
            InvalidValue: the tasks of the job cannot start from these checkpoints.
        """
        if not tasks:
            why = "files in $IRIS_CHECKPOINT_DIR are saved some seconds after their last change"
            raise InvalidValue(FIELD, self, "has no checkpoint in the store", f"name another job or run: {why}")
        if self.task is not None and self.task not in tasks:
            numbers = ", ".join(map(str, tasks[:10])) + (", …" if len(tasks) > 10 else "")
            raise InvalidValue(FIELD, self, "has no checkpoint in the store", f"name a task that has one: {numbers}")
        if self.task is None and max(tasks) >= replicas:
            remedy = f"give the job {max(tasks) + 1} tasks, or name the task whose checkpoint all of them get: {self.job}:0"
            raise InvalidValue(FIELD, self, f"has checkpoints of tasks up to {max(tasks)}, and the job has {replicas}", remedy)
        return self.model_copy(update={"folder": folder, "tasks": tuple(tasks)})

    def saves_of(self, index: int) -> str:
        """Returns the folder of the saves from which a task of the job starts; empty: it starts without a checkpoint."""
        task = index if self.task is None else self.task
        return f"{self.folder}/{task}" if self.folder and task in self.tasks else ""

    def __str__(self) -> str:
        run = "" if self.run is None else f"#{self.run}"
        return f"{self.job}{run}" + ("" if self.task is None else f":{self.task}")


def parse_source(text: str) -> CheckpointSource:
    """Parses `train`, `ada/train`, an earlier run `train#2`, or one task `train:0`. The job is as in the text.

    Raises:
        InvalidValue: the text has another form.
    """
    match = re.fullmatch("(?P<job>[^#:]+)(#(?P<run>[1-9][0-9]{0,8}))?(:(?P<task>[0-9]{1,9}))?", text)
    if match is None:
        remedy = "write NAME or USER/NAME; NAME#2 for an earlier run, NAME:0 for the checkpoint of one task"
        raise InvalidValue(FIELD, text, "does not name a job", remedy)
    run, task = match["run"], match["task"]
    return CheckpointSource(job=match["job"], run=int(run) if run else None, task=int(task) if task else None)
