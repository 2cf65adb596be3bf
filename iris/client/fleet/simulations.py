"""Publishes reports of simulations in the cluster's store, and reads them again."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from iris.client.connect.identity import current_user
from iris.client.connect.rpc import Connection
from iris.client.fleet.cluster_store import store_of
from iris.client.logs.follow import reading_from
from iris.concurrency import for_each
from iris.model import names, store_paths
from iris.model.errors import IrisError, NotFound, Unreachable, first_line
from iris.simulation.report.document import Report
from iris.simulation.report.stored import (
    MOST_BYTES,
    MOST_HEADING,
    Heading,
    StoredReport,
    from_bytes,
    heading_in,
    to_bytes,
)
from iris.storage.garbage import Stored
from iris.storage.object_store import STORE_ERRORS, Store

#: The maximum number of stored reports that a list considers. A job that can write to the store may
#: write any number of them.
_MOST_LISTED = 10_000
#: The number of objects that are read at the same time.
_AT_ONCE = 16


@dataclass(frozen=True)
class PublishedSimulation:
    """A report of a simulation that is kept in the cluster's store.

    Args:
        heading: the report's heading; None if this version of Iris cannot read the report.
    """

    name: str
    heading: Heading | None


class SimulationsClient:
    """Publishes, lists and reads reports of simulations."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def check(self, name: str) -> None:
        """Raises if no report of this name can be published. Changes nothing.

        Args:
            name: the name of the report.

        Raises:
            InvalidValue: it cannot have this name.
            Rejected: the cluster has no store.
            Unreachable, IrisError: the store does not answer.
        """
        await self._is_published(self._store(), names.check_name("publish", name))

    async def publish(self, name: str, report: Report) -> bool:
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
        store = self._store()
        replaces = await self._is_published(store, names.check_name("publish", name))
        try:
            content = to_bytes(report, current_user(), datetime.now(UTC))
        except ValueError as error:
            raise IrisError(f"{error}; simulate fewer jobs") from None
        try:
            await store.put(store_paths.simulation_report(self._cluster, name), content)
        except STORE_ERRORS as error:
            raise Unreachable(
                f"the report cannot be written to the store {store.url}: {first_line(error)}"
            ) from None
        return replaces

    async def list(self, limit: int = 100) -> list[PublishedSimulation]:
        """Returns the published reports, the newest first.

        Args:
            limit: the most reports.

        Raises:
            Rejected: the cluster has no store.
            Unreachable, IrisError: the store does not answer.
        """
        store = self._store()
        with reading_from(store, "the list of simulations"):
            folder = store_paths.simulation_reports(self._cluster)
            stored = await store.stored(folder, _MOST_LISTED)
            newest = sorted(stored, key=lambda each: each.modified, reverse=True)
            named = [
                (name, each)
                for each in newest
                if (name := store_paths.name_of_simulation(self._cluster, each.path)) is not None
            ]
            return await for_each(named[:limit], partial(_headed, store), at_once=_AT_ONCE)

    async def show(self, name: str) -> StoredReport:
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
        path = store_paths.simulation_report(self._cluster, names.check_name("simulation", name))
        store = self._store()
        with reading_from(store, f"the simulation {name}"):
            content = await store.get(path, most=MOST_BYTES)
        if content is None:
            raise NotFound(f"there is no simulation {name}; it may have been deleted")
        found = await asyncio.to_thread(from_bytes, content)
        if found is None:
            raise IrisError(
                f"the simulation {name} cannot be read; another version of Iris may have written it"
            )
        return found

    def page(self, name: str) -> str:
        """Returns the address of a report in the dashboard. Returns an empty text if the cluster
        has no dashboard that this machine reaches.

        Args:
            name: the name of the report.
        """
        address = self._connection.record.dashboard
        return f"{address}/simulations/{name}" if address else ""

    @property
    def _cluster(self) -> str:
        return self._connection.record.name

    def _store(self) -> Store:
        return store_of(self._connection, "it keeps no simulations")

    async def _is_published(self, store: Store, name: str) -> bool:
        with reading_from(store, f"the simulation {name}"):
            path = store_paths.simulation_report(self._cluster, name)
            return await store.modified(path) is not None


async def _headed(store: Store, found: tuple[str, Stored]) -> PublishedSimulation:
    name, stored = found
    content = await store.head(stored.path, MOST_HEADING) if stored.size else None
    return PublishedSimulation(name, heading_in(content or b""))
