"""A full cluster, in which hosts pass from job to job all the time, loses its control plane."""

import asyncio

import pytest

from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.connection import connect
from iris.model.job.spec import JobSpec
from iris.model.states import JobState
from tests.e2e.cluster import USER, Cluster, a_cluster, eventually

pytestmark = pytest.mark.long

CORES = 2
IN_PROGRESS = 10
JOBS = 100
#: The control plane is killed when so many jobs have ended.
KILLS = (25, 60)


def test_no_job_of_a_full_cluster_is_lost_or_run_twice_by_the_death_of_its_control_plane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It dies with placements that it has to signal, with answers that it keeps, and with
    messages that it gathers.
    """
    with a_cluster("--hosts", "1", "--cpu", str(CORES), "--ephemeral") as cluster:
        monkeypatch.setenv("IRIS_STATE_DIR", str(cluster.home))
        states = asyncio.run(_run_jobs(cluster))

        assert states == [JobState.SUCCEEDED] * JOBS
        assert sorted(cluster.lines("ran")) == sorted(f"job-{number}" for number in range(JOBS))
        eventually(lambda: cluster.free_cpu() == [CORES])


async def _run_jobs(cluster: Cluster) -> list[JobState]:
    """Runs the jobs, a few of them at a time, and returns their states."""
    record = ClusterRecord(name=cluster.name, address=cluster.address, store="")
    users, numbers = AsyncIrisClient(await connect(record.address), record), iter(range(JOBS))
    ended: list[JobState] = []

    async def run_some() -> None:
        for number in numbers:
            ran = f"echo job-{number} >> {cluster.file('ran')}"
            spec = JobSpec(user=USER, name=f"job-{number}", command=("sh", "-c", ran))
            job = await users.jobs.submit(spec)
            await users.jobs.wait_until_ended(job.id, job.run_id)
            ended.append((await users.jobs.status(job.id)).state)
            if len(ended) in KILLS:
                await asyncio.to_thread(cluster.kill, "controller", "serve")

    async with asyncio.timeout(300):
        await asyncio.gather(*(run_some() for _ in range(IN_PROGRESS)))
    return ended
