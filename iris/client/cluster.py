"""Operations on a cluster as a whole: its state, pauses, its configuration and unused files."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from iris.client.connect.identity import signed
from iris.client.connect.rpc import Connection
from iris.messages.fleet_views import Holdings, QueuePage, QueueView
from iris.messages.scheduler import Configure, Pause, Resume, Snapshot, SnapshotPage, Totals
from iris.model.errors import NotFound, Rejected, Unreachable
from iris.model.job.spec import Band
from iris.model.rules import Rules

if TYPE_CHECKING:
    from iris.config import ClusterConfig
    from iris.storage.garbage import UnusedFolder


class ClusterClient:
    """Shows, pauses and configures one cluster, and deletes its unused files."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self._connection.record.name

    @property
    def address(self) -> str:
        """The address of the cluster's Temporal service: `HOST:PORT`."""
        return self._connection.record.address

    async def status(self) -> Snapshot:
        """Returns the scheduler's counts, pauses and rules. The result lists no hosts.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self._connection.query(
            self._connection.scheduler, "snapshot", Snapshot, SnapshotPage(limit=0)
        )

    async def totals(self) -> Totals:
        """Returns the numbers of waiting gangs by band and reason, of running and held gangs by
        band, and of hosts by group.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self._connection.query(self._connection.scheduler, "totals", Totals)

    async def holdings(self) -> Holdings:
        """Returns what the hosts offer and what runs on them, by scale group and by user, and the
        idle slices.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self._connection.query(self._connection.scheduler, "holdings", Holdings)

    async def queue(
        self, band: Band | None = None, *, held: bool = False, offset: int = 0, limit: int = 100
    ) -> QueueView:
        """Returns a page of the waiting gangs, in the order in which they would be served if all of
        them fitted, with the reasons why they wait.

        Args:
            band: only the gangs of this band. None is all bands.
            held: whether to list the gangs on hold, the oldest first, instead of the waiting ones.
            offset: the number of gangs before the page.
            limit: the most gangs on the page, at most 500. A page can have fewer.

        Raises:
            Unreachable: no control plane answers.
        """
        page = QueuePage(band=band, held=held, offset=offset, limit=limit)
        return await self._connection.query(self._connection.scheduler, "queue", QueueView, page)

    async def pause(self, reason: str = "", group: str | None = None) -> None:
        """Stops new placements in the whole cluster or in one scale group. Running tasks continue.

        Args:
            reason: a text for the people who look at the cluster.
            group: the scale group. None is the whole cluster.

        Raises:
            NotFound: no host belongs to this group.
            Unreachable: no control plane answers.
        """
        try:
            await self._connection.update_scheduler(Pause(reason=signed(reason), group=group))
        except Rejected as error:  # the scheduler refuses only an unknown group
            raise NotFound(str(error)) from None

    async def resume(self, group: str | None = None) -> None:
        """Allows new placements again.

        Args:
            group: the scale group. None is the whole cluster.

        Raises:
            Rejected: that group is not paused.
            Unreachable: no control plane answers.
        """
        await self._connection.update_scheduler(Resume(group=group))

    async def reload(self, config: "ClusterConfig") -> None:
        """Applies another configuration to the scheduler and the autoscaler.

        Args:
            config: a configuration of the same cluster, from `iris.load_config`.

        Raises:
            Unreachable: the service does not answer.
        """
        # This imports the whole configuration, which few commands need.
        from iris.client.fleet.configure import configure_planners

        with self._connection.rpc_errors():
            await configure_planners(self._connection.client, self._connection.record.name, config)

    async def set_rules(self, rules: Rules) -> None:
        """Replaces the scheduling rules.

        Args:
            rules: all rules. `status().rules` has the present ones.

        Raises:
            Unreachable: no control plane answers.
        """
        await self._connection.update_scheduler(Configure(rules=rules))

    async def find_unused(self, older_than: timedelta) -> "list[UnusedFolder]":
        """Returns the folders of ended jobs in the store, such as logs and checkpoints.

        Args:
            older_than: the minimum age of the files, at least a day. Bundles are at least three
                days old.

        Raises:
            InvalidValue: the age is too short.
            Rejected: the store has files of other clusters, whose jobs are not known here.
            Unreachable: the service does not answer.
            IrisError: the store does not answer.
        """
        # This imports the store, which few commands need.
        from iris.client.fleet.unused_files import find_unused

        return await find_unused(self._connection, older_than)

    async def delete_unused(self, folders: "Sequence[UnusedFolder]") -> "list[UnusedFolder]":
        """Deletes folders that `find_unused` returned, and returns the deleted ones.

        Keeps folders that were written again or are needed since.

        Args:
            folders: the folders to delete.

        Raises:
            Unreachable: the service does not answer.
            IrisError: the store does not answer.
        """
        from iris.client.fleet.unused_files import delete_unused

        return await delete_unused(self._connection, folders)

    async def check_exists(self) -> None:
        """Raises unless this service has the cluster. Another service or namespace has no workflow
        of the cluster's slices.

        Raises:
            Unreachable: the service does not answer, or does not have the cluster's autoscaler.
        """
        if not await self._connection.is_running(self._connection.autoscaler):
            record = self._connection.record
            raise Unreachable(
                f"the service at {record.address}, namespace {record.namespace}, has no cluster"
                f" {record.name}"
            )
