"""Reads the specification with which a job was submitted from the history of its first run."""

from temporalio.api.enums.v1 import EventType
from temporalio.service import RPCError, RPCStatusCode

from iris.client.connect.rpc import Connection
from iris.client.job_lists import unknown_job
from iris.messages.submission import JobSubmission
from iris.model import names
from iris.model.errors import NotFound
from iris.model.jobs import JobSpec


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
                    (submitted,) = await connection.client.data_converter.decode(payloads, [JobSubmission])
                    assert isinstance(submitted, JobSubmission)
                    return submitted.spec
                break
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise await unknown_job(connection, job) from None
            raise
    raise NotFound(f"the service has no history of job {job}")
