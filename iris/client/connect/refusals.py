"""Converts refusals of a Temporal service to errors for users: who was refused, what, and the
remedy.
"""

import re

from temporalio.service import RPCError, RPCStatusCode

from iris.client.access.selection import token_source
from iris.client.connect.credentials import credentials_for
from iris.model import names
from iris.model.errors import NotAllowed, Rejected

#: The status codes of a service that does not accept a client or a call.
_REFUSED = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED)
#: Matches the text of the error that a client gets if the service refuses the connection.
_AT_ONCE = re.compile(r'code: (PermissionDenied|Unauthenticated), message: "([^"]*)"')


def is_refusal(error: RPCError) -> bool:
    """Returns whether a service does not accept the client or the call."""
    return error.status in _REFUSED


def refused(error: RPCError, address: str) -> Rejected | None:
    """Returns the error for the user if the service at this address refuses the client or the call;
    None for any other RPC error.
    """
    return _refusal(error.message, address) if is_refusal(error) else None


def refused_at_once(error: Exception, address: str) -> Rejected | None:
    """Returns the error for the user if the service at this address refuses a new client; None for
    any other error of a client that connects.
    """
    found = _AT_ONCE.search(str(error))
    return _refusal(found[2], address) if found is not None else None


def _refusal(message: str, address: str) -> Rejected:
    if (source := token_source(address)) is not None:
        who = source.name or f"the token of {names.ENV_TOKEN_COMMAND}"
        return NotAllowed(
            f"the service at {address} refuses {who}: {message}; `iris whoami` shows who you are"
            " there; an operator can do it for you, an administrator can add your key or change"
            " your role"
        )
    remedy = credentials_for(address).withheld or (
        f"set TEMPORAL_ADDRESS={address} and Temporal's variables for its credentials, such as"
        " TEMPORAL_API_KEY"
    )
    return Rejected(
        f"the Temporal service at {address} refuses this client: {message}; {remedy}; on a cluster"
        f" with identities, make a key: iris user key --cluster {address}/NAME"
    )
