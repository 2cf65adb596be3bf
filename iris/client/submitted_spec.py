"""Reads the specification with which a job was submitted from the history of its first run."""

from temporalio.api.enums.v1 import EventType

from iris.client.connect.rpc import Connection
from iris.messages.submission import JobSubmission
from iris.model import names
from iris.model.errors import NotFound
from iris.model.jobs import JobSpec


async def submitted_spec(connection: Connection, job: str, run_id: str | None = None) -> JobSpec:
    """Returns the specification with which the job was submitted.

    Raises:
        NotFound: the service has no history of the job.
        Unreachable: the service does not answer.
    """
    handle = connection.workflow(names.job_workflow(connection.record.name, job), run_id)
    with connection.rpc_errors():
        async for event in handle.fetch_history_events(page_size=1):
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                payloads = event.workflow_execution_started_event_attributes.input.payloads
                (submitted,) = await connection.client.data_converter.decode(payloads, [JobSubmission])
                assert isinstance(submitted, JobSubmission)
                return submitted.spec
            break
    raise NotFound(f"the service has no history of job {job}")
