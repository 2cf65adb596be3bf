"""The control plane sends one HTTP request to a machine that it has checked, over TLS with the name
of the address.
"""

import asyncio
import datetime
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from iris.activities.control.webhooks import HEAD_BYTES, WebhookCalls
from iris.messages.notification import Notification
from iris.model.states import JobState, TaskState
from tests.certificates import Certificate, certificate_for

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


def notification(url: str) -> Notification:
    return Notification(
        url=url,
        cluster="trial",
        job="ada/train",
        run_id="run",
        user="ada",
        state=JobState.SUCCEEDED,
        reason="",
        submitted_at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        started_at=None,
        finished_at=None,
        tasks={TaskState.SUCCEEDED: 1},
        tags={},
        note="",
    )


@asynccontextmanager
async def service(
    answer: bytes, *, tls: Certificate | None = None
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A service on 127.0.0.1 that answers each call with these bytes and hangs up: its port, and
    the heads of the calls.
    """
    heads: list[bytes] = []

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    context = None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tls.certificate, tls.key)
    async with await asyncio.start_server(answered, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1], heads


async def called(url: str) -> None:
    await ActivityEnvironment().run(WebhookCalls(local=True).call_webhook, notification(url))


@pytest.fixture
def trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Certificate]:
    """Makes a certificate for a host, whose authority the control plane trusts."""

    def trusted(host: str) -> Certificate:
        made = certificate_for(host, tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(made.authority))
        return made

    return trusted


async def test_a_request_over_tls_has_the_path_and_the_name_of_the_address(
    trusts: Callable[[str], Certificate],
) -> None:
    """The connection goes to an IP address that was checked; the service must not notice."""
    async with service(OK, tls=trusts("localhost")) as (port, heads):
        await called(f"https://localhost:{port}/hook?token=1")

    lines = heads[0].decode().split("\r\n")
    assert lines[0] == "POST /hook?token=1 HTTP/1.1"
    assert f"Host: localhost:{port}" in lines


async def test_a_certificate_of_an_unknown_authority_is_refused_with_the_remedy(
    tmp_path: Path,
) -> None:
    """A user with a service inside a company sees what the administrator of the cluster must do."""
    async with service(OK, tls=certificate_for("localhost", tmp_path)) as (port, heads):
        with pytest.raises(
            ApplicationError, match=r"its certificate is not accepted: .*SSL_CERT_FILE"
        ) as refused:
            await called(f"https://localhost:{port}/hook")

    assert (heads, refused.value.non_retryable) == ([], False)


async def test_a_certificate_for_another_name_is_refused(
    trusts: Callable[[str], Certificate],
) -> None:
    """Else a machine that answers at the address could read the message."""
    async with service(OK, tls=trusts("elsewhere.example")) as (port, heads):
        with pytest.raises(ApplicationError, match="not valid for 'localhost'"):
            await called(f"https://localhost:{port}/hook")

    assert heads == []


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x00\xff\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2 * HEAD_BYTES,
    ],
    ids=["nothing", "a part", "another protocol", "bytes", "a head without end"],
)
async def test_an_answer_that_is_not_http_is_a_failure_to_try_again(answer: bytes) -> None:
    """A proxy that restarts, or a wrong port: the call is repeated, and nothing is taken for
    success.

    It does not quote the answer: the user may not be allowed to read what the machine says.
    """
    async with service(answer) as (port, _):
        with pytest.raises(ApplicationError, match=r"its answer is not HTTP$") as failed:
            await called(f"http://127.0.0.1:{port}/hook")

    assert not failed.value.non_retryable


async def test_a_service_may_announce_its_answer() -> None:
    """HTTP allows any number of interim answers before the one that counts."""
    async with service(b"HTTP/1.1 102 Processing\r\n\r\n" + OK) as (port, heads):
        await called(f"http://127.0.0.1:{port}/hook")

    assert len(heads) == 1


async def test_each_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name often has an IPv6 address at which nothing listens: `localhost`, for one."""
    original = socket.getaddrinfo

    def both(host: str, *query: int) -> list[object]:
        hosts = ("::1", "127.0.0.1") if host == "both.example" else (host,)
        return [found for each in hosts for found in original(each, *query)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    async with service(OK) as (port, heads):
        await called(f"http://both.example:{port}/hook")

    assert len(heads) == 1
