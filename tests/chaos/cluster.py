"""The cluster of a chaos run: its processes, each with its own way to the service, and kept alive
as by systemd.

Two control planes, three hosts that joined alone, a slice of two that joined together, and virtual
machines that the autoscaler creates at the fake Google. Every host and every control plane reaches
the service through a link of its own.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from tests.chaos.clocks import clock_env, clock_library
from tests.chaos.links import Link, Network
from tests.chaos.plan import LEASE
from tests.chaos.services import Service
from tests.e2e.cluster import Cluster, Running, eventually, processes_of
from tests.fakes.google.client import FakeGoogle
from tests.small_disk import small_disk
from tests.workflows.autoscaler.google_trouble import Trouble

NAME = "chaos"
PROJECT = "project-chaos"
ZONES = ("europe-west4-b", "europe-west4-a")
#: The cloud's seconds in one second: its machines boot in three.
CLOUD_SPEED = 20
#: The hosts that join by themselves. The files of the last one are on a small disk.
SINGLE = ("h1", "h2", "h3")
PAIR = ("pair-0", "pair-1")
HOSTS = (*SINGLE, *PAIR)
CONTROLS = ("control-0", "control-1")
STORE_KIB, DISK_KIB = 32 << 10, 64 << 10
#: How long systemd waits before it starts a process again that ended by itself.
RESTART_AFTER = 1.0

CONFIG = """\
name: {name}
platform:
  gcp:
    project_id: {project}
    default_zones: [{zones}]
    label_prefix: iris
    endpoints: {{tpu: "{tpu}", compute: "{compute}"}}
scheduler: {{lease: {lease}s}}
defaults:
  autoscaler:
    evaluation_interval: 500ms
    observe_interval: 2s
    scale_up_delay: 0s
    scale_down_delay: 15s
    backoff: 2s
    max_backoff: 10s
    stockout_delay: 5s
    max_stockout_delay: 15s
bootstrap: {{image: "europe-west4-docker.pkg.dev/p/iris/agent:1", run_as: root}}
controller:
  image: europe-west4-docker.pkg.dev/p/iris/controller:1
  bundle_prefix: {store}
scale_groups:
  vm: {{type: gce_vm, machine_type: n2-standard-4, max_slices: 2, preemptible: true}}
"""


class Part:
    """A process that is started again whenever it has ended, unless a fault keeps it away."""

    def __init__(self, begin: Callable[[], Running]) -> None:
        self._begin = begin
        self.away = False
        self.running = begin()
        self._ended_at: float | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        return self.running.process.pid

    def begin(self) -> None:
        with self._lock:
            self.running = self._begin()
            self._ended_at = None
            self.away = False

    def kill(self) -> None:
        """SIGKILL; the process stays away until `begin`."""
        with self._lock:
            self.away = True
            self.running.process.kill()
            self.running.process.wait()

    def keep(self) -> None:
        """Starts the process again some time after it has ended."""
        with self._lock:
            if self.away or self.running.process.poll() is None:
                return
            if self._ended_at is None:
                self._ended_at = time.monotonic()
            elif time.monotonic() - self._ended_at > RESTART_AFTER:
                self.running = self._begin()
                self._ended_at = None


class ChaosCluster(Cluster):
    """The processes of one run, in a new directory with a short name."""

    def __init__(
        self, home: Path, service: Service, google: FakeGoogle, network: Network, seed: int
    ) -> None:
        super().__init__(home, NAME)
        self.service, self.google = service, google
        google.run(CLOUD_SPEED)
        self.trouble = Trouble(google, PROJECT, ZONES, random.Random(f"cloud {seed}"))
        self.links: dict[str, Link] = {name: network.link() for name in (*HOSTS, *CONTROLS)}
        self._machines_link = network.link()
        self.parts: dict[str, Part] = {}
        self.disks: dict[str, Path] = {}
        self._clock_library = clock_library(home)
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.service.ports[-1]}"

    @property
    def store(self) -> Path:
        return self.disks["store"] / "store"

    def begin(
        self, *arguments: str, cwd: Path | None = None, merged: bool = False, **env: str
    ) -> Running:
        own = {"IRIS_CLUSTER": f"{self.address}/{self.name}"}
        return super().begin(*arguments, cwd=cwd, merged=merged, **{**own, **env})

    def start_all(self) -> None:
        """Starts everything, and waits until the joined hosts take work."""
        self.store.mkdir(mode=0o700)
        for directory in ("logs", "clocks"):
            (self.home / directory).mkdir()
        config = self.home / "chaos.yaml"
        endpoints = {"tpu": self.google.tpu, "compute": self.google.compute}
        config.write_text(
            CONFIG.format(
                name=self.name,
                project=PROJECT,
                zones=", ".join(ZONES),
                store=self.store.as_uri(),
                lease=LEASE,
                **endpoints,
            )
        )
        for name in CONTROLS:
            self.parts[name] = Part(self._control(name, config))
        eventually(self._answers, every=0.5)
        for name in HOSTS:
            self.parts[name] = Part(self._agent(name))
        eventually(lambda: set(HOSTS) <= set(self.host_ids()), every=0.5)
        self._keeper.start()

    def _answers(self) -> bool:
        for name in CONTROLS:
            running = self.parts[name].running
            assert running.process.poll() is None, running.err
        return self.iris("host", "list", "--json", code=None).code == 0

    def _control(self, name: str, config: Path) -> Callable[[], Running]:
        address = f"127.0.0.1:{self.links[name].port}"
        advertised = f"127.0.0.1:{self._machines_link.port}"
        options = ("--store", self.store.as_uri(), "--config", str(config))
        command = ("controller", "serve", "--name", self.name, "--address", address)
        return lambda: self._lasting(name, *command, "--advertise", advertised, *options)

    def _agent(self, name: str) -> Callable[[], Running]:
        slice_of = ("--slice", "pair", "--slice-size", "2", "--attribute", "rack=r")
        options: tuple[str, ...] = slice_of if name in PAIR else ()
        cluster = f"127.0.0.1:{self.links[name].port}/{self.name}"
        options += ("--dir", str(self.directory(name)), "--cpu", "4", "--memory", "4g")
        command = ("agent", "--join", "--run-as=root", "--host-id", name, *options)
        return lambda: self._lasting(name, *command, IRIS_CLUSTER=cluster)

    def _lasting(self, name: str, *arguments: str, **env: str) -> Running:
        """Starts a part of the cluster. Its output is found as `logs/NAME.N`."""
        clock = clock_env(self._clock_library, self.clock(name))
        running = self.begin(*arguments, cwd=None, merged=False, **env, **clock)
        logs = self.home / "logs"
        (logs / f"{name}.{len([*logs.glob(f'{name}.*')])}").symlink_to(running.said)
        return running

    def clock(self, name: str) -> Path:
        """The file with the error of the clock of a part of the cluster."""
        return self.home / "clocks" / name

    @property
    def has_clocks(self) -> bool:
        """Whether clocks can be stepped here."""
        return self._clock_library is not None

    def directory(self, host: str) -> Path:
        """The files of a joined host."""
        return self.disks.get(host, self.home / "hosts") / host

    def host_processes(self, host: str) -> list[psutil.Process]:
        """The agent of a joined host, and all that runs there."""
        return processes_of(self.directory(host))

    def kill_host(self, host: str) -> None:
        """As if the power were cut: everything on the host ends at once."""
        self.parts[host].kill()
        while left := self.host_processes(host):
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, 1)

    def leave_alone(self) -> None:
        """Starts no process again."""
        self._over.set()
        if self._keeper.is_alive():
            self._keeper.join()

    def stop_all(self) -> None:
        """Ends agents and control planes in order, as systemd does when machines are switched
        off.
        """
        self.leave_alone()
        for name in reversed(self.parts):
            process = self.parts[name].running.process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 60
        for part in self.parts.values():
            with suppress(Exception):
                part.running.process.wait(max(0.1, deadline - time.monotonic()))

    def outside(self) -> set[psutil.Process]:
        """The processes that are no part of Iris: Temporal's and the cloud's."""
        parts = (*self.service.servers, *self.service.databases)
        found = {each for part in parts for each in self.service.processes(part)}
        cloud = str(self.home / "google")
        return found | {each for each in self.processes() if cloud in " ".join(each.cmdline())}

    def _keep(self) -> None:
        while not self._over.wait(0.5):
            for part in list(self.parts.values()):
                part.keep()


@contextmanager
def a_chaos_cluster(home: Path, service: Service, seed: int) -> Iterator[ChaosCluster]:
    """A cluster that runs; afterwards nothing is left of it."""
    with ExitStack() as stack:
        google = stack.enter_context(FakeGoogle(boot=True, directory=_short(home / "google")))
        service.start()
        stack.callback(service.stop)
        network = Network(service.ports)
        stack.callback(network.close)
        cluster = ChaosCluster(home, service, google, network, seed)
        for name, kib in (("store", STORE_KIB), (SINGLE[-1], DISK_KIB)):
            cluster.disks[name] = stack.enter_context(small_disk(home / f"disk-{name}", kib))
        stack.callback(cluster.clear)  # before the disks go
        stack.callback(cluster.leave_alone)
        Cluster.running.append(cluster)
        stack.callback(Cluster.running.remove, cluster)
        cluster.start_all()
        yield cluster


def _short(directory: Path) -> Path:
    """Sockets are below it: their paths have at most 107 bytes."""
    directory.mkdir(parents=True)
    assert len(os.fsencode(directory)) < 60, f"choose a directory with a shorter name: {directory}"
    return directory
