"""Proves that the sender of a message has the key of the cluster, and binds the message to its
receiver, to what it asks for and to its arguments.

The algorithms are HMAC-SHA-256, shortened to 16 bytes (RFC 2104), and HKDF-Expand for the keys of
jobs (RFC 5869). A message stays readable: encryption is another matter.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple, Self

#: The length of keys in bytes.
KEY_BYTES = 32
#: The length in bytes of the message authentication code in a `Proof`. RFC 2104 recommends at least
#: half of the hash's length.
CODE_BYTES = 16
_JOB_USE = b"iris job key 1 "
_STORE = "store"
#: The text that stands for an empty `Proof.job` in an encoded proof.
_NO_JOB = "-"


class Kind(StrEnum):
    """The kinds of messages that start or change something. Each of them needs a `Proof`; a query
    needs none.
    """

    START = "start"
    SIGNAL = "signal"
    UPDATE = "update"
    ACTIVITY = "activity"


class Message(NamedTuple):
    """The parts of a message that its `Proof` covers. If one of them is changed, the proof is not
    valid any more.
    """

    kind: Kind
    #: The type of the workflow or activity, or the name of the signal or update.
    name: str
    #: The id of the workflow that gets the message or starts the activity. For an activity without
    #: a workflow: its task queue and its id.
    receiver: str
    #: The arguments of the message, serialized.
    content: Sequence[bytes] = ()


class Proof(NamedTuple):
    """Proves that the sender of a message has the key of the cluster, or the key of a job's
    program. It is sent with the message.
    """

    at: datetime
    #: A text that the sender uses only once. If the sender is a workflow, the text begins with the
    #: id of the workflow's run and a slash.
    nonce: str
    #: The job whose key the sender has used; empty if it has used the key of the cluster.
    job: str
    code: bytes

    @property
    def run(self) -> str:
        """The run of the workflow that sent the message; empty: a client sent it."""
        run, slash, _ = self.nonce.rpartition("/")
        return run if slash else ""

    def encoded(self) -> bytes:
        when = _milliseconds(self.at)
        return f"{when} {self.nonce} {self.job or _NO_JOB} {self.code.hex()}".encode()

    @classmethod
    def decoded(cls, text: bytes) -> Self | None:
        """Returns the proof that somebody has sent; None if it is malformed."""
        try:
            at, nonce, job, code = text.decode().split(" ")
            when = datetime.fromtimestamp(int(at) / 1000, UTC)
            return cls(when, nonce, "" if job == _NO_JOB else job, bytes.fromhex(code))
        except (ValueError, OverflowError, OSError):
            return None


@dataclass(frozen=True)
class MessageKey:
    """The key of a cluster, which proves every message; or the key of a job's program, which proves
    only the messages that `may_send` allows.
    """

    secret: bytes = field(repr=False)
    #: The job whose program has the key; empty for the key of the cluster.
    job: str = ""

    def of_job(self, job: str) -> "MessageKey":
        """Returns the key for the program of a job."""
        # HKDF-Expand with one block. The key is random, so it needs no HKDF-Extract.
        return MessageKey(
            hmac.digest(self.secret, _JOB_USE + job.encode() + b"\x01", "sha256"), job
        )

    def prove(self, message: Message, at: datetime, nonce: str) -> Proof:
        """Returns the proof of a message."""
        return Proof(at, nonce, self.job, self._code_of(message, at, nonce))

    def problem(self, message: Message, proof: Proof | None) -> str:
        """Returns why the cluster, whose key this is, refuses a message with this proof; empty: it
        does not. The time and the nonce are left to the caller.
        """
        if proof is None:
            return "it is not authenticated with the cluster's key"
        using = self.of_job(proof.job) if proof.job else self
        if not hmac.compare_digest(proof.code, using._code_of(message, proof.at, proof.nonce)):
            return "its proof was made with another key, or for another message"
        if not may_send(proof.job, message):
            return (
                f"the key of job {proof.job} may only start jobs below that job, and signal that"
                " job, the jobs below it and their tasks"
            )
        return ""

    def mark(self, cluster: str, store: str) -> str:
        """Returns a text for the cluster's public description: it shows clients that the cluster
        has this key, and that its store is this one.
        """
        return self._code([_STORE, cluster, store]).hex()

    def _code_of(self, message: Message, at: datetime, nonce: str) -> bytes:
        about = [message.kind, message.name, message.receiver, str(_milliseconds(at)), nonce]
        return self._code(about, message.content)

    def _code(self, texts: Iterable[str], content: Iterable[bytes] = ()) -> bytes:
        code = hmac.new(self.secret, digestmod=hashlib.sha256)
        for part in (*(text.encode() for text in texts), *content):
            # The length first, so that no other parts give the same bytes.
            code.update(len(part).to_bytes(8, "big"))
            code.update(part)
        return code.digest()[:CODE_BYTES]


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def may_send(job: str, message: Message) -> bool:
    """Returns whether the program of a job may send this: it may start jobs below itself, and send
    signals to them, to their tasks and to itself.

    Args:
        job: empty for who has the cluster's key, and may send everything.
    """
    if not job:
        return True
    _, _, rest = message.receiver.partition("/")
    kind, _, receiver = rest.partition("/")
    if kind == "task":
        receiver = receiver.partition(":")[0]
    below = receiver.startswith(f"{job}/")
    match message.kind:
        case Kind.START:
            return kind == "job" and below
        case Kind.SIGNAL:
            return kind in ("job", "task") and (below or receiver == job)
        case _:
            return False
