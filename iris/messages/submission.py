"""The input with which a client starts a job's workflow. The workflow reads it as a `JobInput`."""

from iris.model.frozen import Frozen
from iris.model.job.spec import JobSpec


class JobSubmission(Frozen):
    """A job to start: the fields of `JobInput` that a client writes. The others have the state of a
    running job.
    """

    cluster: str
    spec: JobSpec
