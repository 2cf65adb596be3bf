"""A gang on the fake Google loses its slice while it computes: what it had written by then is there
for its next attempt.
"""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import eventually
from tests.e2e.google.cluster import GcpCluster, a_gcp_cluster
from tests.fakes.google.client import FakeGoogle

pytestmark = pytest.mark.long

HOSTS = 4
#: Each worker goes on where its checkpoint says, which is in a place that outlives machines, as a
#: bucket is; one that had none computes until it is stopped.
PROGRAM = """
import os, pathlib, sys, time

checkpoint = pathlib.Path(sys.argv[1], os.environ["IRIS_TASK_INDEX"])
begun = int(checkpoint.read_text()) if checkpoint.exists() else 0
print("attempt", os.environ["IRIS_ATTEMPT"], "begins at step", begun, flush=True)
pathlib.Path(os.environ["IRIS_OUTPUT_DIR"], "begun.txt").write_text(str(begun))
for step in range(begun + 1, begun + 4 if begun else 10_000):
    new = checkpoint.with_suffix(".new")
    new.write_text(str(step))
    new.rename(checkpoint)
    time.sleep(0.1)
"""


@pytest.fixture
def google() -> Iterator[FakeGoogle]:
    """A cloud whose hosts boot."""
    with FakeGoogle(boot=True) as google:
        yield google


@pytest.fixture
def cluster(google: FakeGoogle) -> Iterator[GcpCluster]:
    with a_gcp_cluster(google, "taken") as cluster:
        yield cluster


def test_scenario_11_a_gang_that_is_preempted_goes_on_from_its_checkpoints_and_its_outputs_are_kept(
    cluster: GcpCluster, google: FakeGoogle
) -> None:
    """Google gives notice; every worker is ended, what it left is stored, and the slice is deleted.
    The next attempt, on another slice, finds the checkpoints; the preemption costs the user no
    retry.
    """
    a_gang_computes(cluster, "train")
    (first,) = cluster.nodes()
    google.preempt(first)
    cluster.iris("wait", "train", within=180)

    lines = cluster.logs("train")
    begun = [line.split() for line in lines if " begins at step " in line]
    assert sorted((line[-5], line[-1] == "0") for line in begun) == [
        *[("1", True)] * HOSTS,
        *[("2", False)] * HOSTS,
    ]
    kept = json.loads(cluster.iris("fetch", "train", "--attempt", "1", "--list", "--json").out)
    assert [(each["task"], each["path"]) for each in kept] == [
        (task, "begun.txt") for task in range(HOSTS)
    ]
    cluster.iris("fetch", "train", "-o", str(cluster.file("results")))
    fetched = [
        int(cluster.file("results").joinpath(str(task), "begun.txt").read_text())
        for task in range(HOSTS)
    ]
    assert all(step > 0 for step in fetched)
    assert {each["account"] for each in attempts(cluster, "train", 1)} == {"preemptions"}
    eventually(lambda: first not in cluster.nodes())
    assert len([path for path in google.created("node") if cluster.project in path]) == 2
    the_next_attempt_does_not_wait_for_the_lease_of_a_machine_that_is_gone(cluster, google)


def the_next_attempt_does_not_wait_for_the_lease_of_a_machine_that_is_gone(
    cluster: GcpCluster, google: FakeGoogle
) -> None:
    """Some nodes just disappear. The lease of a fleet is five minutes."""
    a_gang_computes(cluster, "again")
    (slice_id,) = cluster.nodes()
    google.node(slice_id, vanish=True)
    ended = eventually(lambda: attempts(cluster, "again", 1), within=60)

    assert {each["account"] for each in ended} == {"preemptions"}
    assert all("the platform confirms that its machine is gone" in each["reason"] for each in ended)


def a_gang_computes(cluster: GcpCluster, name: str) -> None:
    """Submits a gang, and waits until each of its workers runs and has a checkpoint."""
    bucket = cluster.file(f"bucket of {name}")
    bucket.mkdir()
    gang = ("--tpu", "v5litepod-16", "--max-retries", "0", "--")
    cluster.submit(name, *gang, "python3", "-c", PROGRAM, str(bucket))
    eventually(lambda: len(list(bucket.glob("[0-9]"))) == HOSTS, within=120)
    eventually(lambda: states(cluster, name) == {"RUNNING"})


def states(cluster: GcpCluster, name: str) -> set[str]:
    return {task["state"] for task in cluster.iris("status", name, "--json").json["tasks"]}


def attempts(cluster: GcpCluster, name: str, number: int) -> list[dict[str, str]]:
    """The records of an attempt that has ended; none while it runs."""
    told = cluster.iris("explain", name, "--json").json
    return [each for each in told["attempts"] if each["number"] == number]
