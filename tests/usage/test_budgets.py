"""How much of a budget is used, and whom it holds. Pure."""

from datetime import UTC, date, datetime, timedelta

import pytest

from iris.config import load_config
from iris.config.accounting import BudgetAction, Period
from iris.usage.accounting import accounting_of
from iris.usage.amounts import Amounts
from iris.usage.budgets import (
    Budget,
    BudgetUse,
    DayUse,
    budget_uses,
    exceeded_for,
    hold_of_new_job,
    is_released,
    period_of,
)

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)  # a Saturday
TEAMS = {"vision": ("ada", "bob")}
HOLD = {"action": BudgetAction.HOLD}


def used(user: str, day: int, cost: float | None = 0.0, chips: float = 0.0) -> DayUse:
    return DayUse(user, date(2026, 11, day), Amounts(cost=cost, tpu_chip_hours=chips))


def of(
    budget: Budget,
    *days: DayUse,
    now: datetime = NOW,
    before: list[BudgetUse] | None = None,
) -> list[BudgetUse]:
    return budget_uses([budget], days, TEAMS, "EUR", now, before or [])


@pytest.mark.parametrize(
    ("per", "begin", "end"),
    [
        (Period.DAY, datetime(2026, 11, 28, tzinfo=UTC), datetime(2026, 11, 29, tzinfo=UTC)),
        (Period.WEEK, datetime(2026, 11, 23, tzinfo=UTC), datetime(2026, 11, 30, tzinfo=UTC)),
        (Period.MONTH, datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)),
    ],
)
def test_a_period_begins_at_midnight_utc(per: Period, begin: datetime, end: datetime) -> None:
    """A week begins on Monday. The last moment of a period and the first of the next differ."""
    assert period_of(per, NOW) == (begin, end)
    assert period_of(per, begin) == (begin, end)
    assert period_of(per, end - timedelta(microseconds=1)) == (begin, end)
    assert period_of(per, end)[0] == end


def test_a_team_is_the_sum_of_its_users_in_the_period() -> None:
    """Days before the period, and other users, do not count."""
    days = used("ada", 22, 100), used("ada", 23, 3), used("bob", 28, 4), used("eve", 28, 50)
    week = Budget(name="b", team="vision", amount=10, per=Period.WEEK)
    (found,) = of(week, *days)
    assert (found.used, found.limit, found.unit, found.exceeded_at) == (7, 10, "EUR", None)
    (month,) = of(week.model_copy(update={"per": Period.MONTH}), *days)
    assert (month.used, month.exceeded_at) == (107, NOW)


def test_hours_and_money_are_different_limits() -> None:
    """Machines without a price cost nothing, but their chips count."""
    day = used("ada", 28, None, chips=5)
    (money,) = of(Budget(name="b", user="ada", amount=1), day)
    (chips,) = of(Budget(name="b", user="ada", chip_hours=5), day)
    assert (money.used, chips.used, chips.unit) == (0, 5, "chip-hours")
    assert (money.exceeded_at, chips.exceeded_at) == (None, NOW)


def test_each_user_has_a_budget_of_the_own() -> None:
    """`*` is not one budget for all."""
    found = of(Budget(name="b", user="*", amount=5), used("ada", 28, 6), used("bob", 28, 4))
    assert {use.users: use.exceeded_at for use in found} == {("ada",): NOW, ("bob",): None}


def test_a_budget_is_used_up_since_it_was_first_seen_to_be() -> None:
    """Jobs that were queued before are not new, also after a restart."""
    budget = Budget(name="b", user="ada", amount=5, **HOLD)
    day, later = used("ada", 28, 6), NOW + timedelta(hours=1)
    first = of(budget, day)
    again = of(budget, day, now=later, before=first)
    assert again[0].exceeded_at == NOW
    larger = budget.model_copy(update={"amount": 5.5})
    assert of(larger, day, now=later, before=first)[0].exceeded_at == later


def test_new_jobs_of_those_who_are_over_are_held() -> None:
    """The reason names the budget, both numbers, and when the period ends."""
    uses = of(Budget(name="small", team="vision", amount=5, **HOLD), used("ada", 28, 6))
    minute = timedelta(minutes=1)
    hold = hold_of_new_job(uses, "bob", NOW + minute, NOW + 2 * minute)
    assert hold is not None
    assert hold.by == "budget small"
    assert all(each in hold.reason for each in ("vision", "6.00", "5.00", "2026-12-01 00:00"))
    # another user, a job that waited before, and the next period
    assert hold_of_new_job(uses, "eve", NOW + minute, NOW + minute) is None
    assert hold_of_new_job(uses, "bob", NOW - minute, NOW + minute) is None
    assert hold_of_new_job(uses, "bob", NOW + 4 * minute, uses[0].until) is None


def test_a_warning_holds_nothing() -> None:
    """Its users learn of it in `iris submit`."""
    uses = of(Budget(name="b", user="ada", amount=5), used("ada", 28, 6))
    assert hold_of_new_job(uses, "ada", NOW, NOW) is None
    assert exceeded_for(uses, "ada", NOW) == uses


def test_a_job_is_released_when_its_budget_holds_it_no_longer() -> None:
    """The period is over, the budget has grown, or it is gone."""
    budget = Budget(name="b", user="ada", amount=5, **HOLD)
    uses = of(budget, used("ada", 28, 6))
    reason = str(uses[0].hold)
    assert not is_released(reason, "ada", uses, NOW)
    assert is_released(reason, "ada", uses, uses[0].until)
    assert is_released(reason, "ada", [], NOW)
    grown = of(budget.model_copy(update={"amount": 50}), used("ada", 28, 6), before=uses)
    assert is_released(reason, "ada", grown, NOW)
    # another budget with a similar name holds nothing of this one
    assert is_released(reason.replace("budget b:", "budget bb:"), "ada", uses, NOW)


@pytest.mark.parametrize("reason", ["held by ada: budget b", "held by ada", "waits for hosts", ""])
def test_a_hold_of_a_user_is_never_released(reason: str) -> None:
    """Whoever holds a job knows why."""
    assert not is_released(reason, "ada", [], NOW)


def test_budgets_come_from_the_configuration() -> None:
    """A limit of zero is one: it allows nothing."""
    config = load_config(
        "platform: {local: {}}\nteams: {vision: [ada]}\nbudgets:\n"
        "  tpu: {team: vision, chip_hours: 0, per: week, action: hold}\n"
        "  each: {user: '*', gpu_hours: 7.5}\n"
    )
    assert accounting_of(config).budgets == (
        Budget(name="tpu", team="vision", chip_hours=0, per=Period.WEEK, **HOLD),
        Budget(name="each", user="*", gpu_hours=7.5),
    )
