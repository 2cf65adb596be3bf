"""Which quotas cover a gang: the accounts that its amounts are counted in."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from iris.model.job.requests import Placement, Request
from iris.model.job.spec import Band
from iris.model.quotas import EACH_USER, NAMED, QuotaRule, QuotaRules, team_of_users
from iris.scheduling.quotas.amounts import amounts_of

#: The name of the account for the named limits of the cluster. It counts all gangs that take named
#: limits.
CLUSTER = ""
#: The limit on entries in the cache of the bounds (`Bound`) of gangs. It is larger than the number
#: of kinds of requests that may wait in the ledger (`iris.scheduling.ledger.size.MOST_KINDS`).
MOST_REMEMBERED = 50_000
#: The number of an account, and a resource of which the account has a nominal amount.
Bounded = tuple[int, str]
#: A pool of lent amounts: the name of a cohort, and a resource.
Pool = tuple[str, str]
_Covered = tuple[str, Band, tuple[str, ...], bool]


class Account(NamedTuple):
    """A quota of one holder. A quota that the configuration gives to each user has one account for
    each user.
    """

    name: str
    #: The holder as messages name it, such as `team vision`.
    holder: str
    #: The bands whose gangs count; empty if gangs of all bands count.
    bands: tuple[Band, ...]
    nominal: Mapping[str, int]
    #: The part of each nominal amount that the account never lends, by resource.
    kept: Mapping[str, int]
    #: The most that the account may borrow, by resource. A resource that is not a key has no such
    #: limit.
    borrow: Mapping[str, int]
    #: The name of the cohort; None if the account neither lends nor borrows.
    cohort: str | None
    waiting: int | None = None
    #: The users whose gangs count; empty for a quota of a tag, and for the account `CLUSTER`.
    users: tuple[str, ...] = ()


class Bound(NamedTuple):
    """The amount of one resource that a gang takes from an account, and the account's limits on
    that resource.
    """

    of: Bounded
    amount: int
    nominal: int
    kept: int
    #: The pool of the account's cohort; None if the account neither lends nor borrows.
    pool: Pool | None
    #: The most that the account may borrow; None if there is no limit.
    borrow: int | None

    def most_ever(self, lent: Mapping[Pool, int]) -> int:
        """Returns the most that the account can ever hold.

        Args:
            lent: what all members of a cohort lend together.
        """
        if self.pool is None:
            return self.nominal
        most = self.kept + lent[self.pool]
        return most if self.borrow is None else min(most, self.nominal + self.borrow)


class QuotaTable:
    """The quotas of a cluster, with one account for each holder."""

    def __init__(self, rules: QuotaRules) -> None:
        self.rules = rules
        self.team_of = team_of_users(rules.teams)
        #: The keys of the tags for which there are quotas.
        self.tag_keys = frozenset(rule.tag.partition("=")[0] for rule in rules.quotas if rule.tag)
        self.accounts: list[Account] = [
            Account(
                CLUSTER,
                "the cluster",
                (),
                {NAMED + name: amount for name, amount in rules.limits.items()},
                {},
                {},
                None,
            )
        ]
        self._rules = [rule for rule in rules.quotas if rule.user != EACH_USER]
        self._of_each = [rule for rule in rules.quotas if rule.user == EACH_USER]
        self.accounts += [
            _account(
                rule, rule.holder, rules.teams.get(rule.team, (rule.user,) if rule.user else ())
            )
            for rule in self._rules
        ]
        self._bounds_waiting = any(rule.waiting is not None for rule in rules.quotas)
        #: For quotas that each user has: the number of the user's account, by quota and user.
        self._own: dict[tuple[str, str], int] = {}
        self._covering: dict[_Covered, tuple[int, ...]] = {}
        self._bounds: dict[tuple[object, ...], tuple[Bound, ...]] = {}
        #: The limits of each account (by its number), by resource. `Bound.amount` is 0 here:
        #: `bounds` makes copies with the amounts that a gang takes.
        self._limits: dict[int, Mapping[str, Bound]] = {}
        #: The amount that all accounts of a cohort lend together, by pool.
        self.lent: dict[Pool, int] = {}
        for account in self.accounts:
            for resource, amount in account.nominal.items() if account.cohort is not None else ():
                pool = (account.cohort or "", resource)
                free = amount - account.kept.get(resource, 0)
                self.lent[pool] = self.lent.get(pool, 0) + free

    @property
    def lends(self) -> bool:
        """Whether any quota lends or borrows."""
        return bool(self.lent)

    def covering(self, gang: Request | Placement) -> tuple[int, ...]:
        """Returns the numbers of the accounts that count the gang."""
        key = (gang.user, gang.band, gang.claim.tags, bool(gang.claim.limits))
        found = self._covering.get(key)
        if found is None:
            found = self._covering[key] = self._find(*key)
        return found

    def bounds(self, gang: Request | Placement) -> tuple[Bound, ...]:
        """Returns what bounds the gang, account by account."""
        kind = (
            gang.shape
            if isinstance(gang, Request)
            else (gang.resources.kind, gang.resources.vector, len(gang.seats))
        )
        key = (kind, gang.user, gang.band, gang.claim)
        found = self._bounds.get(key)
        if found is None:
            if len(self._bounds) >= MOST_REMEMBERED:
                self._bounds.clear()
            amounts = amounts_of(gang)
            found = self._bounds[key] = tuple(
                Bound(none.of, amount, *none[2:])
                for limits in map(self._limits_of, self.covering(gang))
                for resource, amount in amounts.items()
                if (none := limits.get(resource)) is not None
            )
        return found

    def _limits_of(self, number: int) -> Mapping[str, Bound]:
        """Returns what an account may hold, by resource."""
        if number not in self._limits:
            nominal = self.accounts[number].nominal
            self._limits[number] = {each: self.bound(number, each) for each in nominal}
        return self._limits[number]

    def bound(self, number: int, resource: str, amount: int = 0) -> Bound:
        """Returns what an account may hold of a resource.

        Args:
            amount: what a gang counts of it.
        """
        account = self.accounts[number]
        return Bound(
            (number, resource),
            amount,
            account.nominal[resource],
            account.kept.get(resource, 0),
            (account.cohort, resource) if account.cohort is not None else None,
            account.borrow.get(resource),
        )

    def waiting_of(self, user: str) -> Iterable[Account]:
        """Returns the accounts that bound how many jobs of the user, or of the team, may wait."""
        if not self._bounds_waiting:
            return ()
        numbers = {number for band in Band for number in self._find(user, band, (), False)}
        found = (self.accounts[number] for number in sorted(numbers))
        return [account for account in found if account.waiting is not None]

    def knows(self, request: Request) -> bool:
        """Returns whether the cluster has all named limits that the request takes."""
        limits = request.claim.limits
        return not limits or all(name in self.rules.limits for name, _ in limits)

    def _find(self, user: str, band: Band, tags: tuple[str, ...], limited: bool) -> tuple[int, ...]:
        team = self.team_of.get(user)
        found = [
            number
            for number, rule in enumerate(self._rules, 1)
            if (not rule.bands or band in rule.bands)
            and (
                (rule.user and rule.user == user)
                or (rule.team and rule.team == team)
                or (rule.tag and rule.tag in tags)
            )
        ]
        own = [
            self._own_account(rule, user)
            for rule in self._of_each
            if not rule.bands or band in rule.bands
        ]
        return (*([0] if limited else []), *found, *own)

    def _own_account(self, rule: QuotaRule, user: str) -> int:
        key = (rule.name, user)
        if key not in self._own:
            self._own[key] = len(self.accounts)
            self.accounts.append(_account(rule, f"user {user}", (user,)))
        return self._own[key]


def _account(rule: QuotaRule, holder: str, users: tuple[str, ...]) -> Account:
    kept = {
        resource: max(0, amount - rule.lend.get(resource, amount))
        for resource, amount in rule.nominal.items()
    }
    return Account(
        rule.name,
        holder,
        rule.bands,
        rule.nominal,
        kept,
        rule.borrow,
        rule.cohort or None,
        rule.waiting,
        users,
    )
