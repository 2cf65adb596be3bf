"""Operators at work on a cluster on the fake Google: looking at it, trying it, and clearing away
what it has left.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import USER, eventually
from tests.e2e.google.cluster import GcpCluster, a_gcp_cluster, processes_of
from tests.fakes.google.client import FakeGoogle

pytestmark = pytest.mark.long

ZONE = "europe-west4-b"


@pytest.fixture(scope="module")
def google() -> Iterator[FakeGoogle]:
    """One cloud; each cluster has a project of its own."""
    with FakeGoogle(boot=True) as google:
        yield google


@pytest.fixture(scope="module")
def cluster(google: FakeGoogle) -> Iterator[GcpCluster]:
    """A cluster that runs. Every test leaves it so."""
    with a_gcp_cluster(google, "looked") as cluster:
        yield cluster


def test_a_cluster_is_validated_on_slices_that_are_made_for_it(cluster: GcpCluster) -> None:
    """Every host of the type answers, and what it says is right; a program is told the same."""
    found = cluster.iris("cluster", "validate", "--json", within=240).json
    assert (found["ok"], found["tpu_type"], found["hosts"]) == (True, "v5litepod-16", 4)
    assert {each["name"]: each["passed"] for each in found["cases"]} == {
        "simple": True,
        "compute": True,
        "two-jobs": True,
    }
    ended = {
        each["id"]: each["state"] for each in cluster.iris("debug", "list-jobs", "--json").json
    }
    assert {ended[job] for each in found["cases"] for job in each["jobs"]} == {"SUCCEEDED"}


def test_a_kind_of_slice_that_no_group_has_fails_at_once(cluster: GcpCluster) -> None:
    """Not after half an hour; and the reason says what there is."""
    ran = cluster.iris("cluster", "validate", "--tpu-type", "v6e-8", "--json", code=1)
    first, *others = ran.json["cases"]
    assert "no scale group has tpu:v6e-8" in first["said"]
    assert all(each["said"].startswith("not run: simple") for each in others)


def test_where_a_cluster_is_is_found_by_its_name_and_by_its_configuration(
    cluster: GcpCluster,
) -> None:
    """By the latter also on a machine that has never used it: a tunnel is opened, and the cluster
    is known from then on.
    """
    here = cluster.iris("debug", "discover", "--json").json
    assert (here["platform"], here["running"], here["healthy"]) == ("gcp", True, True)
    assert (here["machine"]["name"], here["machine"]["zone"]) == ("iris-looked-controller", ZONE)
    state = {"IRIS_STATE_DIR": str(cluster.home / "another")}
    there = cluster.iris(
        "debug", "discover", "--config", str(cluster.config), "--json", **state
    ).json
    assert there["machine"] == here["machine"]
    assert there["address"] != here["address"]
    assert cluster.iris("debug", "health", "--json", **state).json["ok"] is True


def test_each_part_of_a_cluster_is_looked_at_by_itself(cluster: GcpCluster) -> None:
    """While all is well, and what is paused is said."""
    found = cluster.iris("debug", "health", "--config", str(cluster.config), "--json").json
    names = ["service", "control plane", "scheduler", "autoscaler", "hosts", "store"]
    assert [(each["name"], each["ok"]) for each in found["checks"]] == [
        (name, True) for name in names
    ]
    cluster.iris("autoscaler", "pause", "--reason", "budget")
    found = cluster.iris("debug", "health", "--json", code=1).json
    (wrong,) = [each for each in found["checks"] if not each["ok"]]
    assert (wrong["name"], wrong["said"]) == (
        "autoscaler",
        f"paused: budget (by {USER}); resume with: iris autoscaler resume",
    )
    assert (
        cluster.iris("debug", "autoscaler-status", "--json").json["paused"] == f"budget (by {USER})"
    )
    cluster.iris("autoscaler", "resume")


def test_the_machine_of_the_control_plane_tells_how_it_came_up_and_what_runs_on_it(
    cluster: GcpCluster,
) -> None:
    """By its serial console, and by SSH."""
    said = cluster.iris("debug", "bootstrap-logs").out
    assert "[iris-init] booting" in said
    (last,) = cluster.iris("debug", "bootstrap-logs", "--tail", "1", "--json").json["lines"]
    assert (
        last
        in cluster.iris("debug", "bootstrap-logs").out.splitlines()[len(said.splitlines()) - 1 :]
    )
    found = cluster.iris("debug", "ssh-status", "--json").json
    assert (found["machine"], [each["name"] for each in found["containers"]]) == (
        "iris-looked-controller",
        ["iris-controller"],
    )
    assert (
        "control plane of cluster looked serves"
        in cluster.iris("debug", "logs", "--tail", "200").out
    )
    begins = cluster.iris("debug", "tunnel", "--json").json
    assert (begins["cluster"], begins["address"]) == ("looked", cluster.address)
    assert cluster.iris("cluster", "tunnel", "looked", "--json").json == begins


def test_machines_that_no_workflow_looks_after_are_shown_and_deleted_when_told_to(
    cluster: GcpCluster, google: FakeGoogle
) -> None:
    """Those that one looks after stay, and so does what is somebody else's."""
    cluster.submit("keeps", "--tpu", "v5litepod-16", "--", "sleep", "300")
    looked_after = eventually(cluster.nodes, within=120)
    resources = google.resources(cluster.project)
    labels = next(
        each["labels"] for each in resources if each["path"].endswith("iris-looked-controller")
    )
    google.seed_foreign("others", cluster.project, ZONE, labels={"iris-uid": "another"})
    control_plane = cluster.on_machine("serve")
    assert control_plane is not None
    control_plane.suspend()  # or it would see to them itself
    try:
        google.seed_foreign(
            "lost", cluster.project, ZONE, labels={**labels, "iris-role": "host"}, foreign=False
        )
        assert (
            f"would delete slice lost in {ZONE}"
            in cluster.iris("cluster", "cleanup", "looked", within=120).out
        )
        (left,) = cluster.iris("cluster", "cleanup", "looked", "--json", within=120).json["left"]
        assert (left["kind"], left["id"], left["zone"]) == ("slice", "lost", ZONE)
        cluster.iris("cluster", "cleanup", "looked", "--no-dry-run", within=120)
    finally:
        control_plane.resume()
    left = {
        path.rpartition("/")[2]
        for path in (each["path"] for each in google.resources(cluster.project))
    }
    assert "lost" not in left
    assert {"others", "iris-looked-controller", *looked_after} <= left
    cluster.iris("cancel", "keeps")
    cluster.iris("wait", "keeps", code=126)


def test_a_cluster_whose_control_plane_is_dead_is_cleared_away_with_its_machine(
    google: FakeGoogle,
) -> None:
    """Only when somebody says so: a control plane that is away for a while has machines that are
    looked after.
    """
    with a_gcp_cluster(google, "dead") as cluster:
        google.boot_time(None)  # agents would look for the dead control plane again and again
        cluster.submit("works", "--tpu", "v5litepod-16", "--", "sleep", "300")
        eventually(cluster.nodes, within=120)
        for process in processes_of(cluster.machine, google):
            process.kill()
        assert (
            "--controller"
            in cluster.iris("cluster", "cleanup", "dead", "--no-dry-run", code=4, within=120).err
        )
        said = cluster.iris(
            "cluster", "cleanup", "dead", "--controller", "--no-dry-run", within=240
        ).out
        assert "deleting machine iris-dead-controller" in said
        assert google.alive(cluster.project) == []
        google.check(cluster.project)
