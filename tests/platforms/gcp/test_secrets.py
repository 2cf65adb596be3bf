"""Google Secret Manager, through a server that answers as it does."""

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest
from google.auth import default

from iris.platforms.base import BadConfig, Unavailable
from iris.platforms.gcp.secret_manager import TRIES, GoogleSecrets

NAME = "projects/p/secrets/wandb/versions/latest"
VALUE = b"hunter2\xff"


class _Answers(BaseHTTPRequestHandler):
    """The answers to give, in turn; the last one is given again."""

    answers: ClassVar[list[tuple[int, Any]]] = []
    paths: ClassVar[list[str]] = []
    tokens: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        if self.path.startswith("/v1/"):
            self.paths.append(self.path)
            self.tokens.append(self.headers["Authorization"])
            status, content = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        else:
            status, content = 200, self.metadata()
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header(
            "Content-Type", "text/plain" if isinstance(content, bytes) else "application/json"
        )
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def metadata(self) -> Any:
        """As a metadata server."""
        if "/token" in self.path:
            return {"access_token": "of-the-machine", "expires_in": 3600, "token_type": "Bearer"}
        if "/service-accounts/" in self.path:
            return {
                "email": "hosts@home.iam.gserviceaccount.com",
                "aliases": ["default"],
                "scopes": [],
            }
        return b"home" if "project-id" in self.path else b""

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def google() -> Iterator[GoogleSecrets]:
    """A client of the server."""
    _Answers.answers, _Answers.paths, _Answers.tokens = [], [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield GoogleSecrets("p", f"http://127.0.0.1:{server.server_address[1]}", delay=0.01)
        server.shutdown()
        thread.join()


def error(status: int, message: str) -> tuple[int, Any]:
    return status, {"error": {"code": status, "message": message, "status": "PERMISSION_DENIED"}}


def secret(data: bytes) -> tuple[int, Any]:
    return 200, {
        "name": NAME,
        "payload": {"data": base64.b64encode(data).decode(), "dataCrc32c": "1"},
    }


def test_the_value_is_the_payload_byte_for_byte(google: GoogleSecrets) -> None:
    """It is in base64 in the answer."""
    _Answers.answers.append(secret(VALUE))

    assert google.access(NAME) == VALUE
    assert google.project() == "p"
    assert _Answers.paths == [f"/v1/{NAME}:access"]
    assert _Answers.tokens == [None]  # not in the clear


def test_a_call_that_fails_for_now_is_repeated(google: GoogleSecrets) -> None:
    """Google limits the calls of a project, and its servers restart."""
    _Answers.answers += [error(429, "quota"), error(503, "away"), secret(VALUE)]

    assert google.access(NAME) == VALUE


def test_a_refusal_is_not_repeated_and_says_why(google: GoogleSecrets) -> None:
    """Nothing changes until somebody grants the right or makes the secret."""
    _Answers.answers.append(error(403, "Permission 'secretmanager.versions.access' denied"))

    with pytest.raises(
        BadConfig, match=r"403: Permission 'secretmanager\.versions\.access' denied"
    ):
        google.access(NAME)

    assert len(_Answers.paths) == 1


def test_a_service_that_stays_away_is_no_refusal(google: GoogleSecrets) -> None:
    """The attempt is tried again later."""
    _Answers.answers.append((502, b"<html>"))

    with pytest.raises(Unavailable, match="502"):
        google.access(NAME)

    assert len(_Answers.paths) == TRIES


@pytest.mark.parametrize(
    "answer",
    [(200, b"hunter2"), (200, {"payload": {"data": "hunter2"}}), (200, {"payload": ["hunter2"]})],
)
def test_an_answer_that_cannot_be_read_is_not_shown(
    google: GoogleSecrets, answer: tuple[int, Any]
) -> None:
    """It may hold the value."""
    _Answers.answers.append(answer)

    with pytest.raises(Unavailable) as caught:
        google.access(NAME)

    assert "hunter2" not in str(caught.value)


def test_no_server_is_no_refusal() -> None:
    """As a service that stays away."""
    with pytest.raises(Unavailable, match="does not answer"):
        GoogleSecrets("p", "http://127.0.0.1:9", delay=0.01).access(NAME)


def test_a_machine_of_googles_uses_its_service_account_and_its_project(
    google: GoogleSecrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may read a secret is decided by the roles of that account."""
    address = google._endpoint.partition("://")[2]
    monkeypatch.setenv("GCE_METADATA_HOST", address)
    monkeypatch.setenv("GCE_METADATA_IP", address)
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    credentials, _ = default()
    _Answers.answers.append(secret(VALUE))

    assert GoogleSecrets().project() == "home"
    assert GoogleSecrets("", google._endpoint, credentials).access(NAME) == VALUE
    assert _Answers.tokens == ["Bearer of-the-machine"]


def test_a_machine_without_credentials_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked without them."""
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)

    with pytest.raises(BadConfig, match="no credentials of Google Cloud"):
        GoogleSecrets().access(NAME)
