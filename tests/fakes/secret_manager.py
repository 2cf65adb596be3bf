"""Google Secret Manager, as far as a machine asks it: the value of a version, for those who show an
access token.
"""

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: The token that `tests.fakes.google` and the tests give to machines.
TOKEN = "ya29.fake"


class FakeSecretManager:
    """A server of the values by their resources, `projects/P/secrets/S/versions/V`.

    Args:
        token: what callers have to show; empty: nothing, as at an address without TLS.
    """

    def __init__(self, values: Mapping[str, str], token: str = TOKEN) -> None:
        self.token = token
        self.values = dict(values)
        #: So many calls fail first.
        self.fails = 0
        self.url = ""

    def answer(self, path: str, authorization: str) -> tuple[int, dict[str, object]]:
        """Returns the status and the content of an answer."""
        resource = path.removeprefix("/v1/").removesuffix(":access")
        if self.fails:
            self.fails -= 1
            return 503, {"error": {"code": 503, "message": "The service is currently unavailable."}}
        if self.token and authorization != f"Bearer {self.token}":
            return 401, {
                "error": {"code": 401, "message": "Request had invalid authentication credentials."}
            }
        if resource not in self.values:
            return 404, {
                "error": {
                    "code": 404,
                    "message": f"Secret [{resource}] not found or has no versions.",
                }
            }
        data = base64.b64encode(self.values[resource].encode()).decode()
        return 200, {"name": resource, "payload": {"data": data, "dataCrc32c": "1"}}

    @contextmanager
    def started(self) -> Iterator["FakeSecretManager"]:
        """Serves at a free port for as long as the block lasts."""
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, content = fake.answer(self.path, self.headers.get("Authorization", ""))
                body = json.dumps(content, indent=2).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Prints nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_address[1]}"
            serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            serving.start()
            try:
                yield self
            finally:
                server.shutdown()
                serving.join()
