"""Creates the control plane that a configuration names, and implements the one on this machine."""

import asyncio
import contextlib
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.clusters import (
    CONFIG,
    ClusterRecord,
    ProcessRef,
    check_is_free,
    cluster_dir,
    read_config,
    read_record,
    write_config,
)
from iris.client.job_filter import JobFilter
from iris.client.operate.control import (
    ControllerProtocol,
    ControllerStatus,
    Progress,
    StopPlan,
    answering_client,
    delete_through,
    last_lines,
    no_progress,
)
from iris.client.operate.delete_slices import delete_all
from iris.client.operate.platforms import create_platform
from iris.config import ClusterConfig, InvalidConfig, dump_config, load_config, local_config, served_kind
from iris.model.errors import IrisError, Unreachable
from iris.platforms.base import SliceOps
from iris.retrying import poll
from iris.worker_agents.local.cluster import Agents, LocalClusterOptions, machines_dir
from iris.worker_agents.local.launch import left_processes, restart_control_plane, start_detached, stop_local

if TYPE_CHECKING:
    from iris.client.operate.gcp_controller import GcpController

__all__ = [
    "ControllerProtocol",
    "ControllerStatus",
    "LocalController",
    "Progress",
    "StopPlan",
    "controller_of",
    "create_controller",
]

#: How long slices may take to disappear: their tasks get their grace period, and then their end is recorded.
DELETE_THROUGH_TIMEOUT = timedelta(minutes=4)
#: How long directly deleted machines may take to disappear: an agent gives its programs their grace period.
DELETE_TIMEOUT = timedelta(minutes=1)
#: A restarted control plane answers within this time.
RESTART_TIMEOUT = timedelta(seconds=30)
POLL_INTERVAL = timedelta(seconds=0.2)


def create_controller(
    config: ClusterConfig,
    *,
    ephemeral: bool = False,
    owned: bool = False,
    agents: Agents | None = None,
    text: str | None = None,
    progress: Progress = no_progress,
) -> ControllerProtocol:
    """Creates the control plane that a configuration names.

    Args:
        ephemeral: a local cluster deletes its data when it stops.
        owned: a local cluster stops when this process ends, however it ends.
        agents: the processes of a local cluster's hosts; None: as suits the size of each slice.
        text: the configuration as it was written; a cluster elsewhere gets exactly this text.
        progress: called with progress messages of long operations.

    Raises:
        InvalidValue: this version does not support the configuration.
    """
    if served_kind(config) == "gcp":
        from iris.client.operate.gcp_controller import GcpController  # imports Google's clients, which is slow

        return GcpController(config, text=text, progress=progress)
    return LocalController(config, ephemeral=ephemeral, owned=owned, agents=agents, progress=progress)


def controller_of(cluster: ClusterRef, progress: Progress = no_progress) -> ControllerProtocol:
    """Creates the control plane of a cluster, with the cluster's last configuration or with that of `--config`.

    Raises:
        NotFound: the cluster is not known here, or its configuration is gone.
        InvalidValue: this version does not support the configuration.
    """
    record = cluster.known().record
    if record is not None and not record.remote:
        return LocalController.of(record.name, progress)
    text = cluster.text or read_config(cluster.name)
    return create_controller(load_config(text), text=text, progress=progress)


def gcp_controller(cluster: ClusterRef, refusal: str, progress: Progress = no_progress) -> "GcpController":
    """Creates the control plane of a cluster on Google Cloud.

    Args:
        refusal: the end of the error message for any other cluster.

    Raises:
        Rejected: the cluster is not on Google Cloud.
    """
    from iris.client.operate.gcp_controller import GcpController  # imports Google's clients, which is slow

    return GcpController(cluster.gcp_config(refusal), text=cluster.text, progress=progress)


def locate(cluster: ClusterRef) -> None:
    """Finds a cluster on Google Cloud that has not been used from here, and writes its record. Does nothing for other clusters.

    Raises:
        Unreachable: the cluster does not run.
        Rejected: this version cannot reach it.
    """
    if cluster.text is None or cluster.record is not None:
        return
    if gcp_controller(cluster, "it cannot be reached").discover() is None:
        raise Unreachable(f"cluster {cluster.name} does not run; start it with: iris cluster start --config FILE")


def known_config(record: ClusterRecord) -> ClusterConfig:
    """Returns the last configuration of a cluster that was started from here.

    Raises:
        NotFound: the configuration is gone.
    """
    return load_config(read_config(record.name)) if record.remote else LocalController.of(record.name).config


class LocalController:
    """Implements `ControllerProtocol` for a cluster on this machine. Its supervisor outlives the process that started it."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        ephemeral: bool = False,
        owned: bool = False,
        agents: Agents | None = None,
        progress: Progress = no_progress,
    ) -> None:
        self.name = config.name
        self.config = config
        self._ephemeral = ephemeral
        self._agents = agents
        self._owned = owned
        self._progress = progress

    @classmethod
    def of(cls, name: str, progress: Progress = no_progress) -> Self:
        """Returns the control plane of a local cluster that was started before, with the cluster's configuration."""
        try:
            config = load_config(cluster_dir(name) / CONFIG)
        except (OSError, InvalidConfig):  # the cluster must still be stopped and inspected
            config = local_config(name)
        return cls(config.model_copy(update={"name": name}), progress=progress)

    def start(self, *, new: bool = False) -> str:
        """Implements `ControllerProtocol.start`. Waits until the groups' minimum number of hosts takes work.

        Args:
            new: has no effect: a running cluster is always refused, and one that does not come up is always ended.

        Raises:
            Rejected: a cluster with this name runs already, or is known to be elsewhere.
            IrisError: the cluster did not start; the message has the end of its log.
        """
        check_is_free(self.name)
        options = LocalClusterOptions(
            name=self.name,
            config=dump_config(self.config),
            ephemeral=self._ephemeral,
            owner=ProcessRef.of(os.getpid()) if self._owned else None,
            agents=self._agents,
        )
        return start_detached(options).address

    def stop(self) -> None:
        """Implements `ControllerProtocol.stop`. If the control plane does not answer, the machines are deleted directly."""
        record = read_record(self.name)
        if record is not None and record.alive():
            asyncio.run(self._delete_slices(record))
        stop_local(self.name)

    async def plan_stop(self) -> StopPlan:
        """Implements `ControllerProtocol.plan_stop`."""
        record = read_record(self.name)
        if record is None or not record.alive():
            left = tuple(ref.pid for ref in left_processes(self.name))
            gone = record is not None and record.ephemeral
            return StopPlan(name=self.name, running=False, ephemeral=gone, slices=await self._ids(), processes=left)
        own = (record.supervisor,) if record.supervisor is not None else ()
        processes = tuple(ref.pid for ref in (*own, *record.processes))
        plan = StopPlan(name=record.name, running=True, ephemeral=record.ephemeral, processes=processes)
        client = await answering_client(self.name)
        if client is None:
            return plan.model_copy(update={"slices": await self._ids()})
        slices = tuple(row.id for row in await client.slices.list() if row.made)
        jobs = len(await client.jobs.list(JobFilter(live_only=True), limit=1_000))
        return plan.model_copy(update={"answers": True, "jobs": jobs, "slices": slices})

    def requests(self) -> dict[str, Any]:
        """Implements `ControllerProtocol.requests`. Returns nothing: a local cluster makes no platform requests."""
        return {}

    def restart(self) -> str:
        """Implements `ControllerProtocol.restart`.

        Raises:
            Unreachable: the cluster does not run.
            IrisError: no new control plane started, or it does not answer.
        """
        record = restart_control_plane(self.name)
        if not poll(lambda: self.status().healthy, every=POLL_INTERVAL, timeout=RESTART_TIMEOUT):
            raise IrisError(f"the control plane of cluster {self.name} does not answer:\n{self.fetch_startup_logs(15)}")
        return record.address

    def reload(self) -> str:
        """Implements `ControllerProtocol.reload`. Also writes the file that the control plane reads when it starts.

        Raises:
            Unreachable: the cluster does not run.
        """

        async def reload() -> str:
            client = await AsyncIrisClient.connect(self.name)
            write_config(self.name, dump_config(self.config))
            await client.cluster.reload(self.config)
            return client.record.address

        return asyncio.run(reload())

    def discover(self) -> str | None:
        """Implements `ControllerProtocol.discover`."""
        record = read_record(self.name)
        return record.address if record is not None and record.alive() else None

    def status(self) -> ControllerStatus:
        """Implements `ControllerProtocol.status`."""
        address = self.discover()
        if address is None:
            return ControllerStatus(running=False)
        return ControllerStatus(running=True, healthy=asyncio.run(answering_client(self.name)) is not None, address=address)

    def fetch_startup_logs(self, tail_lines: int = 100) -> str | None:
        """Implements `ControllerProtocol.fetch_startup_logs`."""
        with contextlib.suppress(OSError):
            text = (cluster_dir(self.name) / "logs" / "controller.log").read_text(errors="replace")
            return last_lines(text, tail_lines)
        return None

    def machines(self) -> SliceOps:
        """Returns the part of the platform that lists and deletes the cluster's machines."""
        return create_platform(self.config, machines_dir(cluster_dir(self.name)))

    # -- private -------------------------------------------------------------------------------------------------------------

    async def _delete_slices(self, record: ClusterRecord) -> None:
        client = await answering_client(self.name)
        if client is not None:
            if await delete_through(client, DELETE_THROUGH_TIMEOUT, self._progress):
                return
        else:
            self._progress(f"the control plane of cluster {record.name} does not answer")
        self._progress("deleting its machines directly")
        try:
            deleted = await delete_all(self.machines(), DELETE_TIMEOUT, self._progress)
            self._progress(f"deleted {', '.join(deleted)}" if deleted else "there are none")
        except IrisError as error:  # the supervisor's stop, or the cleanup after it, ends what is left
            self._progress(str(error))

    async def _ids(self) -> tuple[str, ...]:
        return tuple(each.slice_id for each in (await self.machines().list_slices()).slices)
