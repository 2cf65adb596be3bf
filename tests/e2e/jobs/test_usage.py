"""What a job used, as its user reads it: real programs on a real cluster."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.model.units import MIB
from tests.e2e.client import connected
from tests.e2e.cluster import Cluster, a_cluster, eventually

pytestmark = pytest.mark.long

#: Holds 300 MiB and computes on one core for 12 s.
KNOWN = """
import time
block = bytearray(300 * 1024 * 1024)
end = time.monotonic() + 12
while time.monotonic() < end:
    sum(range(10_000))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with a_cluster("--cpu", "4", "--ephemeral") as cluster:
        yield cluster


def test_the_use_of_a_program_is_read_after_its_end(cluster: Cluster, tmp_path: Path) -> None:
    """The numbers are those of the program, against what it requested."""
    submit = ["submit", "-n", "known", "--cpu", "2", "--memory", "1g", "--"]
    cluster.iris(*submit, sys.executable, "-c", KNOWN)
    found = eventually(lambda: cluster.iris("usage", "known", "--json").json)

    assert (found["job"], found["unmeasured"], found["unread"]) == ("ada/known", 0, 0)
    assert found["requested"]["memory_bytes"] == 1024 * MIB
    (task,) = found["tasks"]
    assert (task["task"], task["attempt"]) == (0, 1)
    assert 300 * MIB < task["memory_bytes"]["peak"] < 450 * MIB
    assert 250 * MIB < task["memory_bytes"]["mean"] <= task["memory_bytes"]["peak"]
    assert 5 < task["memory_bytes"]["seconds"] < 13
    # Other programs may run on this machine, too.
    assert 20 < task["cpu_percent"]["mean"] <= task["cpu_percent"]["peak"] < 180
    assert task["gpu_percent"] is None
    assert found["whole"]["memory_bytes"] == task["memory_bytes"]
    assert found["advice"] == []  # it ran for a few seconds

    text = cluster.iris("usage", "known:0").out
    assert "█" in text
    assert "1 GiB" in text
    points = cluster.iris("usage", "known:0", "--json").json["tasks"][0]["points"]
    assert points == sorted(points, key=lambda each: each["start"])
    assert len(points) >= 3


def test_the_tasks_of_an_array_are_listed_with_the_largest_first(cluster: Cluster) -> None:
    """One request holds for all of them, so it is the largest that counts."""
    script = (
        "import os, time\n"
        "block = bytearray(80 * 1024 * 1024 * int(os.environ['IRIS_ARRAY_INDEX']))\n"
        "time.sleep(7 if len(block) else 0)"
    )
    submit = ["submit", "-n", "sweep", "--array", "0-2", "--memory", "512m", "--"]
    cluster.iris(*submit, sys.executable, "-c", script)
    found = eventually(
        lambda: (used := cluster.iris("usage", "sweep", "--json").json)["unmeasured"] == 1 and used
    )
    assert [each["task"] for each in found["tasks"]] == [1, 2]
    lines = cluster.iris("usage", "sweep").out.splitlines()
    words = [line.split() for line in lines]
    assert [each[0] for each in words if each[:1] in (["1"], ["2"])] == ["2", "1"]
    assert "2 of 3 tasks" in lines[0]
    assert cluster.iris("usage", "sweep:2", "--json").json["tasks"][0]["task"] == 2
    assert "no use is stored" in cluster.iris("usage", "sweep:0").out
    assert "no task 7" in cluster.iris("usage", "sweep:7", code=3).err


def test_a_program_reads_the_use_of_its_jobs(cluster: Cluster) -> None:
    """As `iris usage`, for a notebook that chooses the next request."""
    cluster.iris("submit", "-n", "sleeper", "--", "sleep", "7")
    with connected(cluster) as client:
        job = client.job("ada/sleeper")
        found = eventually(lambda: (used := job.usage_over_time(task=0)).tasks and used)

    (task,) = found.tasks
    assert task.series.points
    assert found.whole.cpu_percent is not None
    assert found.whole.cpu_percent.mean < 20
