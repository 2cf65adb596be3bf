"""Agents that are away for a while: whoever is back in time costs nothing, and whoever is not is
found lost.
"""

import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.e2e.cluster import Cluster, a_cluster, eventually, until

pytestmark = pytest.mark.long

#: Seconds that an agent may be away without any cost, less what the next one takes to start on a
#: slow machine.
AWAY = 30


@pytest.fixture(scope="module")
def wide() -> Iterator[Cluster]:
    """A cluster of machines that people bring: their agents stay away until the test starts them
    again.
    """
    with a_cluster("--hosts", "0", "--ephemeral", name="wide") as cluster:
        yield cluster


def begin_pair(cluster: Cluster, slice_id: str, *which: str) -> None:
    """Agents of a slice of two hosts join, or come back."""
    for host in which or (f"{slice_id}-a", f"{slice_id}-b"):
        where = [
            "--cluster",
            cluster.address,
            "agent",
            "--join",
            "--run-as=root",
            "--host-id",
            host,
            "--dir",
            str(cluster.home / host),
        ]
        slice_of = ["--slice", slice_id, "--slice-size", "2", "--attribute", f"rack={slice_id}"]
        cluster.begin(*where, "--cpu", "1", "--memory", "1g", *slice_of)


def begin_gang(cluster: Cluster, slice_id: str) -> None:
    """A gang of two runs on the slice, a task on each host; it ends when there is a file."""
    eventually(lambda: cluster.slices().get(slice_id), every=0.5)
    go, begun = cluster.file(f"{slice_id}.go"), cluster.file(f"{slice_id}.begun")
    program = f"echo $IRIS_ATTEMPT >> {begun}; {until(str(go))}; echo done"
    where = ["--replicas", "2", "--gang-by", "rack", "--constraint", f"rack={slice_id}"]
    cluster.submit(slice_id, *where, "--", "sh", "-c", program)
    eventually(lambda: len(cluster.lines(f"{slice_id}.begun")) == 2)


def stop_agent(cluster: Cluster, host: str, how: signal.Signals) -> None:
    pid = cluster.pid("agent", host)
    assert pid is not None
    os.kill(pid, how)
    if how is not signal.SIGSTOP:
        eventually(lambda: cluster.pid("agent", host) is None)


def life_of(cluster: Cluster, slice_id: str) -> list[tuple[str, str]]:
    """The hosts of a slice that take work, each with its incarnation."""
    return [
        (host_id, host["incarnation"])
        for host_id, host in cluster.hosts().items()
        if host["slice_id"] == slice_id
    ]


def test_an_agent_that_is_back_before_its_programs_leases_run_out_costs_nothing(
    wide: Cluster,
) -> None:
    """Killed or told to make way, and away for half a minute, as in an upgrade: the slice stays,
    and so does each attempt.
    """
    for pair in ("killed", "upgraded"):
        begin_pair(wide, pair)
        begin_gang(wide, pair)
    before = {pair: life_of(wide, pair) for pair in ("killed", "upgraded")}
    stop_agent(wide, "killed-a", signal.SIGKILL)
    stop_agent(wide, "upgraded-a", signal.SIGHUP)
    time.sleep(AWAY)  # this is what is tested
    for pair in ("killed", "upgraded"):
        begin_pair(wide, pair, f"{pair}-a")
    time.sleep(20)  # so long a verdict of the silence before might still come
    assert {pair: life_of(wide, pair) for pair in ("killed", "upgraded")} == before
    for pair in ("killed", "upgraded"):
        wide.file(f"{pair}.go").touch()
        wide.iris("wait", pair)
        assert wide.lines(f"{pair}.begun") == ["1", "1"]
        assert {task["attempt"] for task in wide.status(pair)["tasks"]} == {1}


def test_an_agent_that_does_not_come_back_is_lost_with_its_slice_before_its_job_tries_again(
    wide: Cluster,
) -> None:
    """Killed, or frozen with its connections open: neither answers, whatever the service still has
    of it.
    """
    for pair in ("dead", "frozen"):
        begin_pair(wide, pair)
        begin_gang(wide, pair)
    frozen = psutil.Process(wide.pid("agent", "frozen-a"))
    began = time.monotonic()
    stop_agent(wide, "dead-a", signal.SIGKILL)
    stop_agent(wide, "frozen-a", signal.SIGSTOP)
    try:
        for pair in ("dead", "frozen"):
            eventually(lambda pair=pair: not life_of(wide, pair), every=0.2)
            assert time.monotonic() - began > AWAY, "lost while it could still come back"
            assert wide.lines(f"{pair}.begun") == ["1", "1"]
    finally:
        frozen.resume()
