"""How the activities of the control plane use the Temporal service."""

from temporalio.service import RPCStatusCode

#: Concurrent signals: enough to hide the round trip, far below the frontend's limits.
AT_ONCE = 32
#: The server's answers that may come to any request, because the server is away or busy. Other errors are about one owner.
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
