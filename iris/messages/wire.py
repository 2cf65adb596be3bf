"""Base classes and small messages that the other message modules share."""

from datetime import timedelta

from iris.model.frozen import Frozen


class Keys(Frozen):
    """Keys of requests or placements."""

    keys: tuple[str, ...] = ()


class ClusterName(Frozen):
    """The cluster that an activity is about."""

    cluster: str


class Repetition(Frozen):
    """How the service repeats an activity that has found no news."""

    #: The pause between two attempts.
    every: timedelta
    #: The longest time until the activity completes without news. A control plane of another
    #: version may then continue in another way.
    longest: timedelta


class RepeatedCheck(ClusterName):
    """A check that the service repeats until it finds something."""

    repetition: Repetition
