"""Messages for connections to the ports of a task (`iris port-forward`).

The data of connections is sent as frames through the store, like the input and output of commands
(`iris.messages.exec`). The frames of a connection begin with its number. Each side limits how much
the other may send on each connection, so that a connection that is not read delays no other.
"""

from typing import NamedTuple

from pydantic import Field

from iris.messages.exec import Frame, FrameKind, SessionRequest
from iris.model.frozen import Frozen
from iris.model.units import KIB, MIB

#: The name of the activity that connects a client to the ports of a task. Every host serves it on
#: its own task queue.
FORWARD_PORTS = "forward_ports"
#: The maximum number of bytes of a connection that one side has sent and the other side has not
#: consumed yet.
WINDOW = 1 * MIB
#: The maximum number of bytes of data in one frame.
BLOCK = 64 * KIB
#: The maximum number of open connections of a session. Each connection may need `WINDOW` bytes of
#: memory on both sides.
MAX_CONNECTIONS = 128
_NUMBER_BYTES = 4


class ForwardRequest(SessionRequest):
    """A request to connect to ports on a task's host."""

    #: The ports: numbers, or names of the job's own ports (`iris submit --port NAME`).
    ports: tuple[str, ...] = Field(min_length=1)


class ForwardReady(Frozen):
    """The first message of a host in a session: the host now accepts connections."""

    #: The numbers of the requested ports.
    ports: tuple[int, ...]
    #: Identifies the host's machine and network namespace. If the client has the same value, it
    #: must not listen on the ports of the task, because the task itself uses them there.
    machine: str


class ForwardEnd(Frozen):
    """The end of a session of port forwarding."""

    reason: str
    #: The number of chunks (numbered objects in the store) that the host wrote for the client.
    chunks: int = 0


class OfConnection(NamedTuple):
    """The content of a frame (a piece of the data that client and host exchange): the number of a
    connection, and data that is sent through this connection.
    """

    number: int
    data: bytes


def connection_frame(kind: FrameKind, number: int, data: bytes = b"") -> Frame:
    return Frame(kind, number.to_bytes(_NUMBER_BYTES, "big") + data)


def parse(frame: Frame) -> OfConnection:
    """Returns the contents of a connection's frame.

    Raises:
        ValueError: the frame has no number.
    """
    if len(frame.data) < _NUMBER_BYTES:
        raise ValueError("a frame of a connection has no number")
    return OfConnection(
        int.from_bytes(frame.data[:_NUMBER_BYTES], "big"), frame.data[_NUMBER_BYTES:]
    )
