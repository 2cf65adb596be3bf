"""How many of the waiting gangs quotas allow to start. The autoscaler buys slices for no others."""

from iris.model.job.requests import Request, Shape
from iris.model.job.spec import Band
from iris.scheduling.placement.queue import Queue
from iris.scheduling.quotas.use import QuotaUse

#: For each shape: the number of waiting gangs that quotas allow to start, and the first of these
#: gangs.
Allowed = dict[Shape, tuple[int, Request]]


class AllowedDemand:
    """The cached result of `allowed_demand`. It is computed once for each state of the queue and
    the quotas, because a scheduler needs it after each pass, and twice for each answer to the
    autoscaler.
    """

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._found: Allowed = {}

    def of(self, waiting: Queue, use: QuotaUse) -> Allowed:
        """Returns the demand, which the caller must not change."""
        state = (waiting, waiting.changes, use, use.changes)
        if state != self._of:
            self._of, self._found = state, allowed_demand(waiting, use)
        return self._found


def allowed_demand(waiting: Queue, use: QuotaUse) -> Allowed:
    """Returns for each shape the number of waiting gangs that could start if all hosts were free,
    and the first of them.

    As in a pass, gangs within their nominal amounts come before those that borrow. Gangs count
    whose nominal amounts are lent out: they get them back.
    """
    use = use.copy()
    found: Allowed = {}
    rest: list[tuple[Request, int]] = []
    lines = [each for band in Band for each in waiting.heads(band)]
    for borrowing in (False, True) if use.table.lends else (False,):
        for first, count in rest if borrowing else lines:
            allowed = min(count, use.room(first, borrowing=borrowing))
            if allowed:
                use.add(first, allowed)
                before = found.get(first.shape)
                found[first.shape] = (
                    (before[0] + allowed, before[1]) if before else (allowed, first)
                )
            if not borrowing and allowed < count:
                rest.append((first, count - allowed))
    return found
