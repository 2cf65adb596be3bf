"""A whole cluster on the fake Google: its control plane's machine, its slices' machines and their
agents, by the command line.
"""

import os

import pytest

from iris.client.operate.cluster_manager import ClusterManager
from iris.config import load_config
from tests.e2e.cluster import a_home, eventually, free_port, until
from tests.e2e.google.cluster import BIN, GcpCluster, a_gcp_cluster, stopped_at_last
from tests.e2e.operate.test_metrics import Page
from tests.fakes.google.client import FakeGoogle

pytestmark = pytest.mark.long


def test_a_cluster_starts_runs_jobs_on_machines_it_asks_for_and_stops_without_a_trace(
    google: FakeGoogle,
) -> None:
    """As a user types it: start, a job on a virtual machine, a gang on a TPU slice of four hosts,
    stop. The control plane and the first host serve metrics at the ports of the configuration.
    """
    control, host = Page(free_port()), Page(free_port())
    with a_home() as home:
        cluster = GcpCluster(home, google, "whole")
        ports = f"metrics: {{controller_port: {control.port}, host_port: {host.port}}}\n"
        cluster.config.write_text(cluster.text + ports)
        with stopped_at_last(cluster):
            cluster.start()
            assert (
                cluster.iris("submit", "-n", "hello", "--", "echo", "hello", within=120).out
                == "hello\n"
            )
            assert host.value("iris_attempts_ended_total", outcome="SUCCEEDED", fault="") == 1
            assert control.value("iris_platform_calls_total", call="create", outcome="ok") == 1
            assert control.value("iris_google_calls_total", urgency="create", answer="ok") == 1
            ready = {"group": "cpu", "zone": "europe-west4-b", "state": "READY"}
            eventually(lambda: control.value("iris_slices", **ready) == 1, every=0.5)
            gang = (
                "submit",
                "-n",
                "gang",
                "--tpu",
                "v5litepod-16",
                "--",
                "sh",
                "-c",
                "echo worker $TPU_WORKER_ID",
            )
            said = cluster.iris(*gang, within=180).out
            assert all(f"worker {each}" in said for each in range(4)), said
            shown = cluster.iris("cluster", "status", "--json").json
            assert (shown["name"], shown["hosts"]) == ("whole", 5)
            cluster.iris("cluster", "stop", "--yes", within=180)
            assert google.alive(cluster.project) == []
            google.check(cluster.project)
            assert cluster.processes() == []


def test_a_stop_without_a_control_plane_that_answers_deletes_all_of_ours_and_nothing_else(
    google: FakeGoogle,
) -> None:
    """The uid in the store says what is ours: another cluster of the same prefix in the project,
    and what people made, stay.
    """
    with a_gcp_cluster(google, "dead") as cluster:
        cluster.iris("submit", "-n", "hello", "--", "echo", "hello", within=120)
        others = {"iris-uid": "0000000000000000", "iris-managed": "true", "iris-role": "host"}
        for name, labels in (
            ("others", others),
            ("bare", {}),
            ("kept", {**others, "iris-manual": "true"}),
        ):
            google.seed_foreign(
                name, cluster.project, "europe-west4-b", kind="instance", labels=labels
            )
        (cluster.home / "refuse").write_text(
            "ERROR: (gcloud.compute.ssh) the machine does not answer\n"
        )
        cluster.kill("iris.client.connect.tunnel")
        shown = cluster.iris("cluster", "stop", "--dry-run", within=120).out
        assert "directly" in shown
        stopped = cluster.iris("cluster", "stop", "--yes", within=180)
        assert "deleting its machines directly" in stopped.err
        assert google.alive(cluster.project) == []
        assert sorted(each["name"] for each in google.resources(cluster.project)) == [
            "bare",
            "kept",
            "others",
        ]
        assert cluster.processes() == []


def test_jobs_and_slices_live_through_a_restart_and_get_the_next_configuration(
    google: FakeGoogle,
) -> None:
    """The machine is switched off and on; the program runs on meanwhile, and a group of the next
    configuration serves at once.
    """
    with a_gcp_cluster(google, "anew") as cluster:
        # Its hosts do not share the directory of who submits.
        program = f"touch {cluster.file('runs')}; {until(str(cluster.file('go')))}; echo done"
        runs = cluster.begin("submit", "-n", "runs", "--", "sh", "-c", program)
        cluster.submit(
            "waits", "--cpu", "1", "--constraint", "scale-group=more", "--", "echo", "more"
        )
        cluster.there_is("runs", within=120)
        before = google.alive(cluster.project)
        assert "[iris-init] booting" in cluster.iris("cluster", "restart", within=180).err
        more = "  more:\n    type: gce_vm\n    machine_type: n2-standard-4\n  tpu16:"
        cluster.config.write_text(cluster.text.replace("  tpu16:", more))
        assert (
            "+ more"
            in cluster.iris("cluster", "reload", "--config", str(cluster.config), within=120).out
        )
        assert cluster.iris("wait", "waits", within=180).code == 0
        assert set(before) < set(google.alive(cluster.project))
        cluster.file("go").touch()
        assert runs.ends(within=120).out.endswith("done\n")
        cluster.iris("cluster", "stop", "--yes", within=180)
        google.check(cluster.project)


def test_a_program_has_a_cluster_for_a_block(
    google: FakeGoogle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same manager as for a cluster on this machine: an address that leads there, and nothing
    left after the block.
    """
    with a_home() as home:
        cluster = GcpCluster(home, google, "block")
        monkeypatch.setenv("IRIS_STATE_DIR", str(home))
        monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
        manager = ClusterManager(load_config(cluster.config))
        assert not manager.is_local
        with manager.connect() as address:
            status = manager.controller.status()
            assert (status.running, status.healthy, status.address) == (True, True, address)
            assert "started iris-controller" in (manager.controller.fetch_startup_logs() or "")
            shown = cluster.iris("--cluster", address, "cluster", "status", "--json").json
            assert (shown["name"], shown["hosts"]) == ("block", 0)
        assert google.alive(cluster.project) == []
        assert cluster.processes() == []
