"""Checks that the input of a workflow belongs to its id.

Temporal's servers check whose ids a client starts (`server/`), and not the inputs, which may be
encrypted. So a workflow refuses an input with which it would act for the job or slice of somebody
else.
"""

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from iris.model import names

#: The type of the failure of a workflow that refuses its input, for example because the input
#: belongs to a workflow with another id.
FOREIGN_INPUT = "FOREIGN_INPUT"


def check_id(expected: str) -> None:
    """Checks that this workflow has the id that its input names.

    Raises:
        ApplicationError: it has another id. It is not retried.
    """
    if (actual := workflow.info().workflow_id) != expected:
        raise foreign(f"it names workflow {expected}, but it was given to workflow {actual}")


def was_started_by_client() -> bool:
    """Returns whether a client started this run. Other runs are started by workflows, which have
    checked what they pass on.
    """
    info = workflow.info()
    return info.parent is None and info.continued_run_id is None


def check_reads(workflow_id: str) -> None:
    """Checks that the start of this workflow has told Temporal's servers whose files it reads, so
    that they have checked it.

    Args:
        workflow_id: the workflow whose files this one reads.

    Raises:
        ApplicationError: the start has not. It is not retried.
    """
    told = workflow.info().headers.get(names.READS_HEADER)
    # Compared as a payload, because one that cannot be decoded would stop the workflow.
    if told != workflow.payload_converter().to_payload(workflow_id):
        raise foreign(
            f"it reads files of workflow {workflow_id}, but the request that started this workflow"
            f" does not name {workflow_id} in the header {names.READS_HEADER}"
        )


def foreign(problem: str) -> ApplicationError:
    """Returns the error for an input that does not belong to this workflow."""
    text = f"the input is refused: {problem}; nothing was started"
    return ApplicationError(text, type=FOREIGN_INPUT, non_retryable=True)
