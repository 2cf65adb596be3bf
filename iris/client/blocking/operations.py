"""The operations on hosts, slices, the autoscaler, the cluster, schedules and secrets, for programs
that are not asynchronous.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from iris.client.blocking.event_loop import BackgroundLoop
from iris.client.client import AsyncIrisClient
from iris.client.fleet.slices import SliceRow
from iris.client.schedules.client import ScheduleRow, ScheduleView
from iris.client.schedules.when import Overlap, When
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import HostView, Snapshot
from iris.model.job.spec import JobSpec
from iris.model.rules import Rules
from iris.model.slice.status import SliceStatus

if TYPE_CHECKING:
    from iris.client.secrets.named import NamedSecret
    from iris.config import ClusterConfig
    from iris.storage.garbage import UnusedFolder


class Hosts:
    """The hosts of a cluster, as `iris host`."""

    def __init__(self, client: AsyncIrisClient, loop: BackgroundLoop) -> None:
        self._hosts = client.hosts
        self._loop = loop

    def list(self) -> Sequence[HostView]:
        """Lists the hosts by id, with their free resources and their tasks.

        Raises:
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._hosts.list())

    def show(self, host: str) -> HostView:
        """Returns one host that takes work, or is closed to it.

        Args:
            host: its id.

        Raises:
            NotFound: there is no such host.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._hosts.show(host))

    def cordon(self, host: str, reason: str = "") -> None:
        """Closes a host to new work. Its running tasks continue.

        Args:
            host: its id.
            reason: for the people who look at the host.

        Raises:
            NotFound: there is no such host.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._hosts.cordon(host, reason))

    def uncordon(self, host: str) -> None:
        """Opens a host to new work, also after a drain or a quarantine.

        Cancels an eviction that is scheduled.

        Args:
            host: its id.

        Raises:
            NotFound: there is no such host.
            Rejected: its agent reports a fault of the machine, which ends the quarantine when it
                ends.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._hosts.uncordon(host))

    def drain(self, host: str, reason: str = "", deadline: timedelta | None = None) -> str:
        """Closes a host to new work and evicts its tasks.

        They get their grace period and return to the queue.

        Args:
            host: its id.
            reason: for the people who look at the host.
            deadline: for so long, its tasks may go on; None: they are evicted at once.

        Returns:
            What was done, as a message for the user.

        Raises:
            NotFound: there is no such host.
            Rejected: the host takes no new tasks, but the service cannot delay the eviction.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._hosts.drain(host, reason, deadline))


class Slices:
    """The slices of a cluster, as `iris slice`."""

    def __init__(self, client: AsyncIrisClient, loop: BackgroundLoop) -> None:
        self._slices = client.slices
        self._loop = loop

    def list(self) -> Sequence[SliceRow]:
        """Lists all slices by id, those that joined by themselves, too.

        Raises:
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._slices.list())

    def listed(self) -> Sequence[SliceRow]:
        """Lists all slices by id as the service has them, without zones and reasons.

        Asks no control plane.

        Raises:
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._slices.listed())

    def show(self, prefix: str) -> SliceStatus:
        """Returns a slice. Also finds ended slices that the service keeps.

        Args:
            prefix: its id, or the beginning of it, if no other slice has that.

        Raises:
            NotFound: no slice or several slices match.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._slices.show(prefix))

    def drain(
        self, prefix: str, reason: str = "", deadline: datetime | None = None
    ) -> tuple[str, str]:
        """Places nothing new on a slice, and deletes it when its tasks have ended.

        Args:
            prefix: its id, or the beginning of it.
            reason: for the people who look at the slice.
            deadline: when running tasks are stopped, after their grace period. None: they may run
                as long as they need.

        Returns:
            Its id, and its state as the rest of a sentence: `is being drained`, `is being deleted`
                or
            `is DELETED already`.

        Raises:
            NotFound: there is no such slice.
            Rejected: the slice joined by itself, so there is nothing to delete; or it has just
                ended.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._slices.drain(prefix, reason, deadline))

    def delete(self, prefix: str, reason: str = "") -> tuple[str, str]:
        """Deletes a slice now, after the grace period of its tasks.

        Args:
            prefix: its id, or the beginning of it.
            reason: for the people who look at the slice.

        Returns:
            Its id, and its state, as `drain`.

        Raises:
            NotFound: there is no such slice.
            Rejected: the slice joined by itself, so there is nothing to delete; or it has just
                ended.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._slices.delete(prefix, reason))


class Autoscaler:
    """The autoscaler of a cluster, as `iris autoscaler`."""

    def __init__(self, client: AsyncIrisClient, loop: BackgroundLoop) -> None:
        self._autoscaler = client.autoscaler
        self._loop = loop

    def status(self) -> AutoscalerStatus:
        """Returns what the autoscaler knows, has decided and is doing.

        Raises:
            Unreachable: no control plane answers, or none has ever started.
        """
        return self._loop.run(self._autoscaler.status())

    def pause(self, reason: str = "") -> None:
        """Stops the autoscaler from requesting and deleting slices.

        Args:
            reason: for the people who look at the autoscaler.

        Raises:
            Unreachable: the service does not answer.
        """
        self._loop.run(self._autoscaler.pause(reason))

    def resume(self) -> None:
        """Lets the autoscaler request and delete slices again.

        Raises:
            Unreachable: the service does not answer.
        """
        self._loop.run(self._autoscaler.resume())


class Cluster:
    """A cluster as a whole, as `iris cluster`.

    Attributes:
        name: the cluster's name.
        address: of its Temporal service, `HOST:PORT`.
    """

    def __init__(self, client: AsyncIrisClient, loop: BackgroundLoop) -> None:
        self._cluster = client.cluster
        self._loop = loop
        self.name = client.record.name
        self.address = client.record.address

    def status(self) -> Snapshot:
        """Returns the scheduler's counts, pauses and rules. The result lists no hosts.

        Raises:
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._cluster.status())

    def pause(self, reason: str = "", group: str | None = None) -> None:
        """Stops new placements in the whole cluster or in one scale group. Running tasks continue.

        Args:
            reason: for the people who look at the cluster.
            group: the scale group; None: the whole cluster.

        Raises:
            NotFound: no host belongs to such a group.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._cluster.pause(reason, group))

    def resume(self, group: str | None = None) -> None:
        """Allows new placements again.

        Args:
            group: the scale group; None: the whole cluster.

        Raises:
            Rejected: that group is not paused.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._cluster.resume(group))

    def reload(self, config: "ClusterConfig") -> None:
        """Applies another configuration to the scheduler and the autoscaler.

        Args:
            config: of the same cluster, from `iris.load_config`.

        Raises:
            Unreachable: the service does not answer.
        """
        self._loop.run(self._cluster.reload(config))

    def set_rules(self, rules: Rules) -> None:
        """Replaces the scheduling rules.

        Args:
            rules: all of them; `status().rules` has the present ones.

        Raises:
            Unreachable: no control plane answers.
        """
        self._loop.run(self._cluster.set_rules(rules))

    def find_unused(self, older_than: timedelta) -> "list[UnusedFolder]":
        """Returns what ended jobs have left in the store, such as logs and checkpoints.

        Args:
            older_than: at least a day. Bundles are at least three days old.

        Raises:
            InvalidValue: the age is too short.
            Rejected: the store has files of other clusters, whose jobs are not known here.
            Unreachable: the service does not answer.
            IrisError: the store does not answer.
        """
        return self._loop.run(self._cluster.find_unused(older_than))

    def delete_unused(self, folders: "Sequence[UnusedFolder]") -> "list[UnusedFolder]":
        """Deletes what `find_unused` has found, and returns what was deleted.

        What is young or needed since then stays.

        Args:
            folders: what to delete.

        Raises:
            Unreachable: the service does not answer.
            IrisError: the store does not answer.
        """
        return self._loop.run(self._cluster.delete_unused(folders))


class Schedules:
    """The schedules of a cluster, as `iris schedule`."""

    def __init__(self, client: AsyncIrisClient, loop: BackgroundLoop) -> None:
        self._schedules = client.schedules
        self._loop = loop

    def create(
        self, spec: JobSpec, when: When, *, overlap: Overlap = Overlap.SKIP, paused: bool = False
    ) -> ScheduleRow:
        """Creates a schedule that starts the job, and is named as the job is.

        `IrisClient.schedule` also makes the job.

        Args:
            spec: the job, whose files are in the store.
            when: the times.
            overlap: what happens at a time at which the job of the time before has not ended.
            paused: starts no runs until `resume`.

        Raises:
            InvalidValue: the service does not understand the times, or the job demands too much.
            Rejected: there is a schedule of this name.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._schedules.create(spec, when, overlap=overlap, paused=paused))

    def list(self) -> Sequence[ScheduleRow]:
        """Returns the cluster's schedules by their ids.

        Raises:
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._schedules.list())

    def show(self, name: str) -> ScheduleView:
        """Returns a schedule with its last runs.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._schedules.show(name))

    def pause(self, name: str, note: str = "") -> str:
        """Starts no more runs until `resume`, and returns the schedule's id.

        Args:
            name: `NAME` or `USER/NAME`.
            note: why, for the people who look at the schedule.

        Raises:
            NotFound: there is no such schedule.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._schedules.pause(name, note))

    def resume(self, name: str) -> str:
        """Ends a pause, and returns the schedule's id. Times that have passed stay left out.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._schedules.resume(name))

    def trigger(self, name: str) -> str:
        """Starts a run now, also of a paused schedule, and returns the job's id.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            Rejected: the run before has not ended, and the schedule leaves such times out.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._schedules.trigger(name))

    def delete(self, name: str) -> str:
        """Deletes a schedule, and returns its id. A run that has started continues.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._schedules.delete(name))


class Secrets:
    """The named secrets of the current user on a cluster, as `iris secret`."""

    def __init__(self, client: AsyncIrisClient, loop: BackgroundLoop) -> None:
        self._secrets = client.secrets
        self._loop = loop

    def set(self, name: str, value: str | bytes) -> "NamedSecret":
        """Sets a secret for jobs of the current user: `secret=["NAME"]`. It replaces the value that
        it had before.

        The value is sealed here. A program gets the value that is set when its attempt starts.

        Args:
            value: at most 64 KiB; a line end at its end is left out.

        Raises:
            InvalidValue: the name or the value cannot be that of a variable.
            Rejected: the cluster has no key for secrets.
            IrisError: the store does not answer.
        """
        return self._loop.run(self._secrets.set(name, value))

    def list(self) -> "Sequence[NamedSecret]":
        """Returns the secrets of the current user by their names, without values.

        Raises:
            IrisError: the store does not answer.
        """
        return self._loop.run(self._secrets.list())

    def remove(self, name: str) -> None:
        """Deletes a secret of the current user. Programs that run keep its value; attempts that
        start later fail.

        Raises:
            NotFound: there is no such secret.
            IrisError: the store does not answer.
        """
        self._loop.run(self._secrets.remove(name))
