"""Shared parts of the tests of platforms: slice requests, and one interface to each platform with
its simulated cloud.
"""

import asyncio
import contextlib
import functools
import hashlib
import inspect
import tarfile
import time
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from iris.model.slice.provisioning import DeleteResult, FleetListing, SliceObservation, SliceRequest
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.platforms.base import Platform
from iris.platforms.gcp.platform import GcpPlatform
from iris.platforms.gcp.settings import GcpSettings
from iris.platforms.local import LocalPlatform
from iris.platforms.manual.connections import Connections
from iris.platforms.manual.keeper import HostKeeper
from iris.platforms.manual.platform import ManualPlatform
from iris.platforms.manual.runtime import Runtime
from iris.platforms.manual.settings import ManualSettings
from iris.platforms.mixed import MixedPlatform
from iris.processes.children import Restarts
from iris.worker_agents.local.local_machines import Command, MachineSupervisor
from tests.builders import NOON, some
from tests.fakes.google.client import FakeGoogle
from tests.fakes.platform.cloud import FOREVER, SettableClock
from tests.fakes.platform.platform import CloudAccount, FakePlatform
from tests.sshd import Machine

#: A machine with two slow cores that does other things too.
PATIENCE = 90.0
#: Crash loops are to be seen within a test.
HASTY = Restarts(delay=timedelta(milliseconds=20), max_delay=timedelta(milliseconds=100))


def a_group(name: str = "v5e-16", hosts: int = 2, **changes: Any) -> ScaleGroup:
    """A group of simulated TPU slices with two hosts each."""
    settings = {
        "type": SliceType.LOCAL_VM,
        "zones": ("west4-a", "west4-b"),
        "resources": some(cpu=8, memory=32, disk=100, device="tpu:v5litepod-16:4"),
        "accelerator_variant": "v5litepod-16",
        "max_slices": 10,
    }
    return ScaleGroup(name=name, hosts=hosts, **settings | changes)


def wanted(
    slice_id: str = "dev-v5e-16-abc", group: ScaleGroup | None = None, **changes: Any
) -> SliceRequest:
    """A request for a slice in the group's first zone."""
    group = group or a_group()
    settings = {"cluster": "dev", "zone": group.zones[0], "token": f"token of {slice_id}"} | changes
    return SliceRequest(slice_id=slice_id, group=group, **settings)


async def until(
    holds: Callable[[], Any], between: Callable[[], Any] | None = None, every: float = 0.01
) -> Any:
    """What the condition says as soon as it is true; it may be a coroutine function.

    Args:
        every: how long to wait between two looks, in seconds.

    Raises:
        AssertionError: it does not come to hold. The location in the test says which.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = holds()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s; last seen: {answer!r}"
        if between is not None:
            between()
        await asyncio.sleep(every)


@contextlib.asynccontextmanager
async def a_room(
    directory: Path, command: Command, logs: Path, **settings: Any
) -> AsyncIterator[None]:
    """A machine room for as long as the block lasts."""
    stop = asyncio.Event()
    room = asyncio.create_task(
        MachineSupervisor(directory, command, logs, **{"restarts": HASTY} | settings).run(stop)
    )
    try:
        yield
    finally:
        stop.set()
        await room


class World(Protocol):
    """A platform's other side."""

    def platform(self, cluster: str = "dev") -> Platform:
        """Another object for the same platform, as a control plane makes one that has just
        started.
        """

    async def power_on(self) -> None:
        """From now on machines come up and go; before, nothing moves but what calls do
        themselves.
        """

    async def power_off(self) -> None:
        """The end of the test."""

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Time passes until the condition holds."""


class FakeWorld:
    """A cloud that takes some seconds for everything."""

    def __init__(self) -> None:
        self._clock = SettableClock(NOON)
        self._fake = FakePlatform(self._clock, "dev")
        self._fake.boot_delay = FOREVER
        self._fake.delete_delay = timedelta(seconds=3)

    def platform(self, cluster: str = "dev") -> Platform:
        return CloudAccount(self._fake, cluster)

    async def power_on(self) -> None:
        self._fake.boot_delay = timedelta(seconds=2)
        for machines in self._fake.machines.values():
            machines.active_at = self._clock.now + self._fake.boot_delay

    async def power_off(self) -> None:
        self._fake.check()

    async def until(self, holds: Callable[[], Any]) -> Any:
        return await until(holds, lambda: self._clock.advance(timedelta(seconds=1)))


class LocalWorld:
    """Directories, and a room for each cluster; an agent is a process that sleeps."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rooms = contextlib.AsyncExitStack()

    def platform(self, cluster: str = "dev") -> Platform:
        return LocalPlatform(self._root / cluster)

    async def power_on(self) -> None:
        for cluster in ("dev", "other"):
            room = a_room(
                self._root / cluster,
                lambda request, host: ["sleep", "1000"],
                self._root / f"logs-{cluster}",
            )
            await self._rooms.enter_async_context(room)

    async def power_off(self) -> None:
        await self._rooms.aclose()

    async def until(self, holds: Callable[[], Any]) -> Any:
        return await until(holds)


#: What a group of the contract's tests is over SSH, where each machine is a slice.
MANUAL_KIND: dict[str, Any] = {"type": SliceType.MANUAL_VM, "hosts": 1, "accelerator_variant": ""}


class ManualWorld:
    """Machines over SSH, with a directory of this world in each home. An agent is a process that
    sleeps.
    """

    def __init__(self, machines: list[Machine], known_hosts: Path) -> None:
        self._machines = machines
        self._known_hosts = known_hosts
        self._directory = f".iris-{uuid.uuid4().hex[:8]}"
        self._connections: dict[str, Connections] = {}
        self._keepers: dict[str, HostKeeper] = {}
        self._stack = contextlib.AsyncExitStack()

    def settings(self, cluster: str = "dev") -> ManualSettings:
        hosts = tuple(each.access for each in self._machines)
        return ManualSettings(
            cluster=cluster,
            uid=f"uid-of-{cluster}",
            hosts={"v5e-16": hosts, "cpu": hosts},
            zones={"v5e-16": ("west4-a", "west4-b"), "cpu": ("west4-a",)},
            known_hosts=self._known_hosts,
            directory=self._directory,
            address="127.0.0.1:1",
            # Each look is a session, in which a shell starts ten programs.
            poll_interval=timedelta(milliseconds=250),
        )

    def platform(self, cluster: str = "dev") -> Platform:
        if cluster not in self._keepers:
            self._connections[cluster] = Connections(self.settings(cluster), keep=True)
            self._keepers[cluster] = HostKeeper(
                self.settings(cluster),
                self._connections[cluster],
                lambda: no_packages(self._known_hosts.parent),
                command=sleeping,
            )
        keeper = self._keepers[cluster]
        platform = ManualPlatform(
            self.settings(cluster),
            self._connections[cluster],
            attend=keeper.attend,
            fault_of=keeper.fault_of,
            avoid=keeper.avoid,
        )
        return Asked(platform, MANUAL_KIND)

    async def power_on(self) -> None:
        self.platform()  # no other cluster has agents here
        await self._stack.enter_async_context(self._keepers["dev"].serving())

    async def power_off(self) -> None:
        await self._stack.aclose()
        for cluster, connections in self._connections.items():
            platform = self.platform(cluster)
            for each in (await platform.list_slices()).slices:
                await until(functools.partial(_gone, platform, each), every=0.1)
            await connections.close()
        assert [
            path for each in self._machines for path in each.home.glob(f"{self._directory}*")
        ] == []

    async def until(self, holds: Callable[[], Any]) -> Any:
        return await until(holds, every=0.1)


async def _gone(platform: Platform, seen: SliceObservation) -> bool:
    return await platform.delete_slice(seen.slice_id, seen.zone) is DeleteResult.GONE


def no_packages(directory: Path, *files: str) -> Runtime:
    """The runtime of such an agent: a Python without packages, with empty files of these names."""
    file = directory / "runtime.tgz"
    with tarfile.open(file, "w:gz") as archive:
        for name in files:
            archive.addfile(tarfile.TarInfo(name))
    return Runtime(file, hashlib.sha256(file.read_bytes()).hexdigest())


def sleeping(*_: Any) -> str:
    """The command line of an agent that does nothing. SIGHUP ends it, as it ends an agent that
    another one replaces.
    """
    return (
        "-c 'import signal, time; signal.signal(signal.SIGHUP, signal.SIG_DFL); time.sleep(1000)'"
    )


#: What a group of the contract's tests is on Google Cloud, where a slice may be one of three
#: things.
GCP_KINDS: dict[str, dict[str, Any]] = {
    "gcp-node": {
        "type": SliceType.TPU_VM,
        "accelerator_variant": "v5litepod-16",
        "runtime_version": "v2-alpha-tpuv5-lite",
    },
    "gcp-queued": {
        "type": SliceType.TPU_VM,
        "accelerator_variant": "v5litepod-16",
        "runtime_version": "v2-alpha-tpuv5-lite",
        "queued": True,
    },
    "gcp-instance": {
        "type": SliceType.GCE_VM,
        "accelerator_variant": "",
        "machine_type": "n2-standard-8",
    },
}


class GcpWorld:
    """A project of its own in a fake Google, whose time stands still unless it is let pass."""

    def __init__(self, google: FakeGoogle, kind: str) -> None:
        self._google = google
        self._kind = GCP_KINDS[kind]
        self._project = f"p-{uuid.uuid4().hex[:12]}"
        google.zones("west4-a", "west4-b")
        google.run(0)
        google.boot_time(None)
        google.delete_time(3)

    def platform(self, cluster: str = "dev") -> Platform:
        settings = GcpSettings(
            project=self._project,
            cluster=cluster,
            uid=f"uid-of-{cluster}",
            label_prefix="iris",
            network="default",
            requests_per_minute=60_000,
            tpu_endpoint=self._google.tpu,
            compute_endpoint=self._google.compute,
        )
        return Asked(GcpPlatform(settings, lambda request: "#!/bin/sh"), self._kind)

    async def power_on(self) -> None:
        self._google.boot_time(2)

    async def power_off(self) -> None:
        self._google.check(self._project)

    async def until(self, holds: Callable[[], Any]) -> Any:
        return await until(holds, lambda: self._google.advance(1))


class MixedWorld:
    """A cloud and machines in one cluster. The machines are those of this host: over SSH, each test
    would take seconds, and the platform only chooses the part.

    Args:
        root: the directory of the machines.
        asked: the part that has the zones of the tests, and so all of their slices: `cloud` or
            `machines`.
    """

    def __init__(self, root: Path, asked: str) -> None:
        self._parts: dict[str, World] = {"cloud": FakeWorld(), "machines": LocalWorld(root)}
        self._asked = asked

    def platform(self, cluster: str = "dev") -> Platform:
        parts = {name: part.platform(cluster) for name, part in self._parts.items()}
        cloud = self._asked == "cloud"
        zones = () if cloud else ("west4-a", "west4-b")
        return MixedPlatform(parts["cloud"], parts["machines"], zones, lambda zone: cloud)

    async def power_on(self) -> None:
        for part in self._parts.values():
            await part.power_on()

    async def power_off(self) -> None:
        for part in self._parts.values():
            await part.power_off()

    async def until(self, holds: Callable[[], Any]) -> Any:
        return await self._parts[self._asked].until(holds)


class Asked:
    """A platform that is asked for slices of one kind, whatever the tests' groups say."""

    def __init__(self, platform: Platform, kind: dict[str, Any]) -> None:
        self._platform = platform
        self._kind = kind

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        group = request.group.model_copy(update=self._kind)
        return await self._platform.create_slice(request.model_copy(update={"group": group}))

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        return await self._platform.describe_slice(slice_id, zone)

    async def last_output(self, slice_id: str, zone: str) -> str:
        return await self._platform.last_output(slice_id, zone)

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        return await self._platform.delete_slice(slice_id, zone)

    async def list_slices(self) -> FleetListing:
        return await self._platform.list_slices()
