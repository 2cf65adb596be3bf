"""Decides which hosts are missing in the scheduler's ledger, and describes them for operators.

A slice becomes READY when the scheduler has its hosts. A host that is later missing in the ledger
gets no work, and no other check finds it: the check for silent hosts examines only hosts of the
ledger. A look at the ledger may happen between two messages, so two looks in a row must find the
host missing. Then operators see it, and its slice offers its hosts to the scheduler again.
"""

from collections.abc import Container, Iterable
from datetime import datetime

from iris.model.frozen import Frozen

#: A host counts as missing after this number of checks of the ledger in a row did not find it.
ALARM_LOOKS = 2


class MissingHost(Frozen):
    """A host of a READY slice that is not in the scheduler's ledger."""

    host_id: str
    incarnation: str
    slice_id: str
    #: The time of the first check in a row that did not find the host; None in the result of a
    #: single check.
    since: datetime | None = None
    #: The number of checks of the ledger in a row that did not find the host.
    looks: int = 1

    @property
    def is_alarm(self) -> bool:
        """Whether enough looks have found it missing."""
        return self.looks >= ALARM_LOOKS

    def problem(self, created: Container[str]) -> str:
        """Returns one line for operators: the host, since when it is missing, and the remedy.

        Args:
            created: the ids of the slices that Iris created. Iris can delete only their machines.
        """
        since = f", since {self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since is not None else ""
        remedy = (
            f"delete the slice: iris slice delete {self.slice_id}"
            if self.slice_id in created
            else "restart its agent"
        )
        where = f"host {self.host_id} of slice {self.slice_id}, which is READY"
        return (
            f"the scheduler does not have {where}{since}; the slice offers it again; if it lasts,"
            f" {remedy}"
        )


def still_missing(
    before: Iterable[MissingHost], found: Iterable[MissingHost], now: datetime
) -> tuple[MissingHost, ...]:
    """Returns the hosts that a look found missing, with the number of looks in a row.

    Args:
        before: the result of the look before.
        found: the missing hosts of this look.
    """
    known = {(each.host_id, each.incarnation): each for each in before}
    return tuple(
        (
            each.model_copy(update={"since": now})
            if (earlier := known.get((each.host_id, each.incarnation))) is None
            else earlier.model_copy(update={"looks": earlier.looks + 1})
        )
        for each in found
    )
