"""Operations on published reports of simulations.

`scripts/make-blocking.py` writes this module. Change the asynchronous classes, and run it again.
"""

# mypy: disable-error-code=no-any-return
from __future__ import annotations

from typing import TYPE_CHECKING

from iris.client.blocking.event_loop import Blocking

if TYPE_CHECKING:
    import builtins

    from iris.client.fleet.simulations import (
        PublishedSimulation,
    )
    from iris.simulation.report.document import Report
    from iris.simulation.report.stored import (
        StoredReport,
    )


class Simulations(Blocking):
    """Publishes, lists and reads reports of simulations."""

    def check(self, name: str) -> None:
        """Raises if no report of this name can be published. Changes nothing.

        Args:
            name: the name of the report.

        Raises:
            InvalidValue: it cannot have this name.
            Rejected: the cluster has no store.
            Unreachable, IrisError: the store does not answer.
        """
        self._loop.run(self._asynchronous.check(name))

    def publish(self, name: str, report: Report) -> bool:
        """Keeps a report in the cluster's store, where the dashboard shows it. Returns whether it
        replaces an earlier report of this name.

        Args:
            name: the name of the report.
            report: the report, from `iris.simulation.report.document.report_of`. If it is too
                large, it loses its largest pictures.

        Raises:
            InvalidValue: it cannot have this name.
            Rejected: the cluster has no store.
            Unreachable, IrisError: the store does not answer, or the report is too large.
        """
        return self._loop.run(self._asynchronous.publish(name, report))

    def list(self, limit: int = 100) -> builtins.list[PublishedSimulation]:
        """Returns the published reports, the newest first.

        Args:
            limit: the most reports.

        Raises:
            Rejected: the cluster has no store.
            Unreachable, IrisError: the store does not answer.
        """
        return self._loop.run(self._asynchronous.list(limit))

    def show(self, name: str) -> StoredReport:
        """Returns a published report.

        Args:
            name: the name of the report.

        Raises:
            InvalidValue: no report can have this name.
            NotFound: there is none of this name.
            Rejected: the cluster has no store.
            Unreachable, IrisError: the store does not answer, or this version cannot read the
                report.
        """
        return self._loop.run(self._asynchronous.show(name))

    def page(self, name: str) -> str:
        """Returns the address of a report in the dashboard. Returns an empty text if the cluster
        has no dashboard that this machine reaches.

        Args:
            name: the name of the report.
        """
        return self._asynchronous.page(name)
