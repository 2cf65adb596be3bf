"""What is left of a job in the store, also when its cluster has been stopped or has forgotten the job."""

from typing import NamedTuple

from iris import names
from iris.client.client import IrisClient
from iris.client.clusters import ClusterRecord, read_record, state_dir
from iris.client.views import LogSource
from iris.errors import NotFound, Unreachable
from iris.store import Store


class Archive(NamedTuple):
    """Where to read, and how that was found out."""

    cluster: ClusterRecord
    source: LogSource
    #: Who knows the job; None: nobody does, and the store itself was asked.
    client: IrisClient | None
    #: Why nobody does, for people.
    note: str = ""


async def archive_of(cluster: str | None, job: str) -> Archive:
    """The latest run of the job.

    Raises:
        NotFound: the cluster does not know the job, and neither does its store.
        Unreachable: the cluster does not answer, and where its store is nobody knows here.
    """
    try:
        client = await IrisClient.connect(cluster)
    except Unreachable:
        record = _stopped(cluster)
        if record is None:
            raise
        return await _from_store(record, job, f"cluster {record.name} does not run")
    try:
        return Archive(client.cluster, await client.log_source(job), client)
    except Unreachable:
        return await _from_store(client.cluster, job, f"cluster {client.cluster.name} does not answer")
    except NotFound as unknown:
        try:
            return await _from_store(client.cluster, job, f"job {job} is older than what cluster {client.cluster.name} remembers")
        except NotFound:
            raise unknown from None


async def cluster_of(cluster: str | None) -> ClusterRecord:
    """The cluster that is meant, running or not.

    Raises:
        Unreachable: it does not answer, and where its store is nobody knows here.
    """
    try:
        return (await IrisClient.connect(cluster)).cluster
    except Unreachable:
        record = _stopped(cluster)
        if record is None:
            raise
        return record


async def _from_store(record: ClusterRecord, job: str, note: str) -> Archive:
    store = Store(record.store)
    # The ids of runs begin with their time.
    roots = (names.job_logs, names.job_outputs)
    runs = {run for root in roots for run in await store.folders(root(job, "").rstrip("/"))}
    if not runs:
        raise NotFound(f"{note}, and its store {record.store} has nothing of job {job}")
    run = max(runs)
    tasks = [int(task) for root in roots for task in await store.folders(root(job, run)) if task.isdecimal()]
    source = LogSource(run_id=run, tasks=max(tasks, default=0) + 1)
    return Archive(record, source, None, f"{note}; this is what its store has")


def _stopped(cluster: str | None) -> ClusterRecord | None:
    """The local cluster of that name, or the only one there ever was."""
    if cluster is not None:
        return None if ":" in cluster else read_record(cluster)
    known = [read_record(path.parent.name) for path in state_dir().glob("clusters/*/cluster.json")]
    found = [record for record in known if record is not None]
    return found[0] if len(found) == 1 else None
