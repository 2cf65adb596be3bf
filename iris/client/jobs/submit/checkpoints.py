"""Finds the checkpoint that a new job starts from."""

from typing import Any

from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    WorkflowHandle,
)
from temporalio.converter import DataConverter

from iris.client.connect.connection import reconfigured
from iris.client.connect.rpc import Connection
from iris.client.jobs.find import numbered_run, resolve_id
from iris.client.logs.follow import reading_from
from iris.client.logs.source import log_source
from iris.model import names, store_paths
from iris.model.checkpoint.sources import CheckpointSource
from iris.model.errors import NotFound
from iris.model.job.spec import JobSpec
from iris.model.store_paths import is_run
from iris.storage.object_store import Store
from iris.storage.saves import tasks_with_saves


async def with_source(connection: Connection, spec: JobSpec, source: CheckpointSource) -> JobSpec:
    """Returns the job with the place of the checkpoint that it starts from.

    Raises:
        NotFound: there is no such job, or it has no such run.
        InvalidValue: the run has no checkpoint, or has checkpoints of more tasks than the new job,
            or of other tasks.
        IrisError: the store does not answer.
    """
    if source.bare:
        source = source.model_copy(
            update={
                "job": await resolve_id(connection, source.job.rpartition("/")[2]),
                "bare": False,
            }
        )
    store = Store(connection.record.store)
    with reading_from(store, f"the checkpoint of {source.job}"):
        try:
            run = await _run_of(connection, source)
        except NotFound:  # the service forgets jobs; their files stay
            folders = await store.folders(store_paths.job_checkpoints(source.job, "").rstrip("/"))
            known = [name for name in folders if is_run(name)]
            if not known or source.run is not None:
                raise
            run = known[-1]  # the names of runs sort by their times
        folder = store_paths.job_checkpoints(source.job, run)
        tasks = await tasks_with_saves(store, folder)
    return spec.model_copy(
        update={"from_checkpoint": source.found(folder, tasks, spec.replicas, spec.array)}
    )


async def _run_of(connection: Connection, source: CheckpointSource) -> str:
    """Returns the id of the run whose checkpoint the source names."""
    run = None
    if source.run is not None:
        run = await numbered_run(connection, source.job, source.run)
    return (await log_source(connection, source.job, run)).run_id


class _TellsReads(Interceptor):
    """A client's interceptor that adds a header to each request that starts a job's workflow. The
    header has the workflow id of the earlier job whose checkpoint the new job reads, because a
    server with an access policy checks whether the caller may read that job's files.
    """

    def __init__(self, workflow_id: str) -> None:
        self._workflow_id = workflow_id

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """See base class."""
        return _Outbound(next, self._workflow_id)


class _Outbound(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, workflow_id: str) -> None:
        super().__init__(next)
        self._workflow_id = workflow_id

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        """See base class."""
        told = DataConverter.default.payload_converter.to_payload(self._workflow_id)
        input.headers = {**input.headers, names.READS_HEADER: told}
        return await super().start_workflow(input)


def client_for(connection: Connection, source: CheckpointSource) -> Client:
    """Returns a client that starts jobs from this checkpoint. Its starts name the earlier job, as
    the servers of a cluster with identities check whether the caller may read that job's files.
    """
    client = connection.client
    tells = _TellsReads(names.job_workflow(connection.record.name, source.job))
    others = client.config(active_config=True)["interceptors"]
    return reconfigured(client, interceptors=[*others, tells])
