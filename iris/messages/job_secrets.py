"""The message about sealed values that a job does not need any more."""

from iris.messages.job import ChildRef
from iris.model.frozen import Frozen


class UnneededSecrets(Frozen):
    """The sealed values that were given to a job that has ended."""

    cluster: str
    #: The objects that have them, as in a `SecretSource`.
    objects: tuple[str, ...]
    #: Jobs that may still need them, as may those below these.
    children: tuple[ChildRef, ...] = ()
