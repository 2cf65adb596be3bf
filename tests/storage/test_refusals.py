"""Which failures of a store last: a real client of S3 asks a server that gives one answer to each
request.
"""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from iris.storage.object_store import STORE_ERRORS, Store
from iris.storage.refusals import remedy


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Store]]:
    """A bucket that answers each request with the same status."""
    servers = []

    def answering(status: int) -> Store:
        class Answer(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "here",
        }
        for name, value in {
            **here,
            "AWS_ACCESS_KEY_ID": "ada",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }.items():
            monkeypatch.setenv(name, value)
        return Store("s3://bucket/cluster")

    yield answering
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "what"),
    [
        (403, "read, write and delete"),
        (401, "renew the credentials"),
        (404, "create the bucket"),
        (400, "correct controller.bundle_prefix"),
        (301, "set the region"),
    ],
)
async def test_a_refusal_by_a_bucket_has_a_remedy(
    bucket: Callable[[int], Store], status: int, what: str
) -> None:
    """To repeat the request would hang the program."""
    with pytest.raises(STORE_ERRORS) as refused:
        await bucket(status).put("a", b"data")

    assert what in (remedy(refused.value) or "")


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("no answer"),
        ConnectionResetError("reset"),
        OSError("Server returned non-2xx status code: 503 Slow Down"),
    ],
    ids=["timeout", "reset", "503"],
)
def test_an_outage_may_pass(error: Exception) -> None:
    """Such a request is repeated."""
    assert remedy(error) is None


async def test_a_directory_that_cannot_hold_the_store_has_a_remedy(tmp_path: Path) -> None:
    """The library gives this failure no type: only the number of the operating system tells it."""
    store = Store((tmp_path / "store").as_uri(), create=True)
    (tmp_path / "store" / "pool").write_text("a file where a directory has to be")

    with pytest.raises(STORE_ERRORS) as refused:
        await store.put("pool/1", b"data")

    assert "correct controller.bundle_prefix" in (remedy(refused.value) or "")


def test_a_full_disk_has_a_remedy() -> None:
    """It stays full until somebody frees space."""
    assert "free disk space" in (remedy(OSError(28, "No space left on device")) or "")
    assert "free disk space" in (
        remedy(OSError("Unable to copy data: No space left on device (os error 28)")) or ""
    )
