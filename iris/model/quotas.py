"""The quotas of a cluster: how much users, teams and tagged jobs may hold at once, and how much of
its named limits all jobs may take.

The amounts of a quota are named by `RESOURCES`, and by `limits.NAME` for a named limit. They are
integers: millicores, bytes, chips, GPUs, hosts, and units of a named limit.
"""

from collections.abc import Mapping

from pydantic import Field

from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.job.spec import Band
from iris.model.units import format_bytes, format_cpu

#: The resources that a quota can limit, in the order in which they are shown.
RESOURCES = ("chips", "gpus", "cpus", "memory", "hosts")
#: The prefix of the name of a named limit among the resources of a quota: `limits.licence`.
NAMED = "limits."
#: The value of `QuotaRule.user` for a quota that applies to each user separately.
EACH_USER = "*"


class QuotaRule(Frozen):
    """A limit on the resources that the gangs of a user, of a team, or with a tag may hold at once.
    The user, the team or the tag is the holder of the quota.
    """

    name: str
    #: The user, or `EACH_USER`. Exactly one of user, team and tag is set.
    user: str = ""
    team: str = ""
    #: The tag as `KEY=VALUE`; empty for a quota of a user or of a team.
    tag: str = ""
    #: The priority bands whose gangs count; empty if all bands count.
    bands: tuple[Band, ...] = ()
    #: The amount of each resource that the holder may hold without borrowing from other quotas of
    #: the cohort. A resource without an entry is not limited.
    nominal: dict[str, int] = Field(default_factory=dict)
    #: The name of the group of quotas that lend each other their unused amounts; empty if the quota
    #: neither lends nor borrows.
    cohort: str = ""
    #: The limit on the amount of each resource that the holder may borrow. Without an entry, the
    #: amount is not limited.
    borrow: dict[str, int] = Field(default_factory=dict)
    #: The limit on the amount of each resource that other quotas of the cohort may borrow from the
    #: nominal amount. Without an entry, they may borrow the whole nominal amount.
    lend: dict[str, int] = Field(default_factory=dict)
    #: The limit on jobs of the holder that wait for hosts; None for no limit.
    waiting: int | None = None

    @property
    def holder(self) -> str:
        """The holder in a message: `team vision`."""
        if self.user:
            return "each user" if self.user == EACH_USER else f"user {self.user}"
        return f"team {self.team}" if self.team else f"tag {self.tag}"


class QuotaRules(Frozen):
    """All quotas of a cluster."""

    quotas: tuple[QuotaRule, ...] = ()
    #: The amount of each named limit that all gangs of the cluster together may hold.
    limits: dict[str, int] = Field(default_factory=dict)
    #: The users of each team that has a quota.
    teams: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.quotas or self.limits)


def parse_limit(text: str) -> tuple[str, int]:
    """Parses `NAME=AMOUNT`, what a job takes of a named limit. `NAME` alone takes 1.

    Raises:
        InvalidValue: the text is not an amount of a named limit.
    """
    name, _, amount = text.partition("=")
    if not amount.isdecimal() and text != name:
        raise InvalidValue("limit", text, "has no amount", "write NAME=AMOUNT, such as licence=1")
    return names.check_name("limit", name), int(amount or 1)


def team_of_users(teams: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Returns the team of each user that is in one."""
    return {user: team for team, users in teams.items() for user in users}


def format_quota(resource: str, amount: int) -> str:
    """Formats an amount with the name of its resource: `64 chips`, `2 GiB memory`, `1 licence`."""
    return f"{bare_amount(resource, amount)} {resource.removeprefix(NAMED)}"


def bare_amount(resource: str, amount: int) -> str:
    """Formats an amount without the name of the resource."""
    if resource == "cpus":
        return format_cpu(amount)
    return format_bytes(amount) if resource == "memory" else f"{amount:,}"
