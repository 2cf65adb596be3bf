"""The part of a configuration that `iris usage` needs: prices and teams. The control plane writes
it into the store, where every client finds it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import Field

from iris.config import ClusterConfig
from iris.config.accounting import RateConfig
from iris.model.frozen import Frozen
from iris.usage.prices import Rate


class Accounting(Frozen):
    """Prices and teams."""

    currency: str = ""
    rates: tuple[Rate, ...] = ()
    #: The users of each team.
    teams: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @property
    def team_of(self) -> Mapping[str, str]:
        """The team of each user that is in one."""
        return {user: team for team, users in self.teams.items() for user in users}


def accounting_of(config: ClusterConfig) -> Accounting:
    """Returns the prices and teams of a configuration."""
    return Accounting(
        currency=config.prices.currency,
        rates=tuple(map(_rate, config.prices.rates)),
        teams=config.teams,
    )


def _rate(rate: RateConfig) -> Rate:
    since = datetime.fromisoformat(rate.since).replace(tzinfo=UTC) if rate.since else None
    return Rate(**{**rate.model_dump(), "since": since})
