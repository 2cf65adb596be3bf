"""Accounts for each user's recent use: the weight of placements, multiplied by how long they were
held, with a half-life.

The use of ended placements is stored in one account per user and band. The use of live placements
follows from the time at which they were placed. Their sums are kept, too: a pass need not add up
thousands of placements again.

No account is multiplied by a decay factor. Instead, a unit of use counts more the later it is used:
twice as much after each half-life, and linearly in between. So accounts can be compared as they
are, and the order of entries does not matter. All numbers are integers, so a replay computes the
same on every machine. When a half-life begins, all accounts are halved, which keeps them small.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from pydantic import BaseModel, Field

from iris.model.job.requests import EPOCH, Placement
from iris.model.job.spec import Band

#: The time after which use counts half, the same as HTCondor's default (PRIORITY_HALFLIFE). It is
#: longer than most gangs run, so one long gang counts as much as many short ones. A user who had
#: the whole cluster waits for about a day, not for a week.
HALF_LIFE = timedelta(days=1)
#: The least time for which a placement is charged, so that the short use of a job that fails at
#: once also counts.
LEAST = timedelta(seconds=1)
#: The limit on accounts of recent use, of which each user has one in each band. They take about 30
#: KiB of the ledger's 2 MiB. The accounts with the least use are dropped.
MOST_ACCOUNTS = 1_000

_MILLISECOND = timedelta(milliseconds=1)
_HALF_LIFE = HALF_LIFE // _MILLISECOND
_LEAST = LEAST // _MILLISECOND
#: An account with less recent use than this is dropped when a half-life begins. It is the use of a
#: placement of weight 1 in one second: at that time, weight 1 adds `2 * _HALF_LIFE` to the use in
#: each millisecond (`_grown`).
_NEGLIGIBLE = 2 * _HALF_LIFE * 1000


class RecentUseState(BaseModel):
    """The state of `RecentUse`, as one run of the scheduler passes it to the next."""

    #: The number of half-lives between `EPOCH` and the time to which the accounts refer.
    half_lives: int = 0
    #: By band and user: the recent use of ended placements that are charged already; those in
    #: `ended` are not. At the time to which the accounts refer, weight 1 adds twice the half-life
    #: (in milliseconds) to the use in each millisecond.
    accounts: dict[Band, dict[str, int]] = Field(default_factory=dict)
    #: For each user, when the youngest of the ended placements began, in milliseconds since
    #: `EPOCH`.
    given: dict[str, int] = Field(default_factory=dict)
    #: The ended placements that are not charged yet: user, band, weight, and when the placement
    #: began, in milliseconds since `EPOCH`.
    ended: list[tuple[str, Band, int, int]] = Field(default_factory=list)


class Lately(NamedTuple):
    """The recent use of each user in each band at one moment, of ended and of running
    placements.
    """

    ended: Mapping[Band, Mapping[str, int]] = {}
    running: Mapping[Band, Mapping[str, int]] = {}
    #: The amount that one second of use with weight 1 has now in `ended` and `running`. Dividing an
    #: amount by it gives weight times seconds.
    unit: int = 1
    #: The users who got a placement within the last `Rules.owed_after`.
    given: Collection[str] = ()
    #: The weight of each user's live placements, by band.
    held: Mapping[Band, Mapping[str, int]] = {}

    def by_band(self, overdue: Mapping[Band, Collection[str]]) -> dict[Band, dict[str, int]]:
        """Returns the recent use that counts in each band: the use in it and in the higher bands.

        The running placements of an overdue user count as 1 at most, so only users without any
        recent use come before.
        """
        counts: dict[Band, dict[str, int]] = {}
        ended, running = Counter[str](), Counter[str]()
        for band in Band:
            ended.update(self.ended.get(band, {}))
            running.update(self.running.get(band, {}))
            exempt = overdue.get(band, ())
            counts[band] = {
                user: ended[user] + (min(1, running[user]) if user in exempt else running[user])
                for user in {**ended, **running}
            }
        return counts


class _Running:
    """The number and the total weight of the live placements of one user in one band, and the sum
    from which their recent use is computed.
    """

    __slots__ = ("began", "count", "weight")

    def __init__(self) -> None:
        self.count = self.weight = 0
        #: The sum of the placements' weights, each multiplied by `_grown` of the time at which the
        #: placement began: the use that weight 1 would have had until then. The recent use of the
        #: placements is `weight`, multiplied by `_grown` of the present time, minus this sum.
        self.began = 0


class RecentUse:
    """The recent use of all users. Each user has an account in each band."""

    def __init__(self, state: RecentUseState | None = None) -> None:
        state = state or RecentUseState()
        self._half_lives = state.half_lives
        self._accounts = {band: Counter(state.accounts.get(band, {})) for band in Band}
        self._given = dict(state.given)
        self._ended = list(state.ended)
        #: The live placements by key. `_running` has the sums over them, by band and user.
        self._live: dict[str, Placement] = {}
        self._running: dict[Band, dict[str, _Running]] = {band: {} for band in Band}
        #: The live placements that may have run for less than `LEAST`.
        self._young: dict[str, Placement] = {}
        #: For each user with live placements, when the youngest placement began, in milliseconds
        #: since `EPOCH`. That placement may have ended already.
        self._latest: dict[str, int] = {}

    def state(self) -> RecentUseState:
        return RecentUseState(
            half_lives=self._half_lives,
            accounts={band: dict(users) for band, users in self._accounts.items() if users},
            given=dict(self._given),
            ended=list(self._ended),
        )

    def copy(self) -> "RecentUse":
        """Returns a copy that a trial pass may change."""
        same = RecentUse(self.state())
        for placement in self._live.values():
            same.begins(placement)
        return same

    def begins(self, placement: Placement) -> None:
        """Records a live placement."""
        self._live[placement.key] = self._young[placement.key] = placement
        began = _since(placement)
        self._latest[placement.user] = max(began, self._latest.get(placement.user, began))
        self._count(placement, 1)

    def ended(self, placement: Placement) -> None:
        """Records that the placement has ended. The next `now_is` charges it, because the time of
        the end is known only then.
        """
        self._count(self._live.pop(placement.key), -1)
        self._young.pop(placement.key, None)
        began = _since(placement)
        self._ended.append((placement.user, placement.band, placement.weight, began))
        self._given[placement.user] = max(began, self._given.pop(placement.user, began))

    def goes_on(self, placement: Placement) -> None:
        """Records that a placement continues in a changed form (another band, fewer hosts).

        The caller has reported the old form to `ended`, and the new one to `begins`. The new form
        counts from its begin while it is live, so the account is charged only for the difference
        between the two forms.
        """
        self._ended.append((placement.user, placement.band, -placement.weight, _since(placement)))

    def now_is(self, now: datetime) -> None:
        """Charges the placements that have ended, as of now."""
        at = _milliseconds(now)
        passed = at // _HALF_LIFE - self._half_lives
        if passed > 0:
            self._half_lives += passed
            self._sum_anew()
            for band, users in self._accounts.items():
                left = {user: used >> passed for user, used in users.items()}
                self._accounts[band] = Counter(
                    {user: used for user, used in left.items() if abs(used) >= _NEGLIGIBLE}
                )
        for user, band, weight, began in self._ended:
            least = began + _LEAST if weight > 0 else began
            self._accounts[band][user] += weight * (
                self._grown(max(at, least)) - self._grown(began)
            )
        self._ended.clear()
        grown_up = [key for key, each in self._young.items() if _since(each) + _LEAST <= at]
        for key in grown_up:
            del self._young[key]
        self._drop_the_least()

    def lately(self, now: datetime, owed_after: timedelta) -> Lately:
        """Returns the recent use of all users at this moment, and changes nothing: queries ask for
        it, too, and a replay has no queries.
        """
        at, since = _milliseconds(now), _milliseconds(now - owed_after)
        grown = self._grown(at)
        running = {
            band: {user: grown * sums.weight - sums.began for user, sums in users.items()}
            for band, users in self._running.items()
        }
        for placement in self._young.values():
            if (until := _since(placement) + _LEAST) > at:
                more = placement.weight * (self._grown(until) - grown)
                running[placement.band][placement.user] += more
        half_lives, rest = divmod(at, _HALF_LIFE)
        unit = (2 * (_HALF_LIFE + rest) * 1000) << max(0, half_lives - self._half_lives)
        ended = {band: dict(users) for band, users in self._accounts.items()}
        given = {
            user
            for begins in (self._given, self._latest)
            for user, begin in begins.items()
            if begin > since
        }
        held = {
            band: {user: sums.weight for user, sums in users.items()}
            for band, users in self._running.items()
        }
        return Lately(ended, running, unit, given, held)

    def _count(self, placement: Placement, sign: int) -> None:
        users, user = self._running[placement.band], placement.user
        sums = users.get(user) or users.setdefault(user, _Running())
        sums.count += sign
        sums.weight += sign * placement.weight
        sums.began += sign * placement.weight * self._grown(_since(placement))
        if not sums.count:
            del users[user]
            if not any(user in each for each in self._running.values()):
                self._latest.pop(user, None)

    def _sum_anew(self) -> None:
        """Computes the sums again, because `_grown` has other values after a half-life."""
        self._running = {band: {} for band in Band}
        for placement in self._live.values():
            self._count(placement, 1)

    def _grown(self, at: int) -> int:
        """Returns the integral of the value of use up to this time. It is multiplied by twice the
        half-life, so that it is an integer.
        """
        half_lives, rest = divmod(at, _HALF_LIFE)
        area = (_HALF_LIFE + rest) ** 2 + 2 * _HALF_LIFE**2
        shift = half_lives - self._half_lives
        return area << shift if shift >= 0 else area >> -shift

    def _drop_the_least(self) -> None:
        if sum(len(users) for users in self._accounts.values()) > MOST_ACCOUNTS:
            accounts = [
                (used, band, user)
                for band, users in self._accounts.items()
                for user, used in users.items()
            ]
            accounts.sort(key=lambda each: (each[0], each[1].rank, each[2]))
            for _, band, user in accounts[:-MOST_ACCOUNTS]:
                del self._accounts[band][user]
        while len(self._given) > MOST_ACCOUNTS:
            del self._given[next(iter(self._given))]


def _milliseconds(at: datetime) -> int:
    return (at - EPOCH) // _MILLISECOND


def _since(placement: Placement) -> int:
    return _milliseconds(placement.placed_at) if placement.placed_at else 0
