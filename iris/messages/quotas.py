"""Answers of the scheduler about quotas."""

from iris.model.frozen import Frozen
from iris.model.job.spec import Band


class QuotaQuestion(Frozen):
    """Which quotas are asked for."""

    #: Only the quotas that cover jobs of this user, without those of tags; empty for all.
    user: str = ""


class QuotaRow(Frozen):
    """What a quota has of one resource. Amounts are in the units of `iris.model.quotas`."""

    #: The quota; empty for a named limit of the cluster.
    quota: str
    #: The holder: `team vision`.
    holder: str
    #: The bands whose jobs count; empty for all.
    bands: tuple[Band, ...] = ()
    cohort: str = ""
    #: One of `RESOURCES`, `limits.NAME`, or `waiting` for the number of waiting jobs.
    resource: str
    used: int
    nominal: int
    #: What it holds above `nominal`.
    borrowed: int = 0
    #: What others of the cohort hold of `nominal`.
    lent: int = 0
    #: The number of jobs that it covers and that wait for hosts.
    waiting: int = 0


class QuotaList(Frozen):
    """The quotas of a cluster."""

    rows: tuple[QuotaRow, ...] = ()
    #: The number of all rows; an answer of the scheduler has a bounded size.
    total: int = 0
