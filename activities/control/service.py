"""How the activities of the control plane use the Temporal service."""

from temporalio.client import WorkflowExecutionDescription
from temporalio.service import RPCStatusCode

#: Concurrent signals: enough to hide the round trip, far below the frontend's limits.
AT_ONCE = 32
#: The server's answers that may come to any request, because the server is away or busy. Other
#: errors are about one owner.
AWAY = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.ABORTED,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.UNKNOWN,
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
)


def first_run(described: WorkflowExecutionDescription) -> str:
    """Returns the run that a described run goes back to, through all that continued as new: it
    identifies a job among those of its name.
    """
    return described.raw_description.workflow_execution_info.first_run_id or described.run_id or ""
