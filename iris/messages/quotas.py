"""Answers of the scheduler about quotas."""

from iris.model.frozen import Frozen
from iris.model.job.spec import Band


class QuotaQuestion(Frozen):
    """Selects the quotas that the scheduler returns."""

    #: Selects only the quotas that cover jobs of this user, without the quotas of tags. Empty
    #: selects all quotas.
    user: str = ""


class QuotaRow(Frozen):
    """The use of one resource under one quota. Amounts are in the units of `iris.model.quotas`."""

    #: The name of the quota; empty for a named limit of the cluster.
    quota: str
    #: The user, team or tag that has the quota, such as `team vision`.
    holder: str
    #: The priority bands whose jobs count against the quota; empty for all bands.
    bands: tuple[Band, ...] = ()
    cohort: str = ""
    #: The resource: one of `RESOURCES`, `limits.NAME`, or `waiting` for the number of waiting jobs.
    resource: str
    used: int
    nominal: int
    #: The amount that the quota's jobs use above `nominal`.
    borrowed: int = 0
    #: The part of `nominal` that jobs of the cohort's other quotas use.
    lent: int = 0
    #: The number of jobs that the quota covers and that wait for hosts.
    waiting: int = 0


class QuotaList(Frozen):
    """The scheduler's answer to a `QuotaQuestion`."""

    rows: tuple[QuotaRow, ...] = ()
    #: The number of all selected rows. It is larger than the number of `rows` if the answer was
    #: cut.
    total: int = 0
