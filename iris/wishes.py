"""What a user wishes of a job after it was submitted."""

from pydantic import BaseModel, ConfigDict

from iris.jobs import Band


class Hold(BaseModel):
    """A user holds a job back: what waits goes on waiting, what runs runs on and is not tried again."""

    model_config = ConfigDict(frozen=True)

    by: str
    reason: str = ""

    def __str__(self) -> str:
        return f"held by {self.by}{': ' if self.reason else ''}{self.reason}"


class Wishes(BaseModel):
    """What the user has changed about a job since it was submitted."""

    model_config = ConfigDict(frozen=True)

    #: None: as in the specification.
    band: Band | None = None
    hold: Hold | None = None
