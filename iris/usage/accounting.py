"""The part of a configuration that `iris usage` needs: prices, teams and budgets. The control plane
writes it into the store, where every client finds it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import Field

from iris.config import ClusterConfig
from iris.config.accounting import BudgetConfig, RateConfig
from iris.model.frozen import Frozen
from iris.model.quotas import team_of_users
from iris.usage.budgets import Budget
from iris.usage.prices import Rate


class Accounting(Frozen):
    """The prices, teams and budgets of a cluster's configuration."""

    currency: str = ""
    rates: tuple[Rate, ...] = ()
    #: The users of each team.
    teams: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    budgets: tuple[Budget, ...] = ()

    @property
    def team_of(self) -> Mapping[str, str]:
        """The team of each user that is in one."""
        return team_of_users(self.teams)


def accounting_of(config: ClusterConfig) -> Accounting:
    """Returns the prices, teams and budgets of a configuration."""
    return Accounting(
        currency=config.prices.currency,
        rates=tuple(map(_rate, config.prices.rates)),
        teams=config.teams,
        budgets=tuple(_budget(name, budget) for name, budget in config.budgets.items()),
    )


def _rate(rate: RateConfig) -> Rate:
    since = datetime.fromisoformat(rate.since).replace(tzinfo=UTC) if rate.since else None
    return Rate(**{**rate.model_dump(), "since": since})


def _budget(name: str, budget: BudgetConfig) -> Budget:
    limits = {"amount", "chip_hours", "gpu_hours"} - budget.model_fields_set
    return Budget(name=name, **budget.model_dump(exclude=limits))
