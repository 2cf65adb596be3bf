"""Reads the specification with which a job was submitted from the history of its first run."""

from dataclasses import dataclass

from temporalio.api.enums.v1 import EventType
from temporalio.service import RPCError, RPCStatusCode

from iris.activities.control.service import first_run
from iris.client.connect.rpc import Connection
from iris.client.jobs.find import describe_job, unknown_job
from iris.client.jobs.rows import attribute
from iris.messages.submission import JobSubmission
from iris.model import names
from iris.model.errors import NotFound
from iris.model.job.spec import JobSpec


@dataclass(frozen=True)
class Submission:
    """The specification with which a job was submitted, its current priority, and its page and run
    id.
    """

    spec: JobSpec
    #: The current priority band of the job.
    priority: str
    #: The address of the job's page in Temporal's Web UI. Empty if the cluster has no Web UI.
    page: str
    #: The Temporal run id of the first run of the job's workflow. If the workflow has continued as
    #: new, its later runs have other ids.
    run_id: str


async def submission_of(connection: Connection, job: str, run_id: str | None = None) -> Submission:
    """Returns the submission of the job. Asks only the service, so it works while no control plane
    answers.

    Raises:
        NotFound: there is no such job.
        Unreachable: the service does not answer.
    """
    described = await describe_job(connection, job, run_id)
    spec = await submitted_spec(connection, job, described.run_id)
    return Submission(
        spec=spec,
        priority=attribute(described, names.SA_PRIORITY) or spec.band,
        page=connection.page(described.id, run_id),
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
    raise NotFound(
        f"the Temporal service has no history of job {job}, so its specification is not known"
    )
