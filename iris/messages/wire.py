"""Base classes and small messages that the other message modules share."""

from datetime import timedelta

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    model_config = ConfigDict(frozen=True)


class Keys(Wire):
    keys: tuple[str, ...] = ()


class ClusterName(Wire):
    cluster: str


class Repetition(Wire):
    """How the service repeats an activity that has no news."""

    #: The pause between two attempts.
    every: timedelta
    #: The longest wait: a control plane of another version works in its own way after that time.
    longest: timedelta


class RepeatedCheck(ClusterName):
    """The options of a check."""

    #: None: the activity checks once.
    repetition: Repetition | None = None
