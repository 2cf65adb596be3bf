"""Operations on hosts, slices, the autoscaler, the cluster, schedules and secrets.

`scripts/make-blocking.py` writes this module. Change the asynchronous classes, and run it again.
"""

# mypy: disable-error-code=no-any-return
from __future__ import annotations

from typing import TYPE_CHECKING

from iris.client.blocking.event_loop import Blocking
from iris.client.jobs.schedules import (
    Overlap,
    ScheduleRow,
    ScheduleView,
    When,
)

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from iris.client.fleet.slices import SliceRow
    from iris.client.secrets.named import NamedSecret
    from iris.config import ClusterConfig
    from iris.messages.autoscaler import AutoscalerStatus
    from iris.messages.scheduler import (
        HostView,
        Snapshot,
    )
    from iris.model.job.spec import JobSpec
    from iris.model.rules import Rules
    from iris.model.slice.status import SliceStatus
    from iris.storage.garbage import UnusedFolder


class Hosts(Blocking):
    """The hosts of one cluster."""

    def cordon(self, host: str, reason: str = "") -> None:
        """Closes a host to new work. Its running tasks continue.

        Args:
            host: its id.
            reason: for the people who look at the host.

        Raises:
            NotFound: there is no such host.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._asynchronous.cordon(host, reason))

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
        self._loop.run(self._asynchronous.uncordon(host))

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
        return self._loop.run(self._asynchronous.drain(host, reason, deadline))

    def show(self, host: str) -> HostView:
        """Returns one host that takes work, or is closed to it.

        Args:
            host: its id.

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
    """The slices of one cluster."""

    def show(self, prefix: str) -> SliceStatus:
        """Returns a slice. Also finds ended slices that the service keeps.

        Args:
            prefix: its id, or the beginning of it, if no other slice has that.

        Raises:
            NotFound: no slice or several slices match.
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.show(prefix))

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
        return self._loop.run(self._asynchronous.drain(prefix, reason, deadline))

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
        return self._loop.run(self._asynchronous.delete(prefix, reason))

    def list(self) -> builtins.list[SliceRow]:
        """Lists all slices by id, those that joined by themselves, too.

        Raises:
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.list())

    def listed(self) -> Sequence[SliceRow]:
        """Lists all slices by id as the service has them, without zones and reasons.

        Asks no control plane.

        Raises:
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.listed())


class Autoscaler(Blocking):
    """The autoscaler of one cluster."""

    def status(self) -> AutoscalerStatus:
        """Returns what the autoscaler knows, has decided and is doing.

        Raises:
            Unreachable: no control plane answers, or none has ever started.
        """
        return self._loop.run(self._asynchronous.status())

    def pause(self, reason: str = "") -> None:
        """Stops the autoscaler from requesting and deleting slices.

        Args:
            reason: for the people who look at the autoscaler.

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
    """One cluster."""

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self._asynchronous.name

    @property
    def address(self) -> str:
        """The address of the cluster's Temporal service: `HOST:PORT`."""
        return self._asynchronous.address

    def status(self) -> Snapshot:
        """Returns the scheduler's counts, pauses and rules. The result lists no hosts.

        Raises:
            Unreachable: no control plane answers.
        """
        return self._loop.run(self._asynchronous.status())

    def pause(self, reason: str = "", group: str | None = None) -> None:
        """Stops new placements in the whole cluster or in one scale group. Running tasks continue.

        Args:
            reason: for the people who look at the cluster.
            group: the scale group; None: the whole cluster.

        Raises:
            NotFound: no host belongs to such a group.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._asynchronous.pause(reason, group))

    def resume(self, group: str | None = None) -> None:
        """Allows new placements again.

        Args:
            group: the scale group; None: the whole cluster.

        Raises:
            Rejected: that group is not paused.
            Unreachable: no control plane answers.
        """
        self._loop.run(self._asynchronous.resume(group))

    def reload(self, config: ClusterConfig) -> None:
        """Applies another configuration to the scheduler and the autoscaler.

        Args:
            config: of the same cluster, from `iris.load_config`.

        Raises:
            Unreachable: the service does not answer.
        """
        self._loop.run(self._asynchronous.reload(config))

    def set_rules(self, rules: Rules) -> None:
        """Replaces the scheduling rules.

        Args:
            rules: all of them; `status().rules` has the present ones.

        Raises:
            Unreachable: no control plane answers.
        """
        self._loop.run(self._asynchronous.set_rules(rules))

    def find_unused(self, older_than: timedelta) -> list[UnusedFolder]:
        """Returns what ended jobs have left in the store, such as logs and checkpoints.

        Args:
            older_than: at least a day. Bundles are at least three days old.

        Raises:
            InvalidValue: the age is too short.
            Rejected: the store has files of other clusters, whose jobs are not known here.
            Unreachable: the service does not answer.
            IrisError: the store does not answer.
        """
        return self._loop.run(self._asynchronous.find_unused(older_than))

    def delete_unused(self, folders: Sequence[UnusedFolder]) -> list[UnusedFolder]:
        """Deletes what `find_unused` has found, and returns what was deleted.

        What is young or needed since then stays.

        Args:
            folders: what to delete.

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
            InvalidValue: the service does not understand the times, none of them is still to come,
                or the job demands too much.
            Rejected: there is a schedule of this name.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.create(spec, when, overlap=overlap, paused=paused))

    def list(self) -> Sequence[ScheduleRow]:
        """Returns the cluster's schedules by their ids.

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
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.show(name))

    def pause(self, name: str, note: str = "") -> str:
        """Starts no more runs until `resume`, and returns the schedule's id. A run that has started
        continues.

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
        """Starts a run now, also of a paused schedule, and returns the job's id.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            Rejected: the run before has not ended, and the schedule leaves such times out.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.trigger(name))

    def delete(self, name: str) -> str:
        """Deletes a schedule with the secrets that it was given, and returns its id. A run that has
        started continues.

        Args:
            name: `NAME` or `USER/NAME`.

        Raises:
            NotFound: there is no such schedule.
            IrisError: the store does not answer, and still has the secrets, sealed.
            Unreachable: the service does not answer.
        """
        return self._loop.run(self._asynchronous.delete(name))


class Secrets(Blocking):
    """The named secrets of the current user on one cluster."""

    def set(self, name: str, value: str | bytes) -> NamedSecret:
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
        return self._loop.run(self._asynchronous.set(name, value))

    def list(self) -> builtins.list[NamedSecret]:
        """Returns the secrets of the current user by their names, without values.

        Raises:
            IrisError: the store does not answer.
        """
        return self._loop.run(self._asynchronous.list())

    def remove(self, name: str) -> None:
        """Deletes a secret of the current user. Programs that run keep its value; attempts that
        start later fail.

        Raises:
            InvalidValue: no secret can have this name.
            NotFound: there is no such secret.
            IrisError: the store does not answer.
        """
        self._loop.run(self._asynchronous.remove(name))
