"""The input with which a client starts a job's workflow. The workflow reads it as a `JobInput`."""

from iris.model.frozen import Frozen
from iris.model.job.spec import JobSpec


class JobSubmission(Frozen):
    """A job to start. It has the fields of `JobInput` that a client writes. The other fields of
    `JobInput` contain the state of a running job.
    """

    cluster: str
    spec: JobSpec
