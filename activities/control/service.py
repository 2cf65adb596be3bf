"""Constants and functions for calls of the control plane's activities to the Temporal service."""

from temporalio.client import WorkflowExecutionDescription
from temporalio.service import RPCStatusCode

#: The maximum number of calls that one activity makes to the service at the same time. The number
#: is large enough to hide the round-trip time, and far below the service's limits.
AT_ONCE = 32
#: The server's status codes for any request while it is away or busy. All other codes are about the
#: one workflow of the request.
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
    """Returns the first run of a workflow that has continued as new. It identifies a job among all
    jobs of its name.
    """
    return described.raw_description.workflow_execution_info.first_run_id or described.run_id or ""
