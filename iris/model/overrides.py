"""The changes that a user makes to a job after submitting it."""

from pydantic import BaseModel, ConfigDict

from iris.model.jobs import Band


class Hold(BaseModel):
    """A user's hold on a job: waiting tasks keep waiting, running tasks continue but are not retried."""

    model_config = ConfigDict(frozen=True)

    by: str
    reason: str = ""

    def __str__(self) -> str:
        return f"held by {self.by}{': ' if self.reason else ''}{self.reason}"


class Overrides(BaseModel):
    """The values that a user changed after submitting the job."""

    model_config = ConfigDict(frozen=True)

    #: None: as in the specification.
    band: Band | None = None
    hold: Hold | None = None
