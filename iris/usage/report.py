"""The answer to who used what: rows with hours and money, and what was not used."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.job.tags import check_tag
from iris.usage.amounts import Amounts
from iris.usage.budgets import BudgetUse

#: The keys by which the records of use can be grouped. `tag:KEY` is also possible.
KEYS = ("user", "team", "job", "group", "band", "day")
TAG = "tag:"


def parse_key(text: str) -> str:
    """Returns the key unchanged.

    Raises:
        InvalidValue: uses cannot be grouped by it.
    """
    if text.startswith(TAG):
        check_tag(text.removeprefix(TAG), "")
    elif text not in KEYS:
        raise InvalidValue("by", text, "is not a key", f"use {', '.join(KEYS)} or {TAG}KEY")
    return text


class UsageRow(Amounts):
    """The sum of the amounts of all attempts that have the same values of the keys."""

    #: The values by the names of the keys: {"user": "ada"}. The value is empty for users without a
    #: team, and for jobs without the tag.
    by: dict[str, str]


class WasteKind(StrEnum):
    """A reason why machines did no useful work."""

    IDLE = "idle"  # ready hosts, or parts of them, that no attempt held
    BOOT = "boot"  # slices from their request until they were ready
    NEVER_READY = "never ready"  # slices that never became ready
    SET_UP = "set-up"  # attempts from their placement until their programs started
    FAILED_SET_UP = "failed set-up"  # attempts whose environment could not be set up
    FAILED = "failed"  # the run time of attempts that failed
    PREEMPTED = "preempted"  # the run time of attempts whose machines were lost or taken


#: The kinds of waste that are counted for slices. The other kinds are counted for attempts.
OF_SLICES = (WasteKind.IDLE, WasteKind.BOOT, WasteKind.NEVER_READY)
#: For each kind of waste: what is counted, as a noun, and what the kind means.
_MEANINGS = {
    WasteKind.IDLE: ("slice", "ready, and held by no job"),
    WasteKind.BOOT: ("slice", "from the request until ready"),
    WasteKind.NEVER_READY: ("slice", "gone before they were ready"),
    WasteKind.SET_UP: ("attempt", "from the placement until the program started"),
    WasteKind.FAILED_SET_UP: ("attempt", "the environment could not be set up"),
    WasteKind.FAILED: ("attempt", "run time of attempts that failed"),
    WasteKind.PREEMPTED: ("attempt", "run time of attempts that lost their machines"),
}
#: The smallest number of hours that is shown as a number. Kinds of waste with fewer hours are left
#: out, and other amounts below it are shown as `<0.1`.
LEAST_HOURS = 0.05


class Waste(Frozen):
    """The host-hours of one kind of waste: they were paid for and probably had no result. This is
    not certain: a preempted attempt can have saved a checkpoint.
    """

    kind: WasteKind
    #: The number of slices or attempts with this kind of waste.
    count: int = 0
    host_hours: float = 0.0
    cost: float | None = None

    @property
    def meaning(self) -> str:
        """Returns what was wasted: `3 slices: ready, and held by no job`."""
        what, meaning = _MEANINGS[self.kind]
        return f"{self.count:,} {what}{'s' if self.count != 1 else ''}: {meaning}"


class UsageReport(Frozen):
    """The use of a cluster in a period."""

    since: datetime
    until: datetime
    #: The keys by which the rows are grouped.
    by: tuple[str, ...]
    #: The currency of all costs; empty if the cluster has no prices.
    currency: str = ""
    #: The rows, in descending order of cost; without prices, of chip-hours, then GPU-hours, then
    #: core-hours. If the first key is `day`, the rows are in the order of days.
    rows: tuple[UsageRow, ...] = ()
    #: The sum of the rows. Here, an attempt that ran on several days counts once.
    total: Amounts = Amounts()
    #: The host-hours of all slices, used or not, and their cost. It is None in a report about one
    #: user.
    slices: Amounts | None = None
    waste: tuple[Waste, ...] = ()
    #: The host-hours of each kind of machine that has no price.
    unpriced: dict[str, float] = Field(default_factory=dict)
    #: How much of each budget is used in its current period, as the control plane last saw it. A
    #: report about one user contains only the budgets for which the user's jobs count.
    budgets: tuple[BudgetUse, ...] = ()
    #: Sentences that say which data is missing in the report.
    gaps: tuple[str, ...] = ()

    @property
    def wasted(self) -> list[Waste]:
        """The kinds of waste of which there is enough to show."""
        return [each for each in self.waste if each.host_hours >= LEAST_HOURS]
