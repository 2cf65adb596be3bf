"""The result of a scheduling pass of the ledger."""

from datetime import datetime
from typing import NamedTuple

from iris.model.job.requests import Placement
from iris.scheduling.placement.preemption import Eviction


class Settled(NamedTuple):
    """The result of one scheduling pass."""

    placed: list[Placement]
    evicted: list[Eviction]
    #: True if another pass is due at once: this pass stopped at its limit, or resources became free
    #: after its round began (`Ledger.passed_over` explains rounds).
    stopped: bool
    #: When to search again for victims (gangs to evict); None if no search is due. A search is due
    #: if the last one did not examine all waiting requests, or when the first of the gangs that are
    #: still too young to be evicted has run for `Rules.min_run_time`.
    again_at: datetime | None
