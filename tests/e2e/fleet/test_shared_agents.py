"""A simulated slice of sixteen hosts whose agents share a process: gangs notice nothing of it, also
when it is killed.
"""

import re
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, a_cluster, eventually, until

pytestmark = pytest.mark.long

HOSTS = 16
GANG = ("--tpu", "v5litepod-64")
#: Writes its host down, and waits for a file in its first attempt.
WAITS = (
    "echo $IRIS_HOST_ID >> {job}.$IRIS_TASK_INDEX; [ $IRIS_ATTEMPT != 1 ] || "
    + until("{job}.go")
    + "; echo $IRIS_TASK_INDEX"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with a_cluster("--hosts", "0", *GANG, "--ephemeral", name="shared") as running:
        yield running


def begun(cluster: Cluster, job: str) -> list[str]:
    """Starts a gang on the slice; the hosts of its tasks, once all of them run."""
    cluster.submit(job, *GANG, "--max-retries", "0", "--", "sh", "-c", WAITS.format(job=job))
    eventually(lambda: all(cluster.lines(f"{job}.{index}") for index in range(HOSTS)))
    return [cluster.lines(f"{job}.{index}")[0] for index in range(HOSTS)]


def test_a_gang_outlives_the_killed_process_of_its_agents(cluster: Cluster) -> None:
    """`kill -9`: the next process continues with the attempt of every host, and every line is
    stored once.
    """
    (slice_id,) = cluster.slices()
    in_order = [f"{slice_id}-w-{worker}" for worker in range(HOSTS)]
    assert begun(cluster, "lives") == in_order
    before = cluster.hosts()
    assert (
        len(cluster.agents(slice_id)),
        len({host["incarnation"] for host in before.values()}),
    ) == (1, HOSTS)
    first = cluster.kill("agent", slice_id)
    eventually(lambda: cluster.pid("agent", slice_id) not in (None, first))
    cluster.file("lives.go").touch()
    cluster.iris("wait", "lives")

    assert [task["attempt"] for task in cluster.status("lives")["tasks"]] == [1] * HOSTS
    assert sorted(cluster.logs("lives")) == sorted(f"[{index}] {index}" for index in range(HOSTS))
    assert cluster.hosts() == before
    assert set(re.findall(r" host=(\S+)", cluster.iris("logs", "--agent", in_order[3]).out)) == {
        in_order[3]
    }


def test_a_gang_whose_hosts_are_all_lost_at_once_runs_again(cluster: Cluster) -> None:
    """As after a restart of all machines: new incarnations on the same slice, charged as
    preemptions and never as failures.
    """
    (slice_id,) = cluster.slices()
    hosts, before = begun(cluster, "bounced"), cluster.hosts()
    lives = [*(cluster.home / "clusters").glob(f"*/machines/{slice_id}/hosts/*/incarnation.json")]
    with cluster.no_machine_starts():
        cluster.kill("agent", slice_id)
        for life in lives:
            life.unlink()
    cluster.iris("wait", "bounced")

    assert [set(cluster.lines(f"bounced.{index}")) for index in range(HOSTS)] == [
        {host} for host in hosts
    ]
    *lost, succeeded = cluster.iris("explain", "bounced", "--json").json["attempts"]
    # The hosts report one after the other. An attempt that is placed in between is bounced by the
    # next report.
    assert {attempt["account"] for attempt in lost} <= {"preemptions", "undelivered"}
    assert (len(lives), lost[0]["account"], succeeded["account"]) == (
        HOSTS,
        "preemptions",
        "nobody",
    )
    after = cluster.hosts()
    assert all(after[host]["incarnation"] != before[host]["incarnation"] for host in hosts)
