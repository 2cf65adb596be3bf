"""A way to a Temporal service that holds its answers back: what a command has sent arrives, and it
does not learn so.
"""

import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

#: How a compressed message begins.
_GZIP = b"\x1f\x8b\x08"


class HeldAnswers:
    """Passes bytes on between clients and the service.

    Args:
        service: `host:port`.
        after: once a client has sent this, no answer passes until `release`.
    """

    def __init__(self, service: str, after: bytes) -> None:
        host, _, port = service.rpartition(":")
        self._service = (host, int(port))
        self._after = after
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open = threading.Event()
        self._open.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    @property
    def holds(self) -> bool:
        return not self._open.is_set()

    def release(self) -> None:
        self._after = b""
        self._open.set()

    def close(self) -> None:
        self.release()
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                service = socket.create_connection(self._service)
                for work in (self._ask, self._answer):
                    threading.Thread(target=work, args=(client, service), daemon=True).start()

    def _ask(self, client: socket.socket, service: socket.socket) -> None:
        sent = b""
        with suppress(OSError), service:
            while data := client.recv(65536):
                sent += data
                if self._after and any(self._after in message for message in _messages(sent)):
                    self._open.clear()
                service.sendall(data)

    def _answer(self, client: socket.socket, service: socket.socket) -> None:
        with suppress(OSError), client:
            while data := service.recv(65536):
                self._open.wait()
                client.sendall(data)


def _messages(sent: bytes) -> Iterator[bytes]:
    """Yields the compressed messages in these bytes, as far as they have come."""
    at = sent.find(_GZIP)
    while at >= 0:
        with suppress(zlib.error):
            yield zlib.decompressobj(wbits=31).decompress(sent[at:])
        at = sent.find(_GZIP, at + 1)


@contextmanager
def held_answers(service: str, after: str) -> Iterator[HeldAnswers]:
    """Gives a way to the service, which ends with the block."""
    held = HeldAnswers(service, after.encode())
    try:
        yield held
    finally:
        held.close()
