"""What the attempts on one host have in common: where they report, where their files go, what the host has for them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from temporalio.client import Client

from iris.activities.bundles import Bundles
from iris.activities.caches import Cache
from iris.activities.environment import Accelerators, base_env
from iris.activities.outputs import AT_ONCE
from iris.activities.ports import Gpus, Ports
from iris.activities.runtimes.base import Runtime
from iris.activities.runtimes.docker import DockerRuntime
from iris.activities.runtimes.images import Token
from iris.activities.runtimes.process import ProcessRuntime
from iris.activities.use import Use
from iris.faults import FAULTS, Fault
from iris.hosts import Host
from iris.store import Store
from iris.units import GIB
from iris.workflows.messages import RunTask

#: What is kept of bundles and of environments on one machine, in bytes; the longest unused go first.
MOST_BUNDLES = 10 * GIB
MOST_ENVIRONMENTS = 50 * GIB


@dataclass(frozen=True)
class Workbench:
    """The means of one life of one host."""

    client: Client
    store: Store
    cluster: str
    host: Host
    #: Of this host alone: attempts have their directories below it.
    directory: Path
    #: Where bundles and environments are kept between attempts; hosts on one machine may share it.
    cache_dir: Path
    #: The container image of tasks that name none; None: they are processes.
    image: str | None = None
    #: In every task's environment, unless its job sets them.
    env_vars: Mapping[str, str] = field(default_factory=dict)
    #: What in a failed program's last lines shows that this host or its surroundings failed it.
    faults: Sequence[Fault] = FAULTS
    #: The host's own few variables, which every program gets.
    base_env: Mapping[str, str] = field(default_factory=base_env)
    #: What the machine really has, whatever the host offers.
    accelerators: Accelerators = field(default_factory=Accelerators)
    #: For images in Google's registries, on a machine of Google's.
    registry_token: Token = lambda: None
    ports: Ports = field(default_factory=Ports)
    gpus: Gpus = field(default_factory=Gpus)
    #: Files of outputs that are on their way.
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    #: What the attempts use, by their keys, as it was measured last.
    uses: dict[str, Use] = field(default_factory=dict)

    @property
    def attempts_dir(self) -> Path:
        return self.directory / "attempts"

    @property
    def bundles(self) -> Bundles:
        return Bundles(self.store, self.cache_dir / "bundles", MOST_BUNDLES)

    @property
    def environments(self) -> Cache:
        return Cache(self.cache_dir / "environments", MOST_ENVIRONMENTS)

    def runtime(self, task: RunTask, directory: Path) -> Runtime:
        """Where an attempt's commands run."""
        if (image := task.image or self.image) is None:
            return ProcessRuntime(task.key, directory, task.resources)
        shared = (self.cache_dir,)
        return DockerRuntime(
            image, task, self.host.id, self.cluster, directory, shared, host_env=self.base_env, token=self.registry_token
        )
