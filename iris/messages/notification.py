"""The message to a webhook about the end of a job."""

from datetime import datetime

from iris.model.frozen import Frozen
from iris.model.states import JobState, TaskState


class Notification(Frozen):
    """The message to a webhook about a job that has ended, and the URL of the webhook."""

    url: str
    cluster: str
    job: str
    #: The id of the first run of the job's workflow.
    run_id: str
    user: str
    state: JobState
    reason: str
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    #: The number of tasks in each state.
    tasks: dict[TaskState, int]
    tags: dict[str, str]
    note: str

    @property
    def body(self) -> dict[str, object]:
        """The content of the message. Chat services show `text`."""
        text = f"job {self.job} ended {self.state}" + (f": {self.reason}" if self.reason else "")
        return {"text": text, **self.model_dump(mode="json", exclude={"url"})}
