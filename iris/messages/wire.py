"""Base classes and small messages that the other message modules share."""

from datetime import datetime, timedelta
from typing import Literal

from iris.model.frozen import Frozen


class Keys(Frozen):
    """The keys of requests and placements of the scheduler whose owners (workflows) have ended."""

    keys: tuple[str, ...] = ()
    #: When the keys were found, by the clock of the Temporal server; None if there are no keys.
    at: datetime | None = None


class ClusterName(Frozen):
    """The name of the cluster for which an activity works."""

    cluster: str


class Repetition(Frozen):
    """How often, and for how long, the Temporal service repeats an activity that finds nothing."""

    #: The pause between two attempts of the activity.
    every: timedelta
    #: The maximum time for which the service repeats the activity. Then the activity completes
    #: without news, so that a control plane of another version can start it in another way.
    longest: timedelta


class RepeatedCheck(ClusterName):
    """The options of a check that the Temporal service repeats until the check finds something to
    report.
    """

    repetition: Repetition


class HostLost(Frozen):
    """A report that one incarnation of a host is lost. Its receiver removes this incarnation."""

    kind: Literal["host_lost"] = "host_lost"
    host_id: str
    incarnation: str
    reason: str = ""
    #: True if the agent was stopped and reported its own end.
    left: bool = False
