"""Base classes and small messages that the other message modules share."""

from datetime import datetime, timedelta
from typing import Literal

from iris.model.frozen import Frozen


class Keys(Frozen):
    """The keys of requests and placements of the scheduler whose owners (workflows) have ended."""

    keys: tuple[str, ...] = ()
    #: The time of the check that found the ended owners, by the clock of the Temporal server. None
    #: is possible only if `keys` is empty.
    at: datetime | None = None


class ClusterName(Frozen):
    """The name of the cluster for which an activity works."""

    cluster: str


class Repetition(Frozen):
    """How often, and for how long, the Temporal service repeats an activity that finds nothing."""

    #: The pause between two attempts of the activity.
    every: timedelta
    #: The maximum time for which the service repeats the activity. Then the activity completes
    #: although it has found nothing, and the workflow starts a new one. So a new version of the
    #: control plane can change the activity's options.
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
