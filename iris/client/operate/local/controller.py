"""The control plane of a cluster on this machine."""

import asyncio
import contextlib
import os
from collections.abc import Collection
from datetime import timedelta
from typing import Any, Self, TypedDict

from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import (
    CONFIG,
    ProcessRef,
    check_is_free,
    cluster_dir,
    read_record,
    write_config,
)
from iris.client.operate.controller import (
    ControllerStatus,
    Progress,
    StopPlan,
    answering_client,
    delete_through,
    last_lines,
    no_progress,
    with_contents,
)
from iris.client.operate.delete_slices import delete_all
from iris.client.operate.manual.start import prepare, wait_for_hosts
from iris.client.operate.manual.stop import give_back, without_machines
from iris.client.operate.platforms import machines_of
from iris.config import (
    ClusterConfig,
    InvalidConfig,
    dump_config,
    load_config,
    local_config,
)
from iris.model.errors import IrisError, Rejected, Unreachable
from iris.model.slice.provisioning import FleetListing
from iris.platforms.base import SliceOps
from iris.retrying import poll
from iris.worker_agents.local.cluster import Agents, LocalClusterOptions, machines_dir
from iris.worker_agents.local.launch import (
    left_processes,
    restart_control_plane,
    start_detached,
    stop_local,
)

#: How long slices may take to disappear if the control plane deletes them: the slices' tasks get
#: their grace period, and the scheduler records the end of the tasks.
DELETE_THROUGH_TIMEOUT = timedelta(minutes=4)
#: How long machines may take to disappear after a direct deletion: an agent gives its programs
#: their grace period.
DELETE_TIMEOUT = timedelta(minutes=1)
#: How long a restarted control plane may take to answer.
RESTART_TIMEOUT = timedelta(seconds=30)
#: The pause between two checks of a restarted control plane.
POLL_INTERVAL = timedelta(seconds=0.2)


class LocalOptions(TypedDict, total=False):
    """Options of a cluster on this machine.

    Args:
        ephemeral: the cluster deletes its data when it stops.
        owned: the cluster stops when this process ends, however it ends.
        agents: whether the agents of a slice share one process. If it is None, the size of each
            slice decides.
    """

    ephemeral: bool
    owned: bool
    agents: Agents | None


class LocalController:
    """Implements `ControllerProtocol` for a cluster on this machine. The cluster's supervisor
    outlives the process that started it.
    """

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
        """Returns the control plane of a local cluster that was started before, with the cluster's
        configuration.
        """
        try:
            config = load_config(cluster_dir(name) / CONFIG)
        except (OSError, InvalidConfig):  # the cluster must still be stopped and inspected
            config = local_config(name)
        return cls(config.model_copy(update={"name": name}), progress=progress)

    def start(self, *, new: bool = False) -> str:
        """Implements `ControllerProtocol.start`. Waits until the minimum number of hosts of each
        group takes work.

        Reports each machine over SSH that cannot be used, and starts the cluster with the others.

        Args:
            new: has no effect. This method always refuses a cluster that runs, and always ends one
                that does not come up.

        Raises:
            Rejected: a cluster with this name runs already, or is known to be on another machine.
            IrisError: no machine over SSH can be used; or the cluster did not start, and the
                message has the end of its log.
        """
        check_is_free(self.name, over_ssh=self._over_ssh)
        if self._over_ssh and self.discover() is None:
            asyncio.run(prepare(self.config, self._progress))
        options = LocalClusterOptions(
            name=self.name,
            config=dump_config(self.config),
            ephemeral=self._ephemeral,
            owner=ProcessRef.of(os.getpid()) if self._owned else None,
            agents=self._agents,
        )
        address = start_detached(options).address
        if self._over_ssh:
            asyncio.run(wait_for_hosts(self.config, self._progress))
        return address

    def stop(self) -> None:
        """Implements `ControllerProtocol.stop`. If the control plane does not answer, the machines
        are deleted directly.

        Raises:
            IrisError: a machine over SSH may still have a slice. Everything else is stopped.
        """
        record = read_record(self.name)
        alive = record is not None and record.alive()
        left = ""
        if self._over_ssh:
            left = asyncio.run(self._give_back(alive=alive))
        elif alive:
            asyncio.run(self._delete_slices())
        stop_local(self.name)
        if left:
            raise IrisError(left)

    def give_up(self, machines: Collection[str]) -> None:
        """Removes lost machines from the cluster's configuration before a stop, so that their
        slices count as gone.

        Raises:
            InvalidValue: the cluster does not have such a machine.
            Rejected: the cluster has no machines over SSH.
        """
        if not self._over_ssh:
            raise Rejected(
                f"cluster {self.name} has no machines over SSH to give up; run the command without"
                " --give-up"
            )
        self.config = without_machines(self.config, machines)
        if self.discover() is not None:
            with contextlib.suppress(Unreachable):  # the stop then deletes the slices directly
                self.reload()
        write_config(self.name, dump_config(self.config))

    async def plan_stop(self) -> StopPlan:
        """Implements `ControllerProtocol.plan_stop`."""
        record = read_record(self.name)
        if record is None or not record.alive():
            left = tuple(ref.pid for ref in left_processes(self.name))
            gone = record is not None and record.ephemeral
            listing = await self._listed()
            plan = StopPlan(name=self.name, running=False, ephemeral=gone, processes=left)
            return plan.model_copy(
                update={"slices": _ids(listing), "unreachable": listing.unreachable}
            )
        own = (record.supervisor,) if record.supervisor is not None else ()
        processes = tuple(ref.pid for ref in (*own, *record.processes))
        plan = StopPlan(
            name=record.name, running=True, ephemeral=record.ephemeral, processes=processes
        )
        client = await answering_client(self.name)
        if client is None:
            listing = await self._listed()
            return plan.model_copy(
                update={"slices": _ids(listing), "unreachable": listing.unreachable}
            )
        return await with_contents(plan, client)

    def requests(self) -> dict[str, Any]:
        """Implements `ControllerProtocol.requests`. Returns no requests: a local cluster sends none
        to a platform.
        """
        return {}

    def restart(self) -> str:
        """Implements `ControllerProtocol.restart`.

        Raises:
            Unreachable: the cluster does not run.
            IrisError: no new control plane started, or it does not answer.
        """
        record = restart_control_plane(self.name)
        if not poll(lambda: self.status().healthy, every=POLL_INTERVAL, timeout=RESTART_TIMEOUT):
            raise IrisError(
                f"the control plane of cluster {self.name} does not"
                f" answer:\n{self.fetch_startup_logs(15)}"
            )
        return record.address

    def reload(self) -> str:
        """Implements `ControllerProtocol.reload`. Also writes the configuration file that the
        control plane reads when it starts.

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
        return ControllerStatus(
            running=True,
            healthy=asyncio.run(answering_client(self.name)) is not None,
            address=address,
        )

    def fetch_startup_logs(self, tail_lines: int = 100) -> str | None:
        """Implements `ControllerProtocol.fetch_startup_logs`."""
        with contextlib.suppress(OSError):
            text = (cluster_dir(self.name) / "logs" / "controller.log").read_text(errors="replace")
            return last_lines(text, tail_lines)
        return None

    async def machines(self) -> SliceOps:
        """Returns the part of the platform that lists and deletes the cluster's machines.

        Raises:
            Unreachable: the store cannot be read.
        """
        return await machines_of(self.config, machines_dir(cluster_dir(self.name)))

    # -- private
    # ----------------------------------------------------------------------------------------------

    @property
    def _over_ssh(self) -> bool:
        return self.config.platform.manual is not None

    async def _give_back(self, *, alive: bool) -> str:
        """Deletes the slices on machines over SSH. Returns a message about slices that may be left,
        and how to delete them; empty if no slices are left.
        """
        try:
            return await give_back(
                self.config, await self._answering_client() if alive else None, self._progress
            )
        except IrisError as error:
            return (
                f"cluster {self.name} is stopped, but not all of its machines are given back:"
                f" {error}"
            )

    async def _delete_slices(self) -> None:
        """Deletes the slices of a cluster whose supervisor runs."""
        client = await self._answering_client()
        if client is not None and await delete_through(
            client, lambda _: DELETE_THROUGH_TIMEOUT, self._progress
        ):
            return
        self._progress("deleting its machines directly")
        try:
            deleted = await delete_all(await self.machines(), DELETE_TIMEOUT, self._progress)
            self._progress(f"deleted {', '.join(deleted)}" if deleted else "there are none")
        except IrisError as error:  # the stop of the supervisor ends what is left
            self._progress(str(error))

    async def _answering_client(self) -> AsyncIrisClient | None:
        client = await answering_client(self.name)
        if client is None:
            self._progress(f"the control plane of cluster {self.name} does not answer")
        return client

    async def _listed(self) -> FleetListing:
        return await (await self.machines()).list_slices()


def _ids(listing: FleetListing) -> tuple[str, ...]:
    return tuple(each.slice_id for each in listing.slices)
