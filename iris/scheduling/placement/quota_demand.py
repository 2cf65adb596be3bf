"""How many of the waiting gangs quotas allow to start. The autoscaler buys slices for no others."""

from iris.model.job.requests import Request, Shape
from iris.model.job.spec import Band
from iris.scheduling.placement.queue import Queue
from iris.scheduling.quotas.use import QuotaUse


def allowed_demand(waiting: Queue, use: QuotaUse) -> dict[Shape, tuple[int, Request]]:
    """Returns for each shape the number of waiting gangs that could start if all hosts were free,
    and the first of them.

    As in a pass, gangs within their nominal amounts come before those that borrow. Gangs count
    whose nominal amounts are lent out: they get them back.
    """
    use = use.copy()
    found: dict[Shape, tuple[int, Request]] = {}
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
