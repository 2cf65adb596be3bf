"""The operations on hosts, slices, the autoscaler, the cluster, schedules and secrets, for programs that are not asynchronous."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from iris.client.blocking.event_loop import BackgroundLoop
from iris.client.client import AsyncIrisClient
from iris.client.schedules import Overlap, ScheduleRow, ScheduleView, When
from iris.client.slices import SliceRow
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import HostView, Snapshot
from iris.model.jobs import JobSpec
from iris.model.rules import Rules
from iris.model.slices import SliceStatus

if TYPE_CHECKING:
    from iris.client.named_secrets import NamedSecret
    from iris.config import ClusterConfig
    from iris.storage.garbage import UnusedFolder


class Hosts:
    """The hosts of a cluster, as `iris host`."""

    def __init__(self, client: AsyncIrisClient, loop: BackgroundLoop) -> None:
        self._hosts = client.hosts
        self._loop = loop

    def list(self) -> Sequence[HostView]:
        """As `HostsClient.list`."""
        return self._loop.run(self._hosts.list())

    def show(self, host: str) -> HostView:
        """As `HostsClient.show`."""
        return self._loop.run(self._hosts.show(host))

    def cordon(self, host: str, reason: str = "") -> None:
        """As `HostsClient.cordon`."""
        self._loop.run(self._hosts.cordon(host, reason))

    def uncordon(self, host: str) -> None:
        """As `HostsClient.uncordon`."""
        self._loop.run(self._hosts.uncordon(host))

    def drain(self, host: str, reason: str = "", deadline: timedelta | None = None) -> str:
        """As `HostsClient.drain`."""
        return self._loop.run(self._hosts.drain(host, reason, deadline))


class Slices:
    """The slices of a cluster, as `iris slice`."""

    def __init__(self, client: AsyncIrisClient, loop: BackgroundLoop) -> None:
        self._slices = client.slices
        self._loop = loop

    def list(self) -> Sequence[SliceRow]:
        """As `SlicesClient.list`."""
        return self._loop.run(self._slices.list())

    def listed(self) -> Sequence[SliceRow]:
        """As `SlicesClient.listed`."""
        return self._loop.run(self._slices.listed())

    def show(self, prefix: str) -> SliceStatus:
        """As `SlicesClient.show`."""
        return self._loop.run(self._slices.show(prefix))

    def drain(self, prefix: str, reason: str = "", deadline: datetime | None = None) -> tuple[str, str]:
        """As `SlicesClient.drain`."""
        return self._loop.run(self._slices.drain(prefix, reason, deadline))

    def delete(self, prefix: str, reason: str = "") -> tuple[str, str]:
        """As `SlicesClient.delete`."""
        return self._loop.run(self._slices.delete(prefix, reason))


class Autoscaler:
    """The autoscaler of a cluster, as `iris autoscaler`."""

    def __init__(self, client: AsyncIrisClient, loop: BackgroundLoop) -> None:
        self._autoscaler = client.autoscaler
        self._loop = loop

    def status(self) -> AutoscalerStatus:
        """As `AutoscalerClient.status`."""
        return self._loop.run(self._autoscaler.status())

    def pause(self, reason: str = "") -> None:
        """As `AutoscalerClient.pause`."""
        self._loop.run(self._autoscaler.pause(reason))

    def resume(self) -> None:
        """As `AutoscalerClient.resume`."""
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
        """As `ClusterClient.status`."""
        return self._loop.run(self._cluster.status())

    def pause(self, reason: str = "", group: str | None = None) -> None:
        """As `ClusterClient.pause`."""
        self._loop.run(self._cluster.pause(reason, group))

    def resume(self, group: str | None = None) -> None:
        """As `ClusterClient.resume`."""
        self._loop.run(self._cluster.resume(group))

    def reload(self, config: "ClusterConfig") -> None:
        """As `ClusterClient.reload`."""
        self._loop.run(self._cluster.reload(config))

    def set_rules(self, rules: Rules) -> None:
        """As `ClusterClient.set_rules`."""
        self._loop.run(self._cluster.set_rules(rules))

    def find_unused(self, older_than: timedelta) -> "list[UnusedFolder]":
        """As `ClusterClient.find_unused`."""
        return self._loop.run(self._cluster.find_unused(older_than))

    def delete_unused(self, folders: "Sequence[UnusedFolder]") -> "list[UnusedFolder]":
        """As `ClusterClient.delete_unused`."""
        return self._loop.run(self._cluster.delete_unused(folders))


class Schedules:
    """The schedules of a cluster, as `iris schedule`."""

    def __init__(self, client: AsyncIrisClient, loop: BackgroundLoop) -> None:
        self._schedules = client.schedules
        self._loop = loop

    def create(self, spec: JobSpec, when: When, *, overlap: Overlap = Overlap.SKIP, paused: bool = False) -> ScheduleRow:
        """As `SchedulesClient.create`."""
        return self._loop.run(self._schedules.create(spec, when, overlap=overlap, paused=paused))

    def list(self) -> Sequence[ScheduleRow]:
        """As `SchedulesClient.list`."""
        return self._loop.run(self._schedules.list())

    def show(self, name: str) -> ScheduleView:
        """As `SchedulesClient.show`."""
        return self._loop.run(self._schedules.show(name))

    def pause(self, name: str, note: str = "") -> str:
        """As `SchedulesClient.pause`."""
        return self._loop.run(self._schedules.pause(name, note))

    def resume(self, name: str) -> str:
        """As `SchedulesClient.resume`."""
        return self._loop.run(self._schedules.resume(name))

    def trigger(self, name: str) -> str:
        """As `SchedulesClient.trigger`."""
        return self._loop.run(self._schedules.trigger(name))

    def delete(self, name: str) -> str:
        """As `SchedulesClient.delete`."""
        return self._loop.run(self._schedules.delete(name))


class Secrets:
    """The named secrets of the current user on a cluster, as `iris secret`."""

    def __init__(self, client: AsyncIrisClient, loop: BackgroundLoop) -> None:
        self._secrets = client.secrets
        self._loop = loop

    def set(self, name: str, value: str | bytes) -> "NamedSecret":
        """Sets a secret for jobs of the current user: `secret=["NAME"]`. It replaces the value that it had before.

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
        """Deletes a secret of the current user. Programs that run keep its value; attempts that start later fail.

        Raises:
            NotFound: there is no such secret.
            IrisError: the store does not answer.
        """
        self._loop.run(self._secrets.remove(name))
