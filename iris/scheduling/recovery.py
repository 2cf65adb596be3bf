"""Rebuilds the ledger of a scheduler that has lost it, from what slices and gangs report."""

from collections.abc import Iterable
from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from iris.model.hosts import ClosedBy, Closure, Host
from iris.model.requests import Placement, Request
from iris.scheduling.ledger import Ledger


class RollPage(BaseModel):
    """A page of the cluster's workflows that are asked to report."""

    model_config = ConfigDict(frozen=True)

    cluster: str
    #: The end of the page before; empty for the first page.
    token: str = ""


class Claim(BaseModel):
    """The request or the placement that a gang reports: at most one of them is set."""

    model_config = ConfigDict(frozen=True)

    request: Request | None = None
    held: bool = False
    placement: Placement | None = None


class Roll(BaseModel):
    """A page of reports: the hosts of slices, and the claims of gangs."""

    model_config = ConfigDict(frozen=True)

    hosts: tuple[Host, ...] = ()
    #: The hosts whose slices are being drained, each with the reason: they take no new tasks.
    draining: dict[str, str] = Field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    #: The begin of the next page; empty when this is the last.
    token: str = ""


class Gathering:
    """Enters pages of reports into a ledger. Messages that arrive after a page was requested are newer than the page."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._heard: set[str] = set()
        #: The key of each owner in the ledger.
        self._claims: dict[str, str] = {}

    def heard(self, host_ids: Iterable[str]) -> None:
        """Records that a slice has sent a message about these hosts itself."""
        self._heard.update(host_ids)

    def ask(self) -> None:
        """Records that a page is requested."""
        self._heard.clear()

    def enter(self, roll: Roll, asked_at: datetime) -> int:
        """Enters a page that was requested at that time. Returns the number of hosts and claims in it."""
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
                self._ledger.forget(before)  # the gang gave the earlier one back before it reported this one
            self._claims[gang.owner] = gang.key
            if claim.placement is not None:
                self._ledger.adopt(claim.placement)
            elif claim.request is not None:
                self._ledger.ask(claim.request)
            self._ledger.amend(gang.key, gang.band, held=claim.held and claim.placement is None, said_at=asked_at)
        return len(roll.hosts) + len(roll.claims)
