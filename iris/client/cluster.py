"""Operations on a cluster as a whole: its state and use, pauses, its configuration and files."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from iris.access.audit import Audit, AuditQuestion
from iris.client import fleet
from iris.client.access.whoami import Caller, ask_who
from iris.client.connect.identity import full_job_id, signed
from iris.client.connect.rpc import Connection
from iris.messages.fleet_views import Holdings, QueuePage, QueueView
from iris.messages.quotas import QuotaList, QuotaQuestion
from iris.messages.scheduler import Configure, Pause, Resume, Snapshot, SnapshotPage, Totals
from iris.model.errors import NotAllowed, NotFound, Rejected, Unreachable
from iris.model.job.spec import Band
from iris.model.rules import Rules

if TYPE_CHECKING:
    from iris.client.fleet.usage_trace import UsageTrace
    from iris.config import ClusterConfig
    from iris.storage.garbage import UnusedFolder
    from iris.usage.report import UsageReport


class ClusterClient:
    """Shows, pauses and configures one cluster, reports and exports its resource use, and deletes
    its unused files.
    """

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

    async def whoami(self) -> Caller:
        """Returns who the cluster's Temporal servers take this program for.

        Raises:
            Unreachable: the service does not answer.
        """
        return await ask_who(self._connection)

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

    async def usage(
        self,
        by: Sequence[str] = ("user",),
        *,
        since: datetime | timedelta | None = None,
        until: datetime | None = None,
        user: str = "",
        group: str = "",
    ) -> "UsageReport":
        """Returns who used the cluster, for how long, and what it cost: hours of hosts, chips, GPUs
        and cores, money if the configuration has prices, and what no job used.

        Args:
            by: the keys of the rows: `user`, `team`, `job`, `group`, `band`, `day` or `tag:KEY`.
                Several keys make a row for each combination. Without keys there is one row.
            since: the begin of the time, or its length. None is seven days.
            until: the end of the time; None: now.
            user: only the jobs of this user; the result then does not contain unused machines.
            group: only the jobs and slices of this scale group.

        Raises:
            InvalidValue: a key is unknown, or the time is empty.
            Rejected: the cluster has no store, so its use is not recorded.
            Unreachable, IrisError: the store does not answer.
        """
        asked = fleet.usage_report.question(by, since, until, user=user, group=group)
        return await fleet.usage_report.usage_report(self._connection, asked)

    async def usage_trace(
        self,
        *,
        since: datetime | timedelta | None = None,
        until: datetime | None = None,
        names: bool = False,
    ) -> "UsageTrace":
        """Returns the workload of a time, for a simulation: when each task or gang asked for hosts,
        for which ones, and how long it ran; and the times of the slices. `iris usage --trace`
        writes it to a file.

        Args:
            since: the begin of the time, or its length. None is seven days.
            until: the end of the time; None: now.
            names: whether it has the names of users and jobs. Otherwise it has numbers.

        Raises:
            InvalidValue: the time is empty.
            Rejected: the cluster has no store, so its use is not recorded.
            Unreachable, IrisError: the store does not answer.
        """
        asked = fleet.usage_report.question((), since, until)
        return await fleet.usage_trace.usage_trace(self._connection, asked, names=names)

    async def audit(
        self,
        *,
        since: datetime | timedelta | None = None,
        until: datetime | None = None,
        user: str = "",
        job: str = "",
        refused: bool = False,
    ) -> Audit:
        """Returns who changed what on a cluster with identities, and which calls were refused.
        A change appears some ten seconds after it was made.

        Args:
            since: the begin of the time, or its length. None is one day.
            until: the end of the time; None: now.
            user: only the calls of this person.
            job: only the calls about this job, as `name` or `user/name`.
            refused: only refused calls.

        Raises:
            InvalidValue: the time is empty.
            Rejected: the cluster has no store.
            Unreachable, IrisError: the store does not answer.
        """
        store = fleet.cluster_store.store_of(self._connection, "it keeps no audit")
        begin, end = fleet.usage_report.time_of(since, until, fleet.audit.DEFAULT_TIME)
        asked = AuditQuestion(begin, end, user, full_job_id(job) if job else "", refused)
        return await fleet.audit.read_audit(store, self.name, asked)

    async def holdings(self) -> Holdings:
        """Returns what the hosts offer and what runs on them, by scale group and by user, and the
        idle slices.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self._connection.query(self._connection.scheduler, "holdings", Holdings)

    async def quotas(self, user: str = "") -> QuotaList:
        """Returns the quotas and named limits with what is used, borrowed and lent of them.

        Args:
            user: only the quotas that cover all jobs of this user; empty for all quotas.

        Raises:
            Unreachable: no control plane answers.
        """
        return await self._connection.query(
            self._connection.scheduler, "quotas", QuotaList, QuotaQuestion(user=user)
        )

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
        except NotAllowed:
            raise
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
        with self._connection.rpc_errors():
            await fleet.configure.configure_planners(
                self._connection.client, self._connection.record.name, config
            )

    async def set_rules(self, rules: Rules) -> None:
        """Replaces the scheduling rules.

        Args:
            rules: all rules. `status().rules` has the present ones.

        Raises:
            Unreachable: no control plane answers.
        """
        await self._connection.update_scheduler(Configure(rules=rules))

    async def find_unused(self, older_than: timedelta) -> "list[UnusedFolder]":
        """Returns the folders of ended jobs in the store, such as logs and checkpoints, and the
        published reports of simulations.

        Args:
            older_than: the minimum age of the files, at least a day. Bundles are at least three
                days old.

        Raises:
            InvalidValue: the age is too short.
            Rejected: the store has files of other clusters, whose jobs are not known here.
            Unreachable: the service does not answer.
            IrisError: the store does not answer.
        """
        return await fleet.unused_files.find_unused(self._connection, older_than)

    async def delete_unused(self, folders: "Sequence[UnusedFolder]") -> "list[UnusedFolder]":
        """Deletes folders that `find_unused` returned, and returns the deleted ones.

        Keeps folders that were written again or are needed since.

        Args:
            folders: the folders to delete.

        Raises:
            Unreachable: the service does not answer.
            IrisError: the store does not answer.
        """
        return await fleet.unused_files.delete_unused(self._connection, folders)

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
