"""Reads the specification with which a job was submitted from the history of its first run."""

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.service import first_run
from iris.client.connect.rpc import Connection
from iris.client.jobs.lists import describe_job, unknown_job
from iris.client.logs.follow import reading_from
from iris.client.views import attribute, page_of
from iris.client.workspace.upload import FRESH
from iris.messages.submission import JobSubmission
from iris.model import names
from iris.model.errors import NotFound
from iris.model.job.bundles import Bundle
from iris.model.job.spec import JobSpec
from iris.storage.object_store import Store


@dataclass(frozen=True)
class Submission:
    """What a job was submitted with, and what the service knows of it beside that."""

    spec: JobSpec
    #: The band that the job is in now.
    priority: str
    #: The address of its page in Temporal's Web UI; empty: the cluster has none.
    page: str
    #: The id of its first run; it may have continued as new.
    run_id: str


async def submission_of(connection: Connection, job: str, run_id: str | None = None) -> Submission:
    """Returns what the job was submitted with. Asks only the service, so it works while no control
    plane answers.

    Raises:
        NotFound: there is no such job.
        Unreachable: the service does not answer.
    """
    described, cluster = await describe_job(connection, job, run_id), connection.record
    spec = await submitted_spec(connection, job, described.run_id)
    return Submission(
        spec=spec,
        priority=attribute(described, names.SA_PRIORITY) or spec.band,
        page=page_of(cluster.ui, cluster.namespace, described.id, run_id),
        run_id=first_run(described),
    )


async def submitted_spec(connection: Connection, job: str, run_id: str | None = None) -> JobSpec:
    """Returns the specification with which the job was submitted.

    Raises:
        NotFound: there is no such job, or the service has no history of it.
        Unreachable: the service does not answer.
    """
    handle = connection.workflow(names.job_workflow(connection.record.name, job), run_id)
    with connection.rpc_errors():
        try:
            async for event in handle.fetch_history_events(page_size=1):
                if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                    payloads = event.workflow_execution_started_event_attributes.input.payloads
                    (submitted,) = await connection.client.data_converter.decode(
                        payloads, [JobSubmission]
                    )
                    assert isinstance(submitted, JobSubmission)
                    return submitted.spec
                break
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise await unknown_job(connection, job) from None
            raise
    raise NotFound(f"the service has no history of job {job}")


def bundles_of(spec: JobSpec) -> list[Bundle]:
    """Returns the bundles that the tasks of the job need."""
    table = None if spec.array is None else spec.array.table
    return [bundle for bundle in (spec.bundle, spec.call, table) if bundle is not None]


async def keep_bundles(store: Store, spec: JobSpec) -> None:
    """Writes the bundles of the job again that are old, before it is submitted again, lest `iris
    cluster gc` deletes them.

    Raises:
        NotFound: one of them is not in the store any more.
        IrisError: the store does not answer.
    """
    for bundle in bundles_of(spec):
        name, title = names.bundle(bundle.sha256), f"bundle {bundle.sha256[:12]}"
        with reading_from(store, title), tempfile.TemporaryDirectory(prefix="iris-") as directory:
            written = await store.modified(name)
            if written is not None and datetime.now(UTC) - written < FRESH:
                continue
            file = Path(directory) / "bundle.tar.gz"
            if written is None or not await store.get_file(name, file):
                remedy = "submit the job from its files again"
                raise NotFound(f"{title} is not in the store {store.url} any more; {remedy}")
            await store.put_file(name, file)
