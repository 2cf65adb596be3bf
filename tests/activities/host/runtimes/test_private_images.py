"""Images that only the machine's own account may read: what the engine is told with a pull, and
what never leaves the machine.
"""

import base64
import json
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from iris.activities.host.attempt.host_context import HostContext
from iris.storage.object_store import Store
from iris.worker_agents.host.metadata import Metadata
from tests.activities.host.attempt.test_attempt import Server, a_run
from tests.builders import a_host
from tests.fakes.metadata import FakeMetadata

PRIVATE = "europe-west4-docker.pkg.dev/my-project/images/train:1"
TOKEN = '{"access_token":"ya29.first","expires_in":3599,"token_type":"Bearer"}'
TOKEN_PATH = "instance/service-accounts/default/token"


class Engine(socketserver.ThreadingUnixStreamServer):
    """As much of a container engine as fetching an image needs."""

    daemon_threads = True

    def __init__(self, path: str) -> None:
        super().__init__(path, _Answers)
        self.images: set[str] = set()
        #: Of each pull what was shown to the registry, by the engine's own word for it; None:
        #: nothing.
        self.shown: list[dict[str, str] | None] = []


class _Answers(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        image = path.partition("/images/")[2].removesuffix("/json")
        if path.endswith("/version"):
            self._say(200, {"ApiVersion": "1.45"})
        elif image and image not in self.server.images:
            self._say(404, {"message": f"No such image: {image}"})
        elif image:
            self._say(200, {"Id": f"sha256:{image}", "Config": {"Env": []}})
        else:
            self._say(200, {"InitCommit": {"ID": "N/A"}})

    def do_POST(self) -> None:
        query = dict(each.split("=", 1) for each in unquote(urlsplit(self.path).query).split("&"))
        header = self.headers["X-Registry-Auth"]
        self.server.shown.append(json.loads(base64.urlsafe_b64decode(header)) if header else None)
        self.server.images.add(f"{query['fromImage']}:{query['tag']}")
        self._say(200, {"status": "Status: Downloaded"})

    def _say(self, status: int, answer: object) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "the agent"

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to know."""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    # Short: it is a socket.
    with (
        tempfile.TemporaryDirectory(prefix="iris-") as home,
        Engine(f"{home}/docker.sock") as engine,
    ):
        threading.Thread(
            target=engine.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/docker.sock")
        monkeypatch.setenv("DOCKER_CONFIG", home)  # nobody has logged in
        yield engine
        engine.shutdown()


@pytest.fixture
def google() -> Iterator[FakeMetadata]:
    with FakeMetadata().started() as fake:
        fake.put(TOKEN_PATH, TOKEN)
        yield fake


async def fetch(directory: Path, image: str, metadata: FakeMetadata) -> None:
    """What an agent on a machine of Google's does for a task."""
    attempt = directory / "attempts" / "only"
    attempt.mkdir(parents=True, exist_ok=True)
    context = HostContext(
        client=Server().client,
        store=Store((directory / "store").as_uri(), create=True),
        cluster="local",
        host=a_host("h1"),
        directory=directory,
        cache_dir=directory / "cache",
        registry_token=Metadata(metadata.url).access_token,
    )
    await context.runtime(a_run(image=image), attempt).prepare()


@pytest.mark.parametrize(
    "image", [PRIVATE, "gcr.io/my-project/train:1", "eu.gcr.io/my-project/train:1"]
)
async def test_googles_registries_are_shown_the_machines_token(
    tmp_path: Path, engine: Engine, google: FakeMetadata, image: str
) -> None:
    """The images of jobs are private as a rule, and nobody logs in on machines that come and go."""
    await fetch(tmp_path, image, google)

    assert engine.shown == [{"username": "oauth2accesstoken", "password": "ya29.first"}]


async def test_every_pull_shows_a_token_of_its_own(
    tmp_path: Path, engine: Engine, google: FakeMetadata
) -> None:
    """They hold for an hour, machines for weeks. What is here needs none."""
    await fetch(tmp_path, PRIVATE, google)
    await fetch(tmp_path, PRIVATE, google)
    google.put(TOKEN_PATH, TOKEN.replace("first", "second"))
    await fetch(tmp_path, f"{PRIVATE}.1", google)

    assert [shown and shown["password"] for shown in engine.shown] == ["ya29.first", "ya29.second"]
    assert google.asked == [TOKEN_PATH, TOKEN_PATH]


@pytest.mark.parametrize(
    "image", ["busybox:1", "example.com/europe-west4-docker.pkg.dev/x:1", "gcr.io.example.com/x:1"]
)
async def test_nobody_else_is_shown_the_token(
    tmp_path: Path, engine: Engine, google: FakeMetadata, image: str
) -> None:
    """Who has it may do what the machine may."""
    await fetch(tmp_path, image, google)

    assert engine.shown == [None]
    assert google.asked == []


@pytest.mark.parametrize("said", ["", "{}", "[]", "no account"])
async def test_a_machine_without_an_account_tries_without(
    tmp_path: Path, engine: Engine, google: FakeMetadata, said: str
) -> None:
    """The image may be everybody's."""
    google.put(TOKEN_PATH, said)
    await fetch(tmp_path, PRIVATE, google)

    assert engine.shown == [None]


async def test_a_metadata_server_that_fails_is_asked_again(
    tmp_path: Path, engine: Engine, google: FakeMetadata
) -> None:
    """It is not always there at once."""
    google.fails = 2
    await fetch(tmp_path, PRIVATE, google)

    assert engine.shown == [{"username": "oauth2accesstoken", "password": "ya29.first"}]
