"""Base classes and small messages that the other message modules share."""

from datetime import datetime, timedelta
from typing import Literal

from iris.model.frozen import Frozen


class Keys(Frozen):
    """Keys of requests or placements."""

    keys: tuple[str, ...] = ()
    #: When they were found, by the server's clock; None if there are none.
    at: datetime | None = None


class ClusterName(Frozen):
    """The name of the cluster for which an activity works."""

    cluster: str


class Repetition(Frozen):
    """How often and how long the service repeats an activity that finds no news."""

    #: The pause between two attempts.
    every: timedelta
    #: The longest time until the activity completes without news. After that, a control plane of
    #: another version may continue in another way.
    longest: timedelta


class RepeatedCheck(ClusterName):
    """A check that the service repeats until it finds something."""

    repetition: Repetition


class HostLost(Frozen):
    """Removes one incarnation of a host."""

    kind: Literal["host_lost"] = "host_lost"
    host_id: str
    incarnation: str
    reason: str = ""
    #: True if the agent was stopped, and has reported this itself.
    left: bool = False
