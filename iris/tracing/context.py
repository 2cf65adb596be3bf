"""A finished span, its identity in the form of the W3C (`traceparent`), and the header with it.

The identity of each span of a job is computed from the trace and from a name that no other span
has. So a span can be exported after its end, by any process, and a second export of the same span,
as after a crash, is the same span again.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Self

from temporalio.api.common.v1 import Payload

#: The name of the Temporal header that carries the trace of a job's workflow or activity.
HEADER = "iris-trace"
#: Matches a `traceparent`: the version, the id of the trace, the id of the span and the flags.
#: Source: W3C Trace Context, section 3.2.
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
#: The `traceparent` that the running activity passes to the program that it starts; empty if the
#: activity received none.
received: ContextVar[str] = ContextVar("received", default="")


class TraceContext(NamedTuple):
    """Identifies a span: its trace, its own id, and whether it is exported."""

    trace_id: str
    span_id: str
    #: Whether the span is exported. The submitter of a job decides for the whole trace.
    sampled: bool = True

    @classmethod
    def parse(cls, text: object) -> Self | None:
        """Returns the identity in a `traceparent`; None if the text is no valid one."""
        found = _TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
        if found is None or not int(found[1], 16) or not int(found[2], 16):
            return None
        return cls(found[1], found[2], bool(int(found[3], 16) & 1))

    @classmethod
    def root(cls, name: str) -> Self:
        """Returns the first span of a trace of its own.

        Args:
            name: no other trace has this name.
        """
        return cls(_digest(f"trace/{name}")[:32], _digest(f"span/{name}")[:16])

    def child(self, name: str) -> Self:
        """Returns a span below this one.

        Args:
            name: no other span of the trace has this name.
        """
        return self._replace(span_id=_digest(f"{self.trace_id}/{name}")[:16])

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


@dataclass(frozen=True)
class Span:
    """A finished span."""

    name: str
    context: TraceContext
    parent: TraceContext | None
    start: datetime
    end: datetime
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    #: The reason why the traced operation failed; empty if it succeeded.
    error: str = ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def header(fields: Mapping[str, str]) -> Payload:
    """Returns the header with these fields, which `decode` reads."""
    return Payload(data=json.dumps(fields).encode())


def decode(data: bytes) -> Mapping[str, Any]:
    """Returns the fields of a header. Any client can write any header: returns no fields if it has
    another form.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
