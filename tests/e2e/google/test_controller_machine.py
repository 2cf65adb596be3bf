"""The machine of a control plane on the fake Google: what dies on it, what it does not hold, and
how it fails to come up.
"""

import pytest

from tests.e2e.cluster import a_home, eventually, until
from tests.e2e.google.cluster import GcpCluster, a_gcp_cluster, a_temporal_service, stopped_at_last
from tests.fakes.google.client import FakeGoogle

pytestmark = pytest.mark.long


def test_a_gang_outlives_whatever_dies_on_the_machine_of_the_control_plane(
    google: FakeGoogle,
) -> None:
    """Its Temporal server, its planners, the container's first process: each is there again by
    itself, and asks for no second slice.
    """
    with a_gcp_cluster(google, "deaths") as cluster:
        program = (
            f"touch {cluster.file('runs')}-$TPU_WORKER_ID; {until(str(cluster.file('go')))}; echo"
            " worker $TPU_WORKER_ID ends"
        )
        gang = cluster.begin(
            "submit", "-n", "gang", "--tpu", "v5litepod-16", "--", "sh", "-c", program
        )
        for worker in range(4):
            cluster.there_is(f"runs-{worker}", within=120)
        for word in ("start-dev", "serve", "run"):
            dies = cluster.on_machine(word)
            assert dies is not None
            dies.kill()
            eventually(lambda word=word, dies=dies: cluster.on_machine(word) not in (None, dies))
        eventually(
            lambda: cluster.iris("debug", "health", "--json", code=None).code == 0,
            within=120,
            every=1,
        )
        cluster.file("go").touch()
        said = gang.ends(within=120).out
        assert all(f"worker {each} ends" in said for each in range(4)), said
        assert [task["attempt"] for task in cluster.status("gang")["tasks"]] == [1] * 4
        assert len(google.created("node", cluster.project)) == 1
        assert len(google.created("instance", cluster.project)) == 1


def test_with_a_temporal_service_elsewhere_jobs_outlive_the_machine_of_the_control_plane(
    google: FakeGoogle,
) -> None:
    """Nothing is forgotten, and what runs goes on, while it is deleted and made anew; and a stop
    leaves the service alone.
    """
    with (
        a_temporal_service() as address,
        a_gcp_cluster(google, "outside", temporal=address) as cluster,
    ):
        assert cluster.address == address
        assert cluster.on_machine("serve") is not None
        assert cluster.on_machine("start-dev") is None
        assert (
            cluster.iris("submit", "-n", "before", "--", "echo", "hello", within=120).out
            == "hello\n"
        )
        runs = cluster.begin(
            "submit",
            "-n",
            "runs",
            "--",
            "sh",
            "-c",
            f"touch {cluster.file('on')}; {until(str(cluster.file('go')))}",
        )
        cluster.there_is("on", within=120)
        google.node(cluster.machine, vanish=True)
        assert (
            f"creating machine {cluster.machine}"
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
        assert {
            each["id"]: each["state"] for each in cluster.iris("jobs", "--all", "--json").json
        } == {
            "ada/before": "SUCCEEDED",
            "ada/runs": "SUCCEEDED",
        }


def test_a_start_that_fails_says_why_and_the_next_one_mends_it(google: FakeGoogle) -> None:
    """There is no such image: the end of the console says so, the machine is there for a look at
    it, and with the right image it boots anew.
    """
    with a_home() as home, stopped_at_last(GcpCluster(home, google, "refused")) as cluster:
        cluster.config.write_text(cluster.text.replace("iris/controller:1", "iris/missing:1"))
        start = ("cluster", "start", "--config", str(cluster.config))
        said = cluster.iris(*start, code=1, within=120).err
        assert "manifest for europe-west4-docker.pkg.dev/p/iris/missing:1 not found" in said
        assert (
            "[iris-init] FAILED: could not pull europe-west4-docker.pkg.dev/p/iris/missing:1"
            in said
        )
        assert "iris cluster restart --config FILE" in said
        assert "iris cluster stop refused" in said
        assert f"(machine {cluster.machine} in europe-west4-b, RUNNING)" in said
        assert len(google.alive(cluster.project)) == 1

        cluster.config.write_text(cluster.text)
        assert "its last setup failed; trying again" in cluster.iris(*start, within=120).err
        assert (
            cluster.iris("submit", "-n", "hello", "--", "echo", "hello", within=120).out
            == "hello\n"
        )
        assert [
            path.rpartition("/")[2] for path in google.created("instance", cluster.project)
        ].count(cluster.machine) == 1
        cluster.iris("cluster", "stop", "--yes", within=120)
        google.check(cluster.project)
