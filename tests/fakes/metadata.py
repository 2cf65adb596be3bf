"""A metadata server as Google's machines have one: values at paths, etags, questions that wait for
a change.
"""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

ROOT = "/computeMetadata/v1/"


class FakeMetadata:
    """The server, from `started` on."""

    def __init__(self) -> None:
        self.url = ""
        #: Answered with an error before anything else, so many times.
        self.fails = 0
        #: Whether it says that it is Google's.
        self.genuine = True
        #: The questions that have come, as path and query.
        self.asked: list[str] = []
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()
        self._closed = False

    def set(self, **values: str) -> None:
        """Give values below `instance/`; a name is a path with `__` for each slash, `_` for each
        dash.
        """
        for name, value in values.items():
            self.put(f"instance/{name.replace('__', '/').replace('_', '-')}", value)

    def put(self, path: str, value: str) -> None:
        """Give the value at a whole path, such as `instance/attributes/a-Name`."""
        with self._changed:
            self._values[path] = value
            self._changed.notify_all()

    def told(self, path: str, body: bytes) -> bytes | None:
        """The answer to a POST, for servers that know more than values; None: there is no such
        thing.
        """
        return None

    def wait_for_question(self, path: str, within: float = 10.0) -> None:
        """Until somebody waits for the value at the path to change."""
        with self._changed:
            came = self._changed.wait_for(
                lambda: any(f"{path}?" in asked for asked in self.asked), within
            )
        assert came, f"nobody waits for {path}"

    def answer(self, path: str) -> tuple[int, str, str]:
        """(status, value, etag)"""
        url = urlsplit(path)
        name, query = url.path.removeprefix(ROOT), parse_qs(url.query)
        with self._changed:
            self.asked.append(path.removeprefix(ROOT))
            self._changed.notify_all()
            if self.fails:
                self.fails -= 1
                return 503, "", "0"
            if name not in self._values:
                return 404, "", "0"
            if "wait_for_change" in query:
                last, patience = query.get("last_etag", ["0"])[0], float(query["timeout_sec"][0])
                self._changed.wait_for(
                    lambda: self._closed or _etag(self._values[name]) != last, patience
                )
            return 200, self._values[name], _etag(self._values[name])

    @contextmanager
    def started(self, port: int = 0) -> Iterator["FakeMetadata"]:
        """Serve; port 0: any free one."""
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                ours = self.path.startswith(ROOT) and self.headers["Metadata-Flavor"] == "Google"
                status, value, etag = fake.answer(self.path) if ours else (403, "", "0")
                body = value.encode()
                self.send_response(status)
                if fake.genuine:
                    self.send_header("Metadata-Flavor", "Google")
                self.send_header("ETag", etag)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                answer = fake.told(self.path, self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(404 if answer is None else 200)
                self.send_header("Content-Length", str(len(answer or b"")))
                self.end_headers()
                self.wfile.write(answer or b"")

            def log_message(self, format: str, *args: object) -> None:
                """It says nothing."""

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:  # who asked has gone
                    self.close_connection = True

        with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
            server.daemon_threads = True
            self.url = f"http://127.0.0.1:{server.server_address[1]}"
            serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            serving.start()
            try:
                yield self
            finally:
                with self._changed:
                    self._closed = True
                    self._changed.notify_all()
                server.shutdown()
                serving.join()


def _etag(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]
