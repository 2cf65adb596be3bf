"""Decrypts payloads for Temporal's Web UI: a codec server of Temporal's protocol, on this machine, with this user's keys.

The browser asks this server and shows its answer, so neither the service nor the Web UI's server has a key.
Source of the protocol: docs.temporal.io/codec-server.
"""

import asyncio
import json
from collections.abc import Collection
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from temporalio.api.common.v1 import Payloads

from iris.client.connect.connection import CompressionCodec
from iris.client.connect.encryption import EncryptionCodec, PayloadKeys
from iris.model.errors import IrisError

#: Of a request, in bytes. A page of a history has at most 4 MiB; base64 and JSON add a third.
MOST = 16 * 1024 * 1024
ADDRESS = "127.0.0.1"


def decoded(text: bytes, keys: PayloadKeys | None) -> bytes:
    """Answers a request to decode.

    Args:
        text: JSON with the field `payloads`.

    Raises:
        ValueError: the text is no such request.
        Rejected: a key is missing.
    """
    try:
        request = ParseDict(json.loads(text), Payloads())
    except ParseError as error:
        raise ValueError(str(error)) from None
    plain = Payloads(payloads=asyncio.run(EncryptionCodec(CompressionCodec(), keys).decode(request.payloads)))
    return json.dumps(MessageToDict(plain)).encode()


def codec_server(port: int, origins: Collection[str], keys: PayloadKeys | None) -> ThreadingHTTPServer:
    """Returns a server on this machine that decodes for pages of these origins, and for nobody else in a browser.

    Args:
        port: 0 lets the system choose.
        origins: for example `http://127.0.0.1:8233`.

    Raises:
        OSError: the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_OPTIONS(self) -> None:
            self._answer(HTTPStatus.NO_CONTENT if self._is_allowed() else HTTPStatus.FORBIDDEN)

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not self._is_allowed():
                self._answer(HTTPStatus.FORBIDDEN)
            elif self.path != "/decode":
                self._answer(HTTPStatus.NOT_FOUND, b"only /decode")
            elif not length.isdecimal() or int(length) > MOST:
                self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            else:
                try:
                    self._answer(HTTPStatus.OK, decoded(self.rfile.read(int(length)), keys))
                except (ValueError, IrisError) as error:
                    self._answer(HTTPStatus.BAD_REQUEST, str(error).encode())

        def _is_allowed(self) -> bool:
            """Returns whether the request is of one of the pages, and to this server by its address.

            A foreign page whose host name leads here (DNS rebinding) has that name in `Host`.
            """
            host, _, port = self.headers.get("Host", "").rpartition(":")
            return self.headers.get("Origin") in origins and host in (ADDRESS, "localhost") and port.isdecimal()

        def _answer(self, status: HTTPStatus, body: bytes = b"") -> None:
            self.send_response(status)
            if self.headers.get("Origin") in origins:
                self.send_header("Access-Control-Allow-Origin", self.headers["Origin"])
                self.send_header("Access-Control-Allow-Headers", "Content-Type, X-Namespace")
                self.send_header("Access-Control-Allow-Methods", "POST")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing: requests have no news."""

    return ThreadingHTTPServer((ADDRESS, port), Handler)
