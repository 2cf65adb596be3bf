"""A cluster on the fake Google, handled as its users handle it: by the command line, through tunnels of the fake `gcloud`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iris.worker_agents.process import free_ports
from tests.e2e.cluster import Cluster, Running, a_home
from tests.fakes.google.client import FakeGoogle

#: Where the fake `gcloud` is.
BIN = Path(__file__).parents[1] / "fakes" / "google" / "bin"

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
controller:
  image: europe-west4-docker.pkg.dev/p/iris/controller:1
  bundle_prefix: {store}
  gcp: {{port: {port}}}
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
        home: a new directory with a short name: the state of whoever says the commands, the store, the configuration.
    """

    def __init__(self, home: Path, google: FakeGoogle, name: str, *, idle: str = "1h") -> None:
        super().__init__(home, name)
        self.google = google
        self.project = f"project-{name}"
        self.config = home / "cluster.yaml"
        # Two: the Web UI has the one after it.
        self.port = free_ports()[0]
        self.text = CONFIG.format(
            name=name,
            project=self.project,
            tpu=google.tpu,
            compute=google.compute,
            store=(home / "store").as_uri(),
            port=self.port,
            idle=idle,
        )
        self.config.write_text(self.text)

    def start(self) -> "GcpCluster":
        self.iris("cluster", "start", "--config", str(self.config), within=120)
        return self

    def begin(self, *arguments: str, cwd: Path | None = None, merged: bool = False, **env: str) -> Running:
        """Start `iris ARGUMENTS…` on a machine that has the fake `gcloud`."""
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        fake = {"PATH": path, "FAKE_GCLOUD": str(self.home), "FAKE_HOSTS": str(self.google.directory / "h")}
        return super().begin(*arguments, cwd=cwd, merged=merged, **{**fake, **env})


@contextmanager
def a_gcp_cluster(google: FakeGoogle, name: str, *, idle: str = "1h") -> Iterator[GcpCluster]:
    """A cluster that runs; afterwards there is nothing left of it, whatever the test did."""
    with a_home() as home:
        cluster = GcpCluster(home, google, name, idle=idle)
        try:
            yield cluster.start()
        finally:
            try:
                cluster.iris("cluster", "stop", "--config", str(cluster.config), "--yes", code=None, within=120)
            finally:
                cluster.clear()
