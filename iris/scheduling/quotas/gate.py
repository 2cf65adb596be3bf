"""Keeps gangs that their quotas stop from having a turn in a scheduling pass.

A pass has two rounds of turns. In the first, gangs start within their nominal amounts, whatever
their band. In the second, the others borrow what is left. So nothing is lent that an owner could
use in the same pass. While a gang waits for what others have borrowed, nobody borrows more of it.
"""

from collections.abc import Callable
from enum import Enum, auto

from iris.model.job.requests import Request
from iris.scheduling.quotas.table import Pool
from iris.scheduling.quotas.use import QuotaUse, Verdict


class Stop(Enum):
    """What happens to a request that quotas stop, and to the later requests of the same line of the
    queue.
    """

    SKIP_LINE = auto()
    SET_ASIDE = auto()  # they have turns after all others, if `QuotaGate.begin_borrowing` allows it


class QuotaGate:
    """Decides for each turn of a pass whether quotas allow it.

    Args:
        use: the quota use of all placements. The gate adds the gangs that get hosts in the pass.
        reclaims: returns whether a gang that has to wait until borrowed amounts are given back
            could get hosts then; None if no gang waits for that.
        may_borrow: whether the pass has a second round, in which gangs borrow.
    """

    def __init__(
        self,
        use: QuotaUse,
        reclaims: Callable[[Request], bool] | None = None,
        *,
        may_borrow: bool = True,
    ) -> None:
        self._use = use
        self._reclaims = reclaims
        self._may_borrow = may_borrow and use.table.lends
        self._borrowing = False
        #: The pools of cohorts from which no gang may borrow any more in this pass, because a gang
        #: waits for amounts that its quota has lent.
        self.closed: set[Pool] = set()

    @property
    def is_single_round(self) -> bool:
        """Whether only gangs within their nominal amounts have turns, and nothing is reclaimed."""
        return not self._may_borrow and self._reclaims is None

    def may_start(self, request: Request) -> bool:
        """Returns whether the request is within the nominal amounts now. If it is not, it is not
        later in this pass, because the gate only counts more.
        """
        return self._use.verdict(request) is Verdict.FITS

    def stop(self, request: Request) -> Stop | None:
        """Returns what happens to a request that quotas stop; None if it has its turn."""
        verdict = self._use.verdict(request)
        if verdict is Verdict.FITS:
            return None
        if verdict is Verdict.BORROWS:
            if not self._borrowing:
                return Stop.SET_ASIDE
            is_closed = self.closed and not self.closed.isdisjoint(self._short_pools(request))
            return Stop.SKIP_LINE if is_closed else None
        if verdict is Verdict.RECLAIMS and self._reclaims is not None and self._reclaims(request):
            self.closed |= self._short_pools(request)
        return Stop.SKIP_LINE

    def take(self, request: Request) -> None:
        """Counts a request that gets hosts."""
        self._use.add(request)

    def begin_borrowing(self) -> bool:
        """Begins the round of those that borrow. Returns whether there is one."""
        self._borrowing = self._may_borrow
        return self._borrowing

    def _short_pools(self, request: Request) -> set[Pool]:
        """Returns the pools of cohorts that the request needs more of than its quotas have left."""
        accounts = self._use.table.accounts
        return {
            (cohort, each.resource)
            for each in self._use.shortages(request)
            if (cohort := accounts[each.account].cohort) is not None
        }
