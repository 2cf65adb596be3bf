"""A codec server on this machine, which decrypts payloads for Temporal's Web UI with the keys of
this user.

The browser sends encrypted payloads to this server and shows its answers. So neither the Temporal
service nor the server of the Web UI has a key. The protocol is in docs.temporal.io/codec-server.
"""

import asyncio
import hmac
import json
import secrets
from collections.abc import Collection
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from temporalio.api.common.v1 import Payloads

from iris.client.connect.connection import CompressionCodec
from iris.client.connect.encryption import EncryptionCodec, PayloadKeys
from iris.model.errors import IrisError
from iris.model.ip_address import host_of

#: The maximum size of a request, in bytes. A page of a history has at most 4 MiB; base64 and JSON
#: add a third.
MOST = 16 * 1024 * 1024
#: The only address on which the server listens.
ADDRESS = "127.0.0.1"
#: The number of random bytes in the secret part of the server's address.
SECRET_BYTES = 32


def decoded(text: bytes, keys: PayloadKeys | None) -> bytes:
    """Answers a request to decode.

    Args:
        text: JSON with the field `payloads`.

    Raises:
        ValueError: the text is not such a request.
        Rejected: a key is missing.
    """
    try:
        request = ParseDict(json.loads(text), Payloads())
    except ParseError as error:
        raise ValueError(str(error)) from None
    plain = Payloads(
        payloads=asyncio.run(EncryptionCodec(CompressionCodec(), keys).decode(request.payloads))
    )
    return json.dumps(MessageToDict(plain)).encode()


class CodecServer(ThreadingHTTPServer):
    """A server on this machine that decodes payloads for Web pages of the allowed origins.

    The headers Origin and Host keep other pages of the user's browser away. Other programs of this
    machine can send any header, so the address has a secret.

    Args:
        port: the port of the server; 0 lets the system choose.
        origins: the origins of the pages, such as `http://127.0.0.1:8233`.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, port: int, origins: Collection[str], keys: PayloadKeys | None) -> None:
        self.origins, self.keys = origins, keys
        self._secret = secrets.token_urlsafe(SECRET_BYTES)
        super().__init__((ADDRESS, port), _Handler)

    @property
    def endpoint(self) -> str:
        """The address for the settings of the Web UI. Everybody who has the address can decrypt."""
        return f"http://{ADDRESS}:{self.server_address[1]}/{self._secret}"

    def is_secret(self, text: str) -> bool:
        """Returns whether the text is the secret of the address. The time of the comparison does
        not depend on the text.
        """
        return hmac.compare_digest(text.encode("latin-1", "replace"), self._secret.encode())


class _Handler(BaseHTTPRequestHandler):
    server: CodecServer
    #: How long the server waits for the next part of a request, in seconds.
    timeout = 30

    def do_OPTIONS(self) -> None:
        self._answer(HTTPStatus.NO_CONTENT if self._verb() is not None else HTTPStatus.FORBIDDEN)

    def do_POST(self) -> None:
        verb, length = self._verb(), self.headers.get("Content-Length", "")
        if verb is None:
            self._answer(HTTPStatus.FORBIDDEN)
        elif verb != "decode":
            self._answer(HTTPStatus.NOT_FOUND, b"only /decode")
        elif not length.isdecimal() or int(length) > MOST:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            try:
                body = decoded(self.rfile.read(int(length)), self.server.keys)
            except (ValueError, IrisError) as error:
                self._answer(HTTPStatus.BAD_REQUEST, str(error).encode())
            else:
                self._answer(HTTPStatus.OK, body)

    def _verb(self) -> str | None:
        """Returns the operation that a request asks for. Returns None if the request is not from
        one of the pages or not for this server.

        The Web UI asks for `ENDPOINT/decode?OPTION`. A page whose host name resolves to this
        machine (DNS rebinding) has that name in `Host`.
        """
        secret, _, verb = self.path.partition("?")[0].removeprefix("/").partition("/")
        host = host_of(self.headers.get("Host", ""))
        is_ours = self._is_of_a_page() and host in (ADDRESS, "localhost")
        return verb if self.server.is_secret(secret) and is_ours else None

    def _is_of_a_page(self) -> bool:
        return self.headers.get("Origin") in self.server.origins

    def _answer(self, status: HTTPStatus, body: bytes = b"") -> None:
        self.send_response(status)
        if self._is_of_a_page():
            self.send_header("Access-Control-Allow-Origin", self.headers["Origin"])
            self.send_header("Access-Control-Allow-Headers", "Content-Type, X-Namespace")
            self.send_header("Access-Control-Allow-Methods", "POST")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing, because the path of a request has the secret."""
