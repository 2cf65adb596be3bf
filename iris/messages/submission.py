"""The input of a job's first run, as its submitter writes it. The workflow reads it as a
`JobInput`.
"""

from iris.model.frozen import Frozen
from iris.model.job.spec import JobSpec


class JobSubmission(Frozen):
    """A job to start. It is all that a client needs of a `JobInput`, which has the state of the job
    as well.
    """

    cluster: str
    spec: JobSpec
