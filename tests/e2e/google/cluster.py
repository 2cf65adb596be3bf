"""A cluster on the fake Google, handled as its users handle it: by the command line, through
tunnels of the fake `gcloud`.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from iris.processes.process import free_ports
from iris.worker_agents.local.temporal_server import server_command
from tests.e2e.cluster import Cluster, Running, a_home, eventually, free_port
from tests.fakes.google.client import FakeGoogle

#: Where the fake `gcloud` is.
BIN = Path(__file__).parents[2] / "fakes" / "google" / "bin"

CONFIG = """\
name: {name}
# What a shell or a heredoc would trip over: '$HOME' "`id`" \\ EOF
platform:
  gcp:
    project_id: {project}
    default_zones: [europe-west4-b, europe-west4-a]
    label_prefix: iris
    endpoints: {{tpu: "{tpu}", compute: "{compute}"}}
defaults:
  autoscaler:
    evaluation_interval: 500ms
    observe_interval: 1s
    scale_up_delay: 0s
    scale_down_delay: {idle}
bootstrap:
  image: europe-west4-docker.pkg.dev/p/iris/agent:1
  run_as: root  # all machines are this one, where other users may not reach the tests' Python
controller:
  image: europe-west4-docker.pkg.dev/p/iris/controller:1
  bundle_prefix: {store}
  gcp: {{port: {port}}}{temporal}
scale_groups:
  cpu:
    type: gce_vm
    machine_type: n2-standard-8
    max_slices: 2
  tpu16:
    type: tpu_vm
    accelerator_variant: v5litepod-16
    max_slices: 2
    preemptible: true
"""


class GcpCluster(Cluster):
    """One cluster in one project of the fake Google.

    Args:
        home: a new directory with a short name: the state of whoever says the commands, the store,
            the configuration.
        temporal: `host:port` of a Temporal service that is there anyway; empty: the cluster has one
            of its own.
    """

    def __init__(
        self, home: Path, google: FakeGoogle, name: str, *, idle: str = "1h", temporal: str = ""
    ) -> None:
        super().__init__(home, name)
        self.google = google
        self.project = f"project-{name}"
        self.config = home / "cluster.yaml"
        self.port = free_port()
        self.text = CONFIG.format(
            name=name,
            project=self.project,
            tpu=google.tpu,
            compute=google.compute,
            store=(home / "store").as_uri(),
            port=self.port,
            idle=idle,
            temporal=f"\n  temporal: {{address: '{temporal}'}}" if temporal else "",
        )
        self.config.write_text(self.text)

    def start(self) -> "GcpCluster":
        self.iris("cluster", "start", "--config", str(self.config), within=120)
        return self

    def begin(
        self, *arguments: str, cwd: Path | None = None, merged: bool = False, **env: str
    ) -> Running:
        """Start `iris ARGUMENTS…` on a machine that has the fake `gcloud`."""
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        fake = {
            "PATH": path,
            "FAKE_GCLOUD": str(self.home),
            "FAKE_HOSTS": str(self.google.directory / "h"),
        }
        return super().begin(*arguments, cwd=cwd, merged=merged, **{**fake, **env})

    @property
    def machine(self) -> str:
        """The name of its control plane's machine."""
        return f"iris-{self.name}-controller"

    def on_machine(self, word: str) -> psutil.Process | None:
        """The process on its control plane's machine that has this word in its command line; None:
        there is none now.
        """
        for process in processes_of(self.machine, self.google):
            with suppress(psutil.Error):
                if word in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                    return process
        return None

    def nodes(self) -> list[str]:
        """The cluster's TPU nodes, as Google has them."""
        return [
            path.rpartition("/")[2] for path in self.google.alive(self.project) if "/nodes/" in path
        ]


def processes_of(machine: str, google: FakeGoogle) -> list[psutil.Process]:
    """Those that play the machine, and all that runs on it."""
    (host,) = google.hosts(machine)
    player = psutil.Process(host["pid"])
    return [player, *player.children(recursive=True)]


@contextmanager
def a_gcp_cluster(
    google: FakeGoogle, name: str, *, idle: str = "1h", temporal: str = ""
) -> Iterator[GcpCluster]:
    """A cluster that runs; afterwards there is nothing left of it, whatever the test did."""
    with (
        a_home() as home,
        stopped_at_last(GcpCluster(home, google, name, idle=idle, temporal=temporal)) as cluster,
    ):
        yield cluster.start()


@contextmanager
def stopped_at_last(cluster: GcpCluster) -> Iterator[GcpCluster]:
    """A cluster of which nothing is left afterwards."""
    try:
        yield cluster
    finally:
        try:
            cluster.iris(
                "cluster", "stop", "--config", str(cluster.config), "--yes", code=None, within=120
            )
        finally:
            cluster.clear()


@contextmanager
def a_temporal_service() -> Iterator[str]:
    """`host:port` of a Temporal service that is nobody's cluster's; it must go on until the end of
    the block.
    """
    port, ui_port = free_ports()
    server = subprocess.Popen(
        server_command(port, f"127.0.0.1:{ui_port}", None),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: listens(port))
        yield f"127.0.0.1:{port}"
        assert server.poll() is None, "somebody has ended it"
    finally:
        server.kill()
        server.wait()


def listens(port: int) -> bool:
    """Returns whether a process of this machine accepts connections at the port."""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0
