"""Rebuilds the ledger of a scheduler that has lost it, from reports of slices and gangs."""

from collections.abc import Iterable
from datetime import datetime

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.host.hosts import ClosedBy, Closure, Host
from iris.model.job.requests import Placement, Request
from iris.scheduling.ledger.ledger import Ledger


class RecoveryCursor(Frozen):
    """The position of a recovery in the list of the cluster's workflows. The recovery queries them
    page by page for the hosts, requests and placements that the lost ledger contained.
    """

    cluster: str
    #: Temporal's token for the position after the previous page; empty for the first page.
    token: str = ""


class GangReport(Frozen):
    """What the workflow of a gang reports to make a lost ledger again: the gang's request if it
    waits, or its placement if it has hosts. Neither is set if it has neither.
    """

    request: Request | None = None
    held: bool = False
    placement: Placement | None = None


class RecoveryPage(Frozen):
    """A page of reports: the hosts of slices, and the requests and placements of gangs."""

    hosts: tuple[Host, ...] = ()
    #: The hosts of slices that are being drained, each with the reason. They take no new tasks.
    draining: dict[str, str] = Field(default_factory=dict)
    #: The requests and placements of gangs.
    claims: tuple[GangReport, ...] = ()
    #: Temporal's token for the position after this page, where the next page begins; empty if this
    #: page is the last.
    token: str = ""


class LedgerRecovery:
    """Enters the pages of reports (`RecoveryPage`) into a ledger. A message that arrives after a
    page was requested is newer than the page, so it takes precedence over the page's report.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        #: The ids of hosts whose slices have sent a message since the current page was requested.
        #: The page's reports about these hosts are ignored, because they are older.
        self._newer: set[str] = set()
        #: The key of the request or placement of each owner in the ledger.
        self._keys: dict[str, str] = {}

    def received(self, host_ids: Iterable[str]) -> None:
        """Records that a slice has sent a message about these hosts."""
        self._newer.update(host_ids)

    def request_page(self) -> None:
        """Records that a page is requested."""
        self._newer.clear()

    def enter(self, page: RecoveryPage, requested_at: datetime) -> int:
        """Enters a page that was requested at that time. Returns the number of hosts and gangs in
        it.
        """
        self._ledger.hosts_up([host for host in page.hosts if host.id not in self._newer])
        for host_id, reason in page.draining.items():
            if host_id not in self._newer:
                self._ledger.close(host_id, Closure(by=ClosedBy.DRAIN, reason=reason))
        for report in page.claims:
            gang = report.placement or report.request
            if gang is None:
                continue
            before = self._keys.get(gang.owner)
            if before is not None and before != gang.key:
                # The gang released the earlier key before it reported this one.
                self._ledger.forget(before)
            self._keys[gang.owner] = gang.key
            if report.placement is not None:
                self._ledger.adopt(report.placement)
            elif report.request is not None:
                self._ledger.ask(report.request)
            held = report.held and report.placement is None
            self._ledger.amend(gang.key, gang.band, held=held, changed_at=requested_at)
        return len(page.hosts) + len(page.claims)
