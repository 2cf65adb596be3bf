"""A whole cluster on the fake Google: its control plane's machine, its slices' machines and their agents, by the command line."""

import os
from collections.abc import Iterator

import pytest

from iris.client.cluster_manager import ClusterManager
from iris.config import load_config
from tests.e2e.cluster import a_home, eventually, until
from tests.e2e.gcp_cluster import BIN, GcpCluster, a_gcp_cluster, a_temporal_service, stopped_at_last
from tests.fakes.google.client import FakeGoogle

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def google() -> Iterator[FakeGoogle]:
    """One cloud; each test has a project of its own. Its machines give up soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IRIS_TRIES", "2")
        patch.setenv("IRIS_PAUSE", "1")
        with FakeGoogle(boot=True) as google:
            yield google


def test_a_cluster_starts_runs_jobs_on_machines_it_asks_for_and_stops_without_a_trace(google: FakeGoogle) -> None:
    """As a user types it: start, a job on a virtual machine, a gang on a TPU slice of four hosts, stop."""
    with a_gcp_cluster(google, "whole") as cluster:
        assert cluster.iris("submit", "-n", "hello", "--", "echo", "hello", within=120).out == "hello\n"
        gang = ("submit", "-n", "gang", "--tpu", "v5litepod-16", "--", "sh", "-c", "echo worker $TPU_WORKER_ID")
        said = cluster.iris(*gang, within=180).out
        assert all(f"worker {each}" in said for each in range(4)), said
        shown = cluster.iris("cluster", "status", "--json").json
        assert (shown["name"], shown["hosts"]) == ("whole", 5)
        cluster.iris("cluster", "stop", "--yes", within=180)
        assert google.alive(cluster.project) == []
        google.check(cluster.project)
        assert cluster.processes() == []


def test_a_stop_without_a_control_plane_that_answers_deletes_all_of_ours_and_nothing_else(google: FakeGoogle) -> None:
    """The uid in the store says what is ours: another cluster of the same prefix in the project, and what people made, stay."""
    with a_gcp_cluster(google, "dead") as cluster:
        cluster.iris("submit", "-n", "hello", "--", "echo", "hello", within=120)
        others = {"iris-uid": "0000000000000000", "iris-managed": "true", "iris-role": "host"}
        for name, labels in (("others", others), ("bare", {}), ("kept", {**others, "iris-manual": "true"})):
            google.seed_foreign(name, cluster.project, "europe-west4-b", kind="instance", labels=labels)
        (cluster.home / "refuse").write_text("ERROR: (gcloud.compute.ssh) the machine does not answer\n")
        cluster.kill("iris.client.tunnel")
        shown = cluster.iris("cluster", "stop", "--dry-run", within=120).out
        assert "directly: the control plane does not answer" in shown
        stopped = cluster.iris("cluster", "stop", "--yes", within=180)
        assert "does not answer; deleting its machines directly" in stopped.err
        assert google.alive(cluster.project) == []
        assert sorted(each["name"] for each in google.resources(cluster.project)) == ["bare", "kept", "others"]
        assert cluster.processes() == []


def test_jobs_and_slices_live_through_a_restart_and_get_the_next_configuration(google: FakeGoogle) -> None:
    """The machine is switched off and on; the program runs on meanwhile, and a group of the next configuration serves at once."""
    with a_gcp_cluster(google, "anew") as cluster:
        # Its hosts do not share the directory of who submits.
        program = f"touch {cluster.file('runs')}; {until(str(cluster.file('go')))}; echo done"
        runs = cluster.begin("submit", "-n", "runs", "--", "sh", "-c", program)
        cluster.submit("waits", "--cpu", "1", "--constraint", "scale-group=more", "--", "echo", "more")
        cluster.there_is("runs", within=120)
        before = google.alive(cluster.project)
        assert "[iris-init] the machine of the control plane boots" in cluster.iris("cluster", "restart", within=180).err
        more = "  more:\n    type: gce_vm\n    machine_type: n2-standard-4\n  tpu16:"
        cluster.config.write_text(cluster.text.replace("  tpu16:", more))
        assert "+ more" in cluster.iris("cluster", "reload", "--config", str(cluster.config), within=120).out
        assert cluster.iris("wait", "waits", within=180).code == 0
        assert set(before) < set(google.alive(cluster.project))
        cluster.file("go").touch()
        assert runs.ends(within=120).out.endswith("done\n")
        cluster.iris("cluster", "stop", "--yes", within=180)
        google.check(cluster.project)


def test_a_program_has_a_cluster_for_a_block(google: FakeGoogle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same manager as for a cluster on this machine: an address that leads there, and nothing left after the block."""
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


def test_a_gang_outlives_whatever_dies_on_the_machine_of_the_control_plane(google: FakeGoogle) -> None:
    """Its Temporal server, its planners, the container's first process: each is there again by itself, and asks for no second
    slice."""
    with a_gcp_cluster(google, "deaths") as cluster:
        program = (
            f"touch {cluster.file('runs')}-$TPU_WORKER_ID; {until(str(cluster.file('go')))}; echo worker $TPU_WORKER_ID ends"
        )
        gang = cluster.begin("submit", "-n", "gang", "--tpu", "v5litepod-16", "--", "sh", "-c", program)
        for worker in range(4):
            cluster.there_is(f"runs-{worker}", within=120)
        for word in ("start-dev", "serve", "run"):
            dies = cluster.on_machine(word)
            assert dies is not None
            dies.kill()
            eventually(lambda word=word, dies=dies: cluster.on_machine(word) not in (None, dies), within=60)
        eventually(lambda: cluster.iris("debug", "health", "--json", code=None).code == 0, within=120, every=1)
        cluster.file("go").touch()
        said = gang.ends(within=120).out
        assert all(f"worker {each} ends" in said for each in range(4)), said
        assert [task["attempt"] for task in cluster.status("gang")["tasks"]] == [1] * 4
        assert len(google.created("node", cluster.project)) == 1
        assert len(google.created("instance", cluster.project)) == 1


def test_with_a_temporal_service_elsewhere_jobs_outlive_the_machine_of_the_control_plane(google: FakeGoogle) -> None:
    """Nothing is forgotten, and what runs goes on, while it is deleted and made anew; and a stop leaves the service alone."""
    with a_temporal_service() as address, a_gcp_cluster(google, "outside", temporal=address) as cluster:
        assert cluster.address == address
        assert cluster.on_machine("serve") is not None
        assert cluster.on_machine("start-dev") is None
        assert cluster.iris("submit", "-n", "before", "--", "echo", "hello", within=120).out == "hello\n"
        runs = cluster.begin(
            "submit", "-n", "runs", "--", "sh", "-c", f"touch {cluster.file('on')}; {until(str(cluster.file('go')))}"
        )
        cluster.there_is("on", within=120)
        google.node(cluster.machine, vanish=True)
        assert (
            f"making machine {cluster.machine}"
            in cluster.iris("cluster", "start", "--config", str(cluster.config), within=120).err
        )
        assert cluster.status("before")["state"] == "SUCCEEDED"
        cluster.file("go").touch()
        runs.ends(within=120)
        assert [task["attempt"] for task in cluster.status("runs")["tasks"]] == [1]
        cluster.iris("cluster", "stop", "outside", "--yes", within=120)
        assert google.alive(cluster.project) == []
        google.check(cluster.project)
        cluster.start()
        assert {each["id"]: each["state"] for each in cluster.iris("jobs", "--all", "--json").json} == {
            "ada/before": "SUCCEEDED",
            "ada/runs": "SUCCEEDED",
        }


def test_a_start_that_fails_says_why_and_the_next_one_mends_it(google: FakeGoogle) -> None:
    """There is no such image: the end of the console says so, the machine is there for a look at it, and with the right image it
    boots anew."""
    with a_home() as home, stopped_at_last(GcpCluster(home, google, "refused")) as cluster:
        cluster.config.write_text(cluster.text.replace("iris/controller:1", "iris/missing:1"))
        start = ("cluster", "start", "--config", str(cluster.config))
        said = cluster.iris(*start, code=1, within=120).err
        assert "the control plane of cluster refused did not come up: its machine could not be set up" in said
        assert "manifest for europe-west4-docker.pkg.dev/p/iris/missing:1 not found" in said
        assert "[iris-init] FAILED: could not pull europe-west4-docker.pkg.dev/p/iris/missing:1" in said
        assert "try again with: iris cluster restart --config FILE; delete it with: iris cluster stop refused" in said
        assert f"(machine {cluster.machine} in europe-west4-b, RUNNING)" in said
        assert len(google.alive(cluster.project)) == 1

        cluster.config.write_text(cluster.text)
        assert "it could not be set up when it booted last; trying that again" in cluster.iris(*start, within=120).err
        assert cluster.iris("submit", "-n", "hello", "--", "echo", "hello", within=120).out == "hello\n"
        assert [path.rpartition("/")[2] for path in google.created("instance", cluster.project)].count(cluster.machine) == 1
        cluster.iris("cluster", "stop", "--yes", within=120)
        google.check(cluster.project)
