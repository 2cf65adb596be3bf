"""The roll of a cluster: what a scheduler that has lost its book is told by slices and gangs."""

from collections.abc import Iterable
from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from iris.gangs import Placement, Request
from iris.hosts import ClosedBy, Closure, Host
from iris.ledger import Ledger


class RollPage(BaseModel):
    """Which part of a cluster's workflows to ask."""

    model_config = ConfigDict(frozen=True)

    cluster: str
    #: Where the part before ended; empty for the first.
    token: str = ""


class Claim(BaseModel):
    """What a gang waits for or holds: at most one of them."""

    model_config = ConfigDict(frozen=True)

    request: Request | None = None
    held: bool = False
    placement: Placement | None = None


class Roll(BaseModel):
    """What slices and gangs have and hold."""

    model_config = ConfigDict(frozen=True)

    hosts: tuple[Host, ...] = ()
    #: Those of them whose slices are being drained, and why: they take nothing new.
    draining: dict[str, str] = Field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    #: Where the next part begins; empty when this was the last.
    token: str = ""


class Gathering:
    """Enters the roll into a book. What was heard since a page was asked for is newer than what the page says."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._heard: set[str] = set()
        #: The key under which each owner is in the book.
        self._claims: dict[str, str] = {}

    def heard(self, host_ids: Iterable[str]) -> None:
        """A slice has said something of these hosts itself."""
        self._heard.update(host_ids)

    def ask(self) -> None:
        """A page is asked for."""
        self._heard.clear()

    def enter(self, roll: Roll, asked_at: datetime) -> int:
        """Write a page into the book that was asked for at that time; how many answered."""
        self._ledger.hosts_up(host for host in roll.hosts if host.id not in self._heard)
        for host_id, reason in roll.draining.items():
            if host_id not in self._heard:
                self._ledger.close(host_id, Closure(by=ClosedBy.DRAIN, reason=reason))
        for claim in roll.claims:
            gang = claim.placement or claim.request
            if gang is None:
                continue
            before = self._claims.get(gang.owner)
            if before is not None and before != gang.key:
                self._ledger.forget(before)  # it had been given back before it was asked about
            self._claims[gang.owner] = gang.key
            if claim.placement is not None:
                self._ledger.adopt(claim.placement)
            elif claim.request is not None:
                self._ledger.ask(claim.request)
            self._ledger.amend(gang.key, gang.band, held=claim.held and claim.placement is None, said_at=asked_at)
        return len(roll.hosts) + len(roll.claims)
