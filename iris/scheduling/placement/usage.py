"""Derives the use of each user from the placements. It decides whose turn is next
(`iris.scheduling.placement.queue`).
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from iris.model.job.requests import EPOCH, Placement
from iris.model.job.spec import Band
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.recent_use import Lately
from iris.scheduling.placement.service_order import TeamTurns


class Usage(NamedTuple):
    """The use of the cluster by which the scheduler compares the users of a band to decide whose
    turn is next.
    """

    #: The weight of the placements that the user holds in this band and all higher ones, by band
    #: and user. It is 0 for a user who is overdue: who has waited for `Rules.owed_after` and got no
    #: placement in this time.
    held: dict[Band, dict[str, int]]
    #: The recent use of each user in this band and all higher ones, by band and user.
    recent: dict[Band, dict[str, int]]
    #: The same as `recent`, but the running placements of overdue users (who have waited for
    #: `Rules.owed_after` and got no placement) count in full. In `recent` they count 1 at most.
    full_recent: dict[Band, dict[str, int]]
    lately: Lately
    #: The use of teams, by band; None if only users count.
    teams: dict[Band, TeamTurns] | None = None

    @classmethod
    def of(
        cls,
        live: Iterable[Placement],
        waiting: Queue | None = None,
        since: datetime = EPOCH,
        lately: Lately | None = None,
        team_of: Mapping[str, str] = MappingProxyType({}),
    ) -> "Usage":
        """Derives the use from the live placements.

        Args:
            since: users who have waited since before this time and were given nothing after it are
                overdue.
            lately: the recent use, which has sums over the live placements; None if there is none.
            team_of: the team of each user that is in one, if teams count before users.
        """
        if lately is None:
            live = list(live)
            lately = Lately(held=_held(live), given=_given(live, since))
        overdue = _overdue_users(waiting, since, lately.given) if waiting is not None else {}
        recent = lately.by_band(overdue)
        full_recent = lately.by_band({}) if any(overdue.values()) else recent
        held, teams = _with_higher_bands(lately.held, overdue), None
        if team_of:
            whole = _with_higher_bands(lately.held)
            late = _overdue_teams(overdue, lately.given, team_of)
            teams = {
                band: TeamTurns(
                    team_of,
                    _sum_of_teams(whole[band], team_of, late[band]),
                    _sum_of_teams(full_recent[band], team_of),
                )
                for band in Band
            }
        return cls(held, recent, full_recent, lately, teams)

    @classmethod
    def for_turns(
        cls,
        live: Iterable[Placement],
        waiting: Queue,
        since: datetime,
        lately: Lately | None,
        team_of: Mapping[str, str] = MappingProxyType({}),
    ) -> "Usage":
        """Returns the use that decides whose turn is next. If the queue is not contested, nobody's
        use matters, and it is empty. The arguments are those of `of`.
        """
        if waiting.is_contested:
            return cls.of(live, waiting, since, lately, team_of)
        nothing: dict[Band, dict[str, int]] = {band: {} for band in Band}
        return cls({band: {} for band in Band}, nothing, nothing, Lately())

    def of_teams(self, band: Band, more: Mapping[str, int] | None = None) -> TeamTurns | None:
        """Returns the use of teams in a band; None if only users count.

        Args:
            more: weights of users that are added.
        """
        if self.teams is None or not more:
            return self.teams[band] if self.teams is not None else None
        found = self.teams[band]._replace(held=dict(self.teams[band].held))
        for user, weight in more.items():
            found.add(user, weight)
        return found

    def count_in_lower_bands(self, placement: Placement) -> None:
        """Adds a placement of this pass to the use of its user in all lower bands."""
        for band, held in self.held.items():
            if band.rank > placement.band.rank:
                held[placement.user] = held.get(placement.user, 0) + placement.weight
                if (teams := self.of_teams(band)) is not None:
                    teams.add(placement.user, placement.weight)


def _given(live: Iterable[Placement], since: datetime) -> set[str]:
    """Returns the users of the placements that began after this time."""
    return {each.user for each in live if each.placed_at is None or each.placed_at > since}


def _overdue_users(waiting: Queue, since: datetime, given: Collection[str]) -> dict[Band, set[str]]:
    """Returns the users who have waited in a band since before that time and were given nothing
    after it.

    Their use does not count in that band. Otherwise a user whose one job runs for a week could not
    start another as long as users who hold less keep submitting.

    Args:
        given: the users who were given something after that time.
    """
    return {
        band: {
            user
            for user, oldest in waiting.users(band).items()
            if oldest < since and user not in given
        }
        for band in Band
    }


def _overdue_teams(
    overdue: Mapping[Band, Collection[str]], given: Collection[str], team_of: Mapping[str, str]
) -> dict[Band, set[str]]:
    """Returns the teams of overdue users of which no member was given anything, by band."""
    served = {team_of[user] for user in given if user in team_of}
    return {
        band: {team_of[user] for user in overdue.get(band, ()) if user in team_of} - served
        for band in Band
    }


def _sum_of_teams(
    use: Mapping[str, int], team_of: Mapping[str, str], overdue: Collection[str] = ()
) -> dict[str, int]:
    """Returns the use of each team; 0 for an overdue one."""
    found: dict[str, int] = {}
    for user, amount in use.items():
        if (team := team_of.get(user)) is not None and team not in overdue:
            found[team] = found.get(team, 0) + amount
    return found


def use_by_band(live: Iterable[Placement]) -> dict[Band, dict[str, int]]:
    """Returns the weight of each user's placements in each band and the higher ones."""
    return _with_higher_bands(_held(live))


def _held(live: Iterable[Placement]) -> dict[Band, dict[str, int]]:
    """Returns the weight of each user's placements in each band."""
    use: dict[Band, dict[str, int]] = {band: {} for band in Band}
    for placement in live:
        held = use[placement.band]
        held[placement.user] = held.get(placement.user, 0) + placement.weight
    return use


def _with_higher_bands(
    held: Mapping[Band, Mapping[str, int]],
    overdue: Mapping[Band, Collection[str]] = MappingProxyType({}),
) -> dict[Band, dict[str, int]]:
    """Adds the weight in all higher bands to that in each band; 0 in bands where the user is
    overdue.
    """
    use = {band: dict(held.get(band, {})) for band in Band}
    higher: dict[str, int] = {}
    for band in Band:
        for user, weight in higher.items():
            use[band][user] = use[band].get(user, 0) + weight
        higher = dict(use[band])
    for band, users in overdue.items():
        use[band].update(dict.fromkeys(users, 0))
    return use
