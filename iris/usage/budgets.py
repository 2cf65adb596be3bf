"""How much of each budget is used, and which new jobs are held for it."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from iris.config.accounting import BudgetAction, Period
from iris.model.frozen import Frozen
from iris.model.job.spec import Hold
from iris.usage.amounts import Amounts

#: The value of `Budget.user` for a budget that each user has on their own.
EACH_USER = "*"
#: The units of budgets that limit chip-hours or GPU-hours. The unit of a budget that limits the
#: cost is its currency.
CHIP_HOURS, GPU_HOURS = "chip-hours", "GPU-hours"
#: The prefix of `Hold.by` if a budget holds the job; the name of the budget follows. No user can
#: have such a name, because no user's name contains a space.
_BY = "budget "


class Budget(Frozen):
    """A limit on the cost, the chip-hours or the GPU-hours of a user or team in a period. Exactly
    one of the three limits is set.
    """

    name: str
    #: The user, or `EACH_USER`; empty if the budget is that of a team.
    user: str = ""
    team: str = ""
    #: The limit on the cost; None if the cost is not limited.
    amount: float | None = None
    #: The limit on chip-hours; None if they are not limited.
    chip_hours: float | None = None
    #: The limit on GPU-hours; None if they are not limited.
    gpu_hours: float | None = None
    per: Period = Period.MONTH
    action: BudgetAction = BudgetAction.WARN

    @property
    def limit(self) -> float:
        return next(
            each for each in (self.amount, self.chip_hours, self.gpu_hours) if each is not None
        )

    def used_by(self, use: Amounts) -> float:
        """Returns the part of a use that counts for this budget. Machines without a price count
        nothing for a limit on money.
        """
        if self.amount is not None:
            return use.cost or 0.0
        return use.tpu_chip_hours if self.chip_hours is not None else use.gpu_hours


class BudgetUse(Frozen):
    """How much of a budget is used in its current period."""

    budget: str
    #: The users whose jobs count for the budget: all users of the team, or one user.
    users: tuple[str, ...]
    #: The team; empty if the budget is that of one user.
    team: str = ""
    used: float
    limit: float
    #: The unit of `used` and `limit`: a currency, `CHIP_HOURS` or `GPU_HOURS`.
    unit: str
    per: Period
    #: The end of the period, after which the used amount begins at 0 again.
    until: datetime
    action: BudgetAction
    #: When the control plane first saw that the budget is used up; None if it is not used up.
    exceeded_at: datetime | None = None

    def __str__(self) -> str:
        who = f"team {self.team}" if self.team else f"user {self.users[0]}"
        used, limit = self._amount(self.used), self._amount(self.limit)
        return (
            f"{who} has used {used} of {limit} for this {self.per}, which ends"
            f" {self.until:%Y-%m-%d %H:%M} UTC"
        )

    def _amount(self, number: float) -> str:
        if self.unit not in (CHIP_HOURS, GPU_HOURS):
            return f"{self.unit} {number:,.2f}"
        return f"{number:,.1f} {self.unit}" if number >= 1 else f"{number:.3g} {self.unit}"

    @property
    def hold(self) -> Hold:
        """The hold of new jobs."""
        return Hold(by=f"{_BY}{self.budget}", reason=str(self))


class BudgetUses(Frozen):
    """How much of each budget is used, as the control plane writes it into the store."""

    at: datetime
    uses: tuple[BudgetUse, ...] = ()


class DayUse(NamedTuple):
    """The resources that one user used on one day (UTC), and their cost."""

    user: str
    day: date
    use: Amounts


def period_of(per: Period, now: datetime) -> tuple[datetime, datetime]:
    """Returns the begin and the end of the period that contains a time."""
    today = now.astimezone(UTC).date()
    match per:
        case Period.DAY:
            first, last = today, today + timedelta(days=1)
        case Period.WEEK:
            first = today - timedelta(days=today.weekday())
            last = first + timedelta(days=7)
        case Period.MONTH:
            first = today.replace(day=1)
            last = (first + timedelta(days=31)).replace(day=1)
    begin, end = (datetime.combine(each, time(), UTC) for each in (first, last))
    return begin, end


def budget_uses(
    budgets: Iterable[Budget],
    days: Iterable[DayUse],
    teams: Mapping[str, Iterable[str]],
    currency: str,
    now: datetime,
    before: Iterable[BudgetUse] = (),
) -> list[BudgetUse]:
    """Returns how much of each budget is used. A budget for each user is that of each user with
    some use.

    Args:
        days: the use of each user and day, at least since the beginning of the month and week.
        before: the last result, which knows since when a budget is used up.
    """
    days = list(days)
    since = {
        (use.budget, use.users, use.until, use.limit): use.exceeded_at
        for use in before
        if use.exceeded_at is not None
    }
    found = []
    for budget in budgets:
        begin, until = period_of(budget.per, now)
        within = [day for day in days if begin.date() <= day.day < until.date()]
        for users in _users_of(budget, within, teams):
            used = sum(budget.used_by(day.use) for day in within if day.user in users)
            exceeded = since.get((budget.name, users, until, budget.limit), now)
            found.append(
                BudgetUse(
                    budget=budget.name,
                    users=users,
                    team=budget.team,
                    used=used,
                    limit=budget.limit,
                    unit=_unit(budget, currency),
                    per=budget.per,
                    until=until,
                    action=budget.action,
                    exceeded_at=exceeded if used >= budget.limit else None,
                )
            )
    return found


def exceeded_for(
    uses: Iterable[BudgetUse], user: str, now: datetime, action: BudgetAction | None = None
) -> list[BudgetUse]:
    """Returns the budgets that a user has used up in the present period.

    Args:
        action: only budgets with this action; None: all.
    """
    return [
        use
        for use in uses
        if use.exceeded_at is not None
        and user in use.users
        and now < use.until
        and action in (None, use.action)
    ]


def hold_of_new_job(
    uses: Iterable[BudgetUse], user: str, queued_at: datetime, now: datetime
) -> Hold | None:
    """Returns the hold for a job; None if it may start. A job that waited before a budget was used
    up is not new.
    """
    over = exceeded_for(uses, user, now, BudgetAction.HOLD)
    return next(
        (use.hold for use in over if use.exceeded_at and queued_at >= use.exceeded_at), None
    )


def is_released(reason: str, user: str, uses: Iterable[BudgetUse], now: datetime) -> bool:
    """Returns whether a held job is to be released: a budget holds it, and that budget holds its
    user's jobs no longer.

    Args:
        reason: the reason in the job's status, which begins with that of its hold.
    """
    holding = (use.hold for use in exceeded_for(uses, user, now, BudgetAction.HOLD))
    return reason.startswith(f"held by {_BY}") and not any(
        reason.startswith(f"held by {hold.by}:") for hold in holding
    )


def _users_of(
    budget: Budget, days: Iterable[DayUse], teams: Mapping[str, Iterable[str]]
) -> Iterator[tuple[str, ...]]:
    if budget.team:
        yield tuple(teams.get(budget.team, ()))
    elif budget.user == EACH_USER:
        yield from ((user,) for user in sorted({day.user for day in days}))
    else:
        yield (budget.user,)


def _unit(budget: Budget, currency: str) -> str:
    if budget.amount is not None:
        return currency
    return CHIP_HOURS if budget.chip_hours is not None else GPU_HOURS
