"""Authenticates the messages of a cluster: proves that their sender has the cluster's key, and
binds each message to its receiver and to what it asks for.

The algorithms are HMAC-SHA-256, shortened to 16 bytes (RFC 2104), and HKDF-Expand for the keys of
jobs (RFC 5869). A message stays readable; encryption is another matter.
"""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

#: The length of keys in bytes.
KEY_BYTES = 32
#: The length of the code that authenticates a message, in bytes. RFC 2104 asks for at least half of
#: the hash.
CODE_BYTES = 16
#: How much the clocks of a sender and of Temporal may differ, and how long a sender tries. Within
#: this time before a workflow's start, a message to its earlier run can be sent again.
SKEW = timedelta(minutes=1)
START, ACTIVITY = "start", "activity"
_QUERY = "query"
_USE = b"iris job key 1 "
_ID_USE = b"iris key id 1"


@dataclass(frozen=True)
class MessageKey:
    """The key of a cluster, or a narrower one of a job's program."""

    secret: bytes = field(repr=False)
    #: The job whose program has the key; empty: it is the key of the cluster.
    job: str = ""

    @property
    def id(self) -> str:
        """A text by which a client finds out whether it has the key of a cluster. It tells nothing
        about the key.
        """
        return self._expand(_ID_USE)[:8].hex()

    def of_job(self, job: str) -> "MessageKey":
        """Returns the key for the program of a job."""
        return MessageKey(self._expand(_USE + job.encode()), job)

    def code(self, receiver: str, content: Iterable[bytes]) -> bytes:
        """Returns the code of a message to this receiver."""
        code = hmac.new(self.secret, digestmod=hashlib.sha256)
        for part in (receiver.encode(), *content):
            # The length first, so that no other parts give the same text.
            code.update(len(part).to_bytes(8, "big"))
            code.update(part)
        return code.digest()[:CODE_BYTES]

    def is_code(self, code: bytes, receiver: str, content: Iterable[bytes]) -> bool:
        """Returns whether this is the code of a message to this receiver."""
        return hmac.compare_digest(code, self.code(receiver, content))

    def _expand(self, info: bytes) -> bytes:
        # HKDF-Expand with one block. The key is random, so it needs no HKDF-Extract.
        return hmac.digest(self.secret, info + b"\x01", "sha256")


class Claim(NamedTuple):
    """What a message is for. It is sent with the message, and its code covers it."""

    #: `start`, `activity`, or the kind and the name of a message, such as `signal hold`.
    action: str
    at: datetime
    #: A text that the sender uses once.
    nonce: str

    def encoded(self) -> bytes:
        milliseconds = int(self.at.timestamp() * 1000)
        return f"{self.nonce} {milliseconds} {self.action}".encode()

    @classmethod
    def decoded(cls, text: bytes) -> "Claim":
        """Returns the claim in an authentic message."""
        nonce, milliseconds, action = text.decode().split(" ", 2)
        return cls(action, datetime.fromtimestamp(int(milliseconds) / 1000, UTC), nonce)


def named(kind: str, name: str) -> str:
    """Returns the action of a signal, an update or a query."""
    return f"{kind} {name}"


def may_send(job: str, action: str, workflow_id: str) -> bool:
    """Returns whether the program of a job may send this to a workflow: it may start jobs below
    itself, send messages to them and to itself, and query everything.

    Args:
        job: the job whose key authenticates the message; empty for the cluster's key.
    """
    if not job or action.startswith(f"{_QUERY} "):
        return True
    _, _, rest = workflow_id.partition("/")
    kind, _, receiver = rest.partition("/")
    if kind == "task":
        receiver = receiver.partition(":")[0]
    below = receiver.startswith(f"{job}/")
    if action == START:
        return kind == "job" and below
    return kind in ("job", "task") and (below or receiver == job)
