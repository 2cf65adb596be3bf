"""The records of use of a cluster whose control plane is killed under load."""

import asyncio
from datetime import UTC, datetime

import pytest

from iris.client.fleet.usage_records import read_uses
from iris.simulation.trace import from_lines
from iris.storage.object_store import Store
from iris.usage.records import AttemptUse, SliceUse, Use, UseEnd
from tests.e2e.cluster import Cluster, a_cluster, eventually

pytestmark = pytest.mark.long

TASKS = 60
#: Adds its index and attempt to a file. The first attempt of each fifth task fails.
PROGRAM = """
import os, sys, time
index, attempt = os.environ["IRIS_TASK_INDEX"], os.environ["IRIS_ATTEMPT"]
with open("starts", "a") as starts:
    print(index, attempt, file=starts)
time.sleep(0.2)
sys.exit(attempt == "1" and int(index) % 5 == 0)
"""


def recorded(cluster: Cluster) -> list[Use]:
    """Returns the records in the cluster's store."""
    store = Store((cluster.home / "clusters" / "local" / "store").as_uri())

    async def read() -> list[Use]:
        uses = read_uses(store, "local", datetime(2020, 1, 1, tzinfo=UTC), datetime.now(UTC))
        found = [use async for use in uses]
        assert (uses.unreadable, uses.dropped) == (0, 0)
        return found

    return asyncio.run(read())


def test_every_attempt_has_a_record_although_the_control_plane_is_killed_under_load() -> None:
    """Bills are made from the records, so none may be missing, and none counts twice."""
    with a_cluster("--hosts", "2", "--cpu", "2", "--ephemeral") as cluster:
        job = cluster.submit(
            "load",
            *("--replicas", str(TASKS), "--cpu", "1", "--tag", "team=speech"),
            *("--max-retries", "3", "--", "python3", "-c", PROGRAM),
        )["id"]
        for started in (TASKS // 4, TASKS // 2):
            eventually(lambda started=started: len(cluster.lines("starts")) >= started)
            cluster.kill("controller", "serve")
        cluster.iris("wait", "load")
        attempts = {
            f"{job}:{index}@{attempt}" for index, attempt in map(str.split, cluster.lines("starts"))
        }
        assert len(attempts) >= TASKS + TASKS // 5

        def ran() -> list[AttemptUse]:
            """The attempts whose program was started."""
            uses = (use for use in recorded(cluster) if isinstance(use, AttemptUse))
            return [use for use in uses if use.end is not UseEnd.NEVER_STARTED]

        # Batches are stored every half minute.
        uses = eventually(lambda: len(found := ran()) >= len(attempts) and found, every=1)
        assert sorted(use.id.rpartition("/")[0] for use in uses) == sorted(attempts)
        assert sum(use.end is UseEnd.FAILED for use in uses) == TASKS // 5
        assert {use.host_share for use in uses} == {0.5}
        assert all(use.tags == {"team": "speech"} for use in uses)
        assert all(
            use.started_at and use.placed_at <= use.started_at <= use.ended_at for use in uses
        )


def test_a_cluster_that_was_stopped_has_a_record_of_each_slice_and_attempt() -> None:
    """Its Temporal service may be deleted next, with everything that is not in the store."""
    with a_cluster("--cpu", "1") as cluster:
        job = cluster.submit("short", "--", "true")["id"]
        cluster.iris("wait", "short")
        slices = {each["id"] for each in cluster.iris("slice", "list", "--json").json}
        cluster.iris("cluster", "stop", "--yes")

        uses = recorded(cluster)
        (attempt,) = (use for use in uses if isinstance(use, AttemptUse))
        assert (attempt.job, attempt.end) == (job, UseEnd.SUCCEEDED)
        ended = {use.id: use for use in uses if isinstance(use, SliceUse)}
        assert ended.keys() == slices > set()
        assert set(attempt.slices) <= slices
        (name,) = attempt.slices
        assert ended[name].group == attempt.group
        assert ended[name].ready_at is not None
        assert ended[name].requested_at <= attempt.placed_at <= attempt.ended_at
        assert attempt.ended_at <= ended[name].gone_at


def test_the_workload_of_a_cluster_is_exported_without_names() -> None:
    """Also what runs now, and what was stored only a moment ago."""
    with a_cluster("--cpu", "1", "--ephemeral") as cluster:
        cluster.submit("secret", "--scheduling-timeout", "1h", "--", "true")
        cluster.iris("wait", "secret")
        cluster.submit("endless", "--", "sleep", "600")
        running = ("jobs", "--state", "running", "--json")
        eventually(lambda: cluster.iris(*running).json)

        ran = cluster.iris("usage", "--since", "1h", "--trace", "-")
        assert "wrote 2 gangs and 1 slice" in ran.err
        trace = from_lines(ran.out.splitlines(), "-")
        first, second = trace.gangs
        assert (first.patience, first.runs[0].end) == (3600, UseEnd.SUCCEEDED)
        assert first.waited is not None
        assert (first.waited < 60, first.user, first.id) == (True, "user-1", "job-1:0")
        assert second.at >= first.at
        assert "secret" not in ran.out
        assert "endless" not in ran.out

        file = cluster.home / "trace.jsonl"
        cluster.iris("usage", "--trace", str(file))
        assert len(from_lines(file.read_text().splitlines(), "file").gangs) == 2
