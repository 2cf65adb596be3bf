"""Finds a job's logs and outputs in the store, also if its cluster was stopped or has forgotten the
job.
"""

from typing import NamedTuple

from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord, read_record
from iris.client.connect.identity import full_job_id
from iris.client.connect.paths import state_dir
from iris.client.logs.source import LogSource
from iris.model import store_paths
from iris.model.errors import NotFound, Unreachable
from iris.storage.object_store import Store


class Archive(NamedTuple):
    """A run of a job, its cluster, and the source of its logs."""

    cluster: ClusterRecord
    #: The id of the job.
    job: str
    source: LogSource
    #: The client of the cluster that knows the job. It is None if no cluster knows the job, and the
    #: run was found in the store.
    client: AsyncIrisClient | None
    #: Why no cluster knows the job, as a message for the user. Empty if a cluster knows it.
    note: str = ""


async def archive_of(cluster: str | None, named: str, run: int | None = None) -> Archive:
    """Finds a run of the job.

    Args:
        cluster: the name or address of the cluster; None if the environment names it, or only one
            is known here.
        named: the job as the user names it: `NAME`, `USER/NAME` or `USER/NAME/CHILD`.
        run: the number of the run, from 1 for the oldest; None for the latest run.

    Raises:
        NotFound: neither the cluster nor its store knows the job, or this run of it.
        Unreachable: the cluster does not answer, and no record on this machine has its
            store.
    """
    job = full_job_id(named)
    try:
        client = await AsyncIrisClient.connect(cluster)
    except Unreachable:
        record = _stopped(cluster)
        if record is None:
            raise
        return await _from_store(record, job, run, f"cluster {record.name} does not run")
    try:
        job = await client.jobs.resolve_id(named)
        return Archive(
            client.record,
            job,
            await client.jobs.log_source(job, await client.jobs.run(job, run)),
            client,
        )
    except Unreachable:
        return await _from_store(
            client.record, job, run, f"cluster {client.record.name} does not answer"
        )
    except NotFound as unknown:
        try:
            return await _from_store(
                client.record, job, run, f"cluster {client.record.name} no longer has job {job}"
            )
        except NotFound:
            raise unknown from None


async def cluster_of(cluster: str | None) -> ClusterRecord:
    """Returns the record of the selected cluster, running or not.

    Raises:
        Unreachable: the cluster does not answer, and no record on this machine has its
            store.
    """
    try:
        return (await AsyncIrisClient.connect(cluster)).record
    except Unreachable:
        record = _stopped(cluster)
        if record is None:
            raise
        return record


async def _from_store(record: ClusterRecord, job: str, number: int | None, note: str) -> Archive:
    store = Store(record.store)
    # A run id begins with the run's time, so the order of the ids is that of the runs.
    roots = (store_paths.job_logs, store_paths.job_outputs, store_paths.job_checkpoints)
    runs = sorted({run for root in roots for run in await store.folders(root(job, "").rstrip("/"))})
    if not runs:
        raise NotFound(f"{note}, and its store {record.store} has no files of job {job}")
    if number is not None and number > len(runs):
        raise NotFound(
            f"{note}, and its store {record.store} has no files of run {number} of job {job};"
            f" it has files of {len(runs)} run(s)"
        )
    run = runs[-1 if number is None else number - 1]
    tasks = [
        int(task)
        for root in roots
        for task in await store.folders(root(job, run))
        if task.isdecimal()
    ]
    source = LogSource(run_id=run, tasks=max(tasks, default=0) + 1)
    return Archive(record, job, source, None, f"{note}; showing the files in its store")


def _stopped(cluster: str | None) -> ClusterRecord | None:
    """Returns the record of the cluster with that name, or the only record that exists."""
    if cluster is not None:
        return None if ":" in cluster else read_record(cluster)
    known = [read_record(path.parent.name) for path in state_dir().glob("clusters/*/cluster.json")]
    found = [record for record in known if record is not None]
    return found[0] if len(found) == 1 else None
