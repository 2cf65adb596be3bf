"""Base classes and small messages that the other message modules share."""

from datetime import timedelta

from iris.model.frozen import Frozen


class Keys(Frozen):
    keys: tuple[str, ...] = ()


class ClusterName(Frozen):
    cluster: str


class Repetition(Frozen):
    """How the service repeats an activity that has no news."""

    #: The pause between two attempts.
    every: timedelta
    #: The longest wait: a control plane of another version works in its own way after that time.
    longest: timedelta


class RepeatedCheck(ClusterName):
    """A check that the service repeats until it finds something."""

    repetition: Repetition
