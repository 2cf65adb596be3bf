"""Operations on hosts, slices, the autoscaler, the cluster, schedules and secrets.

`scripts/make-blocking.py` writes this module. Change the asynchronous classes, and run it again.
"""

# mypy: disable-error-code=no-any-return
from __future__ import annotations

from typing import TYPE_CHECKING

from iris.client.blocking.event_loop import Blocking
from iris.client.schedules.when import Overlap, When

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from iris.access.audit import Audit
    from iris.client.access.whoami import Caller
    from iris.client.fleet.slices import (
        SliceRow,
    )
    from iris.client.fleet.usage_trace import UsageTrace
    from iris.client.schedules.client import (
        ScheduleRow,
        ScheduleView,
    )
    from iris.client.secrets.named import NamedSecret
    from iris.config import ClusterConfig
    from iris.messages.autoscaler import AutoscalerStatus
    from iris.messages.fleet_views import Holdings, QueueView
    from iris.messages.quotas import QuotaList
    from iris.messages.scheduler import (
        HostView,
        Snapshot,
        Totals,
    )
    from iris.model.job.spec import Band, JobSpec
    from iris.model.rules import Rules
    from iris.model.slice.status import SliceStatus
    from iris.storage.garbage import UnusedFolder
    from iris.usage.report import UsageReport


class Hosts(Blocking):
    """Lists, cordons and drains the hosts of one cluster."""

    def cordon(self, host: str, reason: str = "") -> None:
        """Closes a host to new work. Its running tasks continue.

        Args:
            host: the id of the host.
            reason: a text for the people who look at the host.

        Raises:
            NotFound: there is no such host.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._asynchronous.cordon(host, reason))

    def uncordon(self, host: str) -> None:
        """Opens a host to new work, even after a drain or a quarantine.

        Cancels a scheduled eviction.

        Args:
            host: the id of the host.

        Raises:
            NotFound: there is no such host.
            Rejected: its agent reports a fault of the machine. The quarantine ends with the fault.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._asynchronous.uncordon(host))

    def drain(self, host: str, reason: str = "", deadline: timedelta | None = None) -> str:
        """Closes a host to new work and evicts its tasks.

        The tasks get their grace period and return to the queue.

        Args:
            host: the id of the host.
            reason: a text for the people who look at the host.
            deadline: the time that running tasks have to end. None evicts them at once.

        Returns:
            A message for the user.

        Raises:
            NotFound: there is no such host.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.drain(host, reason, deadline))

    def show(self, host: str) -> HostView:
        """Returns one host.

        Args:
            host: the id of the host.

        Raises:
            NotFound: there is no such host.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.show(host))

    def list(self) -> builtins.list[HostView]:
        """Lists the hosts by id, with their free resources and their tasks.

        Raises:
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.list())


class Slices(Blocking):
    """Lists, drains and deletes the slices of one cluster."""

    def show(self, prefix: str) -> SliceStatus:
        """Returns a slice. Also finds ended slices that the service still knows.

        Args:
            prefix: the id of the slice, or a beginning of it that no other id has.

        Raises:
            NotFound: no slice or several slices match.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.show(prefix))

    def drain(
        self, prefix: str, reason: str = "", deadline: datetime | None = None
    ) -> tuple[str, str]:
        """Places no new tasks on a slice, and deletes it when its tasks have ended.

        Args:
            prefix: as for `show`.
            reason: a text for the people who look at the slice.
            deadline: the time at which running tasks are stopped, with their grace period. None
                waits until they end.

        Returns:
            The id of the slice, and its state as the rest of a sentence: `is being drained`, `is
            being deleted` or `is DELETED already`.

        Raises:
            NotFound: there is no such slice.
            Rejected: the slice joined by itself, so it cannot be deleted; or it has just ended.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.drain(prefix, reason, deadline))

    def delete(self, prefix: str, reason: str = "") -> tuple[str, str]:
        """Deletes a slice now, after the grace period of its tasks.

        Args:
            prefix: as for `show`.
            reason: a text for the people who look at the slice.

        Returns:
            The id of the slice and its state, as `drain` returns them.

        Raises:
            NotFound: there is no such slice.
            Rejected: the slice joined by itself, so it cannot be deleted; or it has just ended.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.delete(prefix, reason))

    def list(self) -> builtins.list[SliceRow]:
        """Lists all slices by id, including slices that joined by themselves.

        Raises:
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.list())

    def listed(self) -> Sequence[SliceRow]:
        """Lists all slices by id, without zones and reasons.

        Asks only the service, so it works while no control plane answers.

        Raises:
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.listed())


class Autoscaler(Blocking):
    """Shows, pauses and resumes the autoscaler of one cluster."""

    def status(self) -> AutoscalerStatus:
        """Returns the state of the autoscaler: its groups, its slices and its last decisions.

        Raises:
            Unreachable: no control plane answers, or no control plane has ever started.
        """
        return self._loop.run(self._asynchronous.status())

    def pause(self, reason: str = "") -> None:
        """Stops the autoscaler from requesting and deleting slices.

        Args:
            reason: a text for the people who look at the autoscaler.

        Raises:
            Unreachable: the service does not answer.
        """
        self._loop.run(self._asynchronous.pause(reason))

    def resume(self) -> None:
        """Lets the autoscaler request and delete slices again.

        Raises:
            Unreachable: the service does not answer.
        """
        self._loop.run(self._asynchronous.resume())


class Cluster(Blocking):
    """Shows, pauses and configures one cluster, reports and exports its resource use, and deletes
    its unused files."""

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self._asynchronous.name

    @property
    def address(self) -> str:
        """The address of the cluster's Temporal service: `HOST:PORT`."""
        return self._asynchronous.address

    def whoami(self) -> Caller:
        """Returns who the cluster's Temporal servers take this program for.

        Raises:
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.whoami())

    def status(self) -> Snapshot:
        """Returns the scheduler's counts, pauses and rules. The result lists no hosts.

        Raises:
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.status())

    def totals(self) -> Totals:
        """Returns the numbers of waiting gangs by band and reason, of running and held gangs by
        band, and of hosts by group.

        Raises:
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.totals())

    def usage(
        self,
        by: Sequence[str] = ("user",),
        *,
        since: datetime | timedelta | None = None,
        until: datetime | None = None,
        user: str = "",
        group: str = "",
    ) -> UsageReport:
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
        return self._loop.run(
            self._asynchronous.usage(by, since=since, until=until, user=user, group=group)
        )

    def usage_trace(
        self,
        *,
        since: datetime | timedelta | None = None,
        until: datetime | None = None,
        names: bool = False,
    ) -> UsageTrace:
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
        return self._loop.run(self._asynchronous.usage_trace(since=since, until=until, names=names))

    def audit(
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
        return self._loop.run(
            self._asynchronous.audit(since=since, until=until, user=user, job=job, refused=refused)
        )

    def holdings(self) -> Holdings:
        """Returns what the hosts offer and what runs on them, by scale group and by user, and the
        idle slices.

        Raises:
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.holdings())

    def quotas(self, user: str = "") -> QuotaList:
        """Returns the quotas and named limits with what is used, borrowed and lent of them.

        Args:
            user: only the quotas that cover all jobs of this user; empty for all quotas.

        Raises:
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.quotas(user))

    def queue(
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
        return self._loop.run(self._asynchronous.queue(band, held=held, offset=offset, limit=limit))

    def pause(self, reason: str = "", group: str | None = None) -> None:
        """Stops new placements in the whole cluster or in one scale group. Running tasks continue.

        Args:
            reason: a text for the people who look at the cluster.
            group: the scale group. None is the whole cluster.

        Raises:
            NotFound: no host belongs to this group.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._asynchronous.pause(reason, group))

    def resume(self, group: str | None = None) -> None:
        """Allows new placements again.

        Args:
            group: the scale group. None is the whole cluster.

        Raises:
            Rejected: that group is not paused.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._asynchronous.resume(group))

    def reload(self, config: ClusterConfig) -> None:
        """Applies another configuration to the scheduler and the autoscaler.

        Args:
            config: a configuration of the same cluster, from `iris.load_config`.

        Raises:
            Unreachable: the service does not answer.
        """
        self._loop.run(self._asynchronous.reload(config))

    def set_rules(self, rules: Rules) -> None:
        """Replaces the scheduling rules.

        Args:
            rules: all rules. `status().rules` has the present ones.

        Raises:
            Unreachable: no control plane answers.
        """
        self._loop.run(self._asynchronous.set_rules(rules))

    def find_unused(self, older_than: timedelta) -> list[UnusedFolder]:
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
        return self._loop.run(self._asynchronous.find_unused(older_than))

    def delete_unused(self, folders: Sequence[UnusedFolder]) -> list[UnusedFolder]:
        """Deletes folders that `find_unused` returned, and returns the deleted ones.

        Keeps folders that were written again or are needed since.

        Args:
            folders: the folders to delete.

        Raises:
            Unreachable: the service does not answer.
            IrisError: the store does not answer.
        """
        return self._loop.run(self._asynchronous.delete_unused(folders))


class Schedules(Blocking):
    """Creates, lists, pauses, triggers and deletes the schedules of one cluster."""

    def create(
        self, spec: JobSpec, when: When, *, overlap: Overlap = Overlap.SKIP, paused: bool = False
    ) -> ScheduleRow:
        """Creates a schedule that starts the job again and again. It has the name of the job.

        `IrisClient.schedule` also makes the job.

        Args:
            spec: the job, whose files are in the store.
            when: the times.
            overlap: what happens at a time at which the job of the time before has not ended.
            paused: starts no runs until `resume`.

        Raises:
            InvalidValue: the service does not understand the times, all of them are in the past, or
                the job demands too much.
            Rejected: there is a schedule of this name.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.create(spec, when, overlap=overlap, paused=paused))

    def list(self) -> Sequence[ScheduleRow]:
        """Returns the cluster's schedules in the order of their ids.

        Raises:
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.list())

    def show(self, name: str) -> ScheduleView:
        """Returns a schedule with its last runs.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            Rejected: the schedule is another user's.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.show(name))

    def pause(self, name: str, note: str = "") -> str:
        """Pauses the schedule, and returns its id. It starts no runs until `resume`. A run that has
        started continues.

        Args:
            name: `NAME` or `USER/NAME`.
            note: why, for the people who look at the schedule.

        Raises:
            NotFound: there is no such schedule.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.pause(name, note))

    def resume(self, name: str) -> str:
        """Ends a pause, and returns the schedule's id. Iris starts no runs for times that
        have passed.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.resume(name))

    def trigger(self, name: str) -> str:
        """Starts a run now, even if the schedule is paused, and returns the job's id.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            Rejected: the run before has not ended, and the schedule skips such times.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.trigger(name))

    def delete(self, name: str) -> str:
        """Deletes a schedule and its secrets, and returns its id. A run that has started continues.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            IrisError: the store does not answer, so the sealed secrets stay in it.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.delete(name))


class Secrets(Blocking):
    """The named secrets of the current user on one cluster."""

    def set(self, name: str, value: str | bytes) -> NamedSecret:
        """Sets a secret for jobs of the current user: `secret=["NAME"]`. Replaces its earlier
        value.

        The value is sealed on this machine. A program gets the value that is set when its attempt
        starts.

        Args:
            value: at most 64 KiB. A line end at its end is left out.

        Raises:
            InvalidValue: a variable cannot have this name or value.
            Rejected: the cluster has no key for secrets.
            IrisError: the store does not answer.
        """
        return self._loop.run(self._asynchronous.set(name, value))

    def list(self) -> builtins.list[NamedSecret]:
        """Returns the secrets of the current user in the order of their names, without values.

        Raises:
            IrisError: the store does not answer.
        """
        return self._loop.run(self._asynchronous.list())

    def remove(self, name: str) -> None:
        """Deletes a secret of the current user. Running programs keep its value; attempts that
        start later fail.

        Raises:
            InvalidValue: a secret cannot have this name.
            NotFound: there is no such secret.
            IrisError: the store does not answer.
        """
        self._loop.run(self._asynchronous.remove(name))
