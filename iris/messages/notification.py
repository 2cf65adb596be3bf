"""The message about the end of a job, for an address that its user has named."""

from datetime import datetime

from iris.model.frozen import Frozen
from iris.model.states import JobState, TaskState


class Notification(Frozen):
    """A job that has ended, and the address to call."""

    url: str
    cluster: str
    job: str
    #: The first run of its workflow.
    run_id: str
    user: str
    state: JobState
    reason: str
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    #: The tasks in each state.
    tasks: dict[TaskState, int]
    tags: dict[str, str]
    note: str

    @property
    def body(self) -> dict[str, object]:
        """What is sent. `text` is a line for people: chat services show it."""
        text = f"job {self.job} ended {self.state}" + (f": {self.reason}" if self.reason else "")
        return {"text": text, **self.model_dump(mode="json", exclude={"url"})}
