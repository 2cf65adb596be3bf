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

#: The resources that a quota can bound, in the order in which they are shown.
RESOURCES = ("chips", "gpus", "cpus", "memory", "hosts")
#: The beginning of the name under which a named limit is a resource.
NAMED = "limits."
#: The value of `QuotaRule.user` for a quota that each user has on its own.
EACH_USER = "*"


class QuotaRule(Frozen):
    """The most that the gangs of one holder may hold at once: of a user, a team, or a tag."""

    name: str
    #: The user, or `EACH_USER`. One of user, team and tag is set.
    user: str = ""
    team: str = ""
    #: The tag as `KEY=VALUE`.
    tag: str = ""
    #: The bands whose gangs count; empty for all.
    bands: tuple[Band, ...] = ()
    #: What the holder may hold in any case, by resource. Others are not bounded.
    nominal: dict[str, int] = Field(default_factory=dict)
    #: The quotas with the same cohort lend each other what they do not use; empty for none.
    cohort: str = ""
    #: The most that the holder may borrow, by resource. Others are not bounded.
    borrow: dict[str, int] = Field(default_factory=dict)
    #: The most of the nominal amounts that others may borrow, by resource. Of others, all of it.
    lend: dict[str, int] = Field(default_factory=dict)
    #: The most jobs that may wait for hosts; None for no bound.
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
    #: How much of each named limit all gangs together may hold.
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
