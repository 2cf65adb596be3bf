"""The message about the sealed secret values of a job that has ended."""

from iris.messages.job import ChildRef
from iris.model.frozen import Frozen


class UnneededSecrets(Frozen):
    """The sealed (encrypted) values of secrets of a job that has ended. They are to be deleted if
    no child job needs them.
    """

    cluster: str
    #: The paths of the objects in the store that contain the values, in the form that
    #: `SecretSource.name` has for sealed values.
    objects: tuple[str, ...]
    #: The children of the job. They, and their own children, may still need the values.
    children: tuple[ChildRef, ...] = ()
