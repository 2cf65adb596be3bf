"""Defines the section `quotas`: what users, teams and tagged jobs may hold at once."""

from pydantic import Field

from iris.config.values import Cores, Count, Section, Size
from iris.model.job.spec import Band


class QuotaAmounts(Section):
    """Limits on amounts of resources. A resource whose amount is not set is not limited."""

    chips: Count | None = Field(None, description="TPU chips.")
    gpus: Count | None = Field(None, description="GPUs.")
    cpus: Cores | None = Field(None, description="Cores.")
    memory: Size | None = Field(None, description="Memory.")
    hosts: Count | None = Field(
        None, description="Hosts; each gang counts its own, also those that it shares."
    )
    limits: dict[str, Count] = Field(
        default_factory=dict, description="Named limits, each one of limits."
    )


class QuotaConfig(QuotaAmounts):
    """The limits on the resources that a user, a team or the jobs with a tag may hold at once.
    Exactly one of user, team and tag must be set.
    """

    user: str = Field("", description="The user; `*`: each user, with a quota of its own.")
    team: str = Field("", description="The team, one of teams.")
    tag: str = Field("", description="The tag, KEY=VALUE: the jobs that have it.")
    bands: tuple[Band, ...] = Field((), description="The bands whose jobs count; empty: all.")
    waiting: Count | None = Field(
        None,
        description=(
            "The most jobs that wait for hosts; more are held outside the queue. Not for tags."
        ),
    )
    cohort: str = Field(
        "",
        description=(
            "Quotas with the same cohort lend each other what they do not use; empty: none."
        ),
    )
    borrow: QuotaAmounts = Field(
        QuotaAmounts(), description="The most that it borrows from its cohort; unset: no bound."
    )
    lend: QuotaAmounts = Field(
        QuotaAmounts(), description="The most that it lends to its cohort; unset: all."
    )
