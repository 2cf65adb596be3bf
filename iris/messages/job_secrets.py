"""The message about the sealed secret values of a job that has ended."""

from iris.messages.job import ChildRef
from iris.model.frozen import Frozen


class UnneededSecrets(Frozen):
    """The sealed values of a job that has ended, which are to be deleted if no child job needs
    them.
    """

    cluster: str
    #: The paths of the objects with the values, as in a `SecretSource`.
    objects: tuple[str, ...]
    #: The children of the job. They, and their own children, may still need the values.
    children: tuple[ChildRef, ...] = ()
