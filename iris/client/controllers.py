"""Which control plane a configuration names, and the one on this machine: how it is started, stopped and looked at."""

import asyncio
import contextlib
import time
from datetime import timedelta
from typing import Any, Self

from iris.client.closing import delete_all
from iris.client.clusters import CONFIG, ClusterRecord, check_is_free, cluster_dir, read_config, read_record, write_config
from iris.client.control import (
    ControllerProtocol,
    ControllerStatus,
    StopPlan,
    Tell,
    answering,
    give_back,
    last_lines,
    nobody,
)
from iris.client.scaling import FleetClient
from iris.config import ClusterConfig, InvalidConfig, dump_config, load_config, local_config
from iris.errors import InvalidValue, IrisError
from iris.platforms.base import SliceOps
from iris.platforms.factory import create_platform
from iris.worker_agents.local_cluster import LocalClusterOptions, machines_dir
from iris.worker_agents.local_launch import left_processes, restart_control_plane, start_detached, stop_local

__all__ = [
    "ControllerProtocol",
    "ControllerStatus",
    "LocalController",
    "StopPlan",
    "Tell",
    "create_controller",
    "known_controller",
]

#: How long slices may take to go: what runs on them has its grace, and some time to be accounted for.
CLOSE_DOWN = timedelta(minutes=4)
#: How long machines may take to go that are deleted directly: an agent gives its programs their grace.
DELETE = timedelta(minutes=1)
#: A control plane that has been started again answers within this time.
RESTARTED = timedelta(seconds=30)


def create_controller(
    config: ClusterConfig, *, ephemeral: bool = False, text: str | None = None, tell: Tell = nobody
) -> ControllerProtocol:
    """The control plane that a configuration names.

    Args:
        ephemeral: a local cluster keeps nothing.
        text: the configuration as it was written: a cluster elsewhere gets exactly that.
        tell: is told what a long operation waits for.

    Raises:
        InvalidValue: this version cannot serve it.
    """
    kind = config.controller.kind or config.platform.kind
    if kind == "gcp" and config.platform.gcp is not None:
        from iris.client.gcp_controller import GcpController  # with Google's clients: not worth the time of every command

        return GcpController(config, text=text, tell=tell)
    if kind != "local" or config.platform.local is None:
        raise InvalidValue(
            "controller", kind, "is not served by this version", "run the same cluster on this machine with --local"
        )
    return LocalController(config, ephemeral=ephemeral, tell=tell)


def known_controller(record: ClusterRecord, tell: Tell = nobody) -> ControllerProtocol:
    """The control plane of a cluster that was started from here, with the configuration that it got last.

    Raises:
        NotFound: its configuration is gone.
    """
    if not record.remote:
        return LocalController.of(record.name, tell)
    text = read_config(record.name)
    return create_controller(load_config(text), text=text, tell=tell)


def known_config(record: ClusterRecord) -> ClusterConfig:
    """The configuration that such a cluster got last.

    Raises:
        NotFound: it is gone.
    """
    return load_config(read_config(record.name)) if record.remote else LocalController.of(record.name).config


class LocalController:
    """A cluster on this machine: its supervisor is a process of its own, which outlives whoever started it."""

    def __init__(self, config: ClusterConfig, *, ephemeral: bool = False, tell: Tell = nobody) -> None:
        self.name = config.name
        self.config = config
        self._ephemeral = ephemeral
        self._tell = tell

    @classmethod
    def of(cls, name: str, tell: Tell = nobody) -> Self:
        """The control plane of a local cluster that was started before, with the configuration that it has."""
        try:
            config = load_config(cluster_dir(name) / CONFIG)
        except (OSError, InvalidConfig):  # it is to be stopped and looked at all the same
            config = local_config(name)
        return cls(config.model_copy(update={"name": name}), tell=tell)

    def start(self, *, new: bool = False) -> str:
        """See `ControllerProtocol`; waits until the hosts that its groups have at the least take work.

        Args:
            new: says nothing more: one that runs is refused anyway, and nothing runs of one that does not come up.

        Raises:
            Rejected: a cluster of that name runs already, or is known to be elsewhere.
            IrisError: it did not start; the message has the end of its log.
        """
        check_is_free(self.name)
        options = LocalClusterOptions(name=self.name, config=dump_config(self.config), ephemeral=self._ephemeral)
        return start_detached(options).address

    def stop(self) -> None:
        """See `ControllerProtocol`. Without a control plane that answers, the machines are deleted directly."""
        record = read_record(self.name)
        if record is not None and record.alive():
            asyncio.run(self._give_back(record))
        stop_local(self.name)

    async def plan_stop(self) -> StopPlan:
        """What a stop would do. Changes nothing."""
        record = read_record(self.name)
        if record is None or not record.alive():
            left = tuple(ref.pid for ref in left_processes(self.name))
            gone = record is not None and record.ephemeral
            return StopPlan(name=self.name, running=False, ephemeral=gone, slices=await self._ids(), processes=left)
        own = (record.supervisor,) if record.supervisor is not None else ()
        processes = tuple(ref.pid for ref in (*own, *record.processes))
        plan = StopPlan(name=record.name, running=True, ephemeral=record.ephemeral, processes=processes)
        client = await answering(self.name)
        if client is None:
            return plan.model_copy(update={"slices": await self._ids()})
        made = tuple(row.id for row in await client.slices() if row.made)
        jobs = len(await client.jobs(live_only=True, limit=1_000))
        return plan.model_copy(update={"answers": True, "jobs": jobs, "slices": made})

    def requests(self) -> dict[str, Any]:
        """See `ControllerProtocol`: none but this machine is asked."""
        return {}

    def restart(self) -> str:
        """See `ControllerProtocol`.

        Raises:
            Unreachable: the cluster does not run.
            IrisError: no other control plane came, or it does not answer.
        """
        record = restart_control_plane(self.name)
        deadline = time.monotonic() + RESTARTED.total_seconds()
        while not self.status().healthy:
            if time.monotonic() > deadline:
                raise IrisError(f"the control plane of cluster {self.name} does not answer:\n{self.fetch_startup_logs(15)}")
        return record.address

    def reload(self) -> str:
        """See `ControllerProtocol`. The control plane finds the same in its file whenever it starts.

        Raises:
            Unreachable: the cluster does not run.
        """

        async def tell() -> str:
            client = await FleetClient.connect(self.name)
            write_config(self.name, dump_config(self.config))
            await client.reload(self.config)
            return client.cluster.address

        return asyncio.run(tell())

    def discover(self) -> str | None:
        """See `ControllerProtocol`."""
        record = read_record(self.name)
        return record.address if record is not None and record.alive() else None

    def status(self) -> ControllerStatus:
        """See `ControllerProtocol`."""
        address = self.discover()
        if address is None:
            return ControllerStatus(running=False)
        return ControllerStatus(running=True, healthy=asyncio.run(answering(self.name)) is not None, address=address)

    def fetch_startup_logs(self, tail_lines: int = 100) -> str | None:
        """See `ControllerProtocol`."""
        with contextlib.suppress(OSError):
            said = (cluster_dir(self.name) / "logs" / "controller.log").read_text(errors="replace")
            return last_lines(said, tail_lines)
        return None

    def machines(self) -> SliceOps:
        """The machines of the cluster, to look at and to delete."""
        return create_platform(self.config, machines_dir(cluster_dir(self.name)))

    # -- inside --------------------------------------------------------------------------------------------------------------

    async def _give_back(self, record: ClusterRecord) -> None:
        client = await answering(self.name)
        if client is not None:
            if await give_back(client, CLOSE_DOWN, self._tell):
                return
        else:
            self._tell(f"the control plane of cluster {record.name} does not answer")
        self._tell("deleting its machines directly")
        try:
            deleted = await delete_all(self.machines(), DELETE, self._tell)
            self._tell(f"deleted {', '.join(deleted)}" if deleted else "there were none")
        except IrisError as error:  # what is left ends with the supervisor, or after it
            self._tell(str(error))

    async def _ids(self) -> tuple[str, ...]:
        return tuple(each.slice_id for each in (await self.machines().list_slices()).slices)
