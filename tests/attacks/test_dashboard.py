"""A web page, or a program of another user, against the dashboard: what it reads, changes and uses up."""

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from urllib.parse import unquote, urlencode

import pytest
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from temporalio.client import Client

from iris.client.access.identity_file import new_identity, write_identity
from iris.client.client import AsyncIrisClient
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.paths import identity_path
from iris.config import DashboardAddress
from iris.dashboard import live, serve
from iris.dashboard.actions.browser import Tokens, remember, said, say
from iris.dashboard.actions.forms import MOST_BYTES, _own_address
from iris.dashboard.actions.table import ACTIONS
from iris.dashboard.content import page_number
from iris.dashboard.rendering import make_environment, static
from iris.dashboard.serve import serving_dashboard
from iris.processes.process import free_ports
from iris.worker_agents.control_plane.dashboard import serving
from tests.e2e.cluster import eventually
from tests.harness import dev_server_cluster

#: A page whose content is always there, even though no Temporal service runs in these tests.
FILE = static("iris.css")
FORM = "Content-Type: application/x-www-form-urlencoded"


class Answer(NamedTuple):
    """The status is 0 if the server has closed the connection without an answer."""

    status: int
    head: str
    body: bytes


@asynccontextmanager
async def a_dashboard(
    client: AsyncIrisClient | None = None, *, allow_actions: bool = False
) -> AsyncIterator[int]:
    """Yields the port of a dashboard. Without a client, its cluster does not answer."""
    port, _ = free_ports()
    if client is None:
        record = ClusterRecord(name="iris", address="127.0.0.1:1", store="file:///nowhere")
        client = AsyncIrisClient(await Client.connect(record.address, lazy=True), record)
    listen = DashboardAddress(port, names=("iris.example",), allow_actions=allow_actions)
    async with serving_dashboard(client, listen):
        yield port


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with a_dashboard(allow_actions=True) as port:
        yield port


def request(
    method: str, path: str, *headers: str, host: str = "localhost", body: str = ""
) -> bytes:
    length = [f"Content-Length: {len(body)}"] if body else []
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *length, *headers]
    return "\r\n".join([*lines, "Connection: close", "", body]).encode("latin-1")


async def send(port: int, sent: bytes, within: float = 30) -> Answer:
    """Sends these bytes, and returns the answer once the server has closed the connection."""
    try:
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(sent)
                answer = await reader.read(-1)
            finally:
                writer.close()
    except ConnectionError:
        return Answer(0, "", b"")
    head, _, body = answer.partition(b"\r\n\r\n")
    found = re.match(rb"HTTP/1\.1 (\d+)", head)
    return Answer(int(found[1]) if found else 0, head.decode("latin-1"), body)


async def ask(port: int, method: str, path: str, *headers: str, host: str = "localhost") -> Answer:
    return await send(port, request(method, path, *headers, host=host))


# -- other sites
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/jobs", FILE, "/actions/pause-cluster"])
async def test_a_page_whose_name_becomes_this_machine_reads_nothing(path: str, port: int) -> None:
    """DNS rebinding: the browser takes the dashboard for a part of the other site."""
    plain = await ask(port, "GET", path, host=f"evil.example:{port}")
    stream = await ask(port, "GET", path, "Accept: text/event-stream", host=f"evil.example:{port}")

    assert (plain.status, stream.status) == (403, 403)
    assert b"this machine is not evil.example" in plain.body


async def test_another_site_reads_nothing_by_pictures_and_scripts_but_may_have_links(
    port: int,
) -> None:
    """Each reading costs the control plane something, even if the other site does not see it."""
    site = "Sec-Fetch-Site: cross-site"
    picture = await ask(port, "GET", FILE, site, "Sec-Fetch-Mode: no-cors")
    link = await ask(port, "GET", FILE, site, "Sec-Fetch-Mode: navigate")

    assert (picture.status, link.status) == (403, 200)


async def test_a_malformed_origin_is_refused(port: int) -> None:
    """It is no error of the dashboard: a program could fill the control plane's log with them."""
    answer = await ask(port, "POST", "/actions/pause-cluster", "Origin: http://[")
    assert answer.status == 403


@pytest.mark.parametrize(
    ("text", "number"), [("9" * 5_000, 1), ("", 1), ("-1", 1), ("0", 1), ("12", 12)]
)
def test_the_number_of_a_page_is_small(text: str, number: int) -> None:
    """Python refuses numbers of more than 4,300 digits with an error of its own."""
    assert page_number(text) == number


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:{}", "localhost", "LOCALHOST:9", "[::1]:8233", "10.0.0.5:{}", "iris.example:{}"],
)
async def test_the_names_of_the_machine_are_answered(host: str, port: int) -> None:
    """Also through a tunnel with another port, and under the configured name. An address in numbers
    cannot be made another site's own.
    """
    assert (await ask(port, "GET", FILE, host=host.format(port))).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1.evil.example",
        "evil.localhost",
        "localhost@evil.example",
        "evil@localhost",
        "localhost:1:2",
        "localhost:a",
        "localhost/",
        "localhost evil",
        "2130706433",
        "[localhost]",
        "[::1",
        "iris.example.evil",
    ],
)
async def test_a_host_that_others_might_read_otherwise_is_refused(host: str, port: int) -> None:
    """Browsers send none of these for this machine."""
    assert (await ask(port, "GET", FILE, host=host)).status in (400, 403)


async def test_two_hosts_are_refused(port: int) -> None:
    """Another program on the way might have read the other one."""
    assert (await ask(port, "GET", FILE, "Host: evil.example")).status == 400


async def test_a_host_in_the_target_has_no_effect(port: int) -> None:
    answer = await ask(port, "GET", f"http://localhost{FILE}", host="evil.example")
    assert answer.status == 403


@pytest.mark.parametrize(
    "headers",
    [
        ("Origin: http://evil.example",),
        ("Origin: null",),
        ("Origin: http://localhost:6006",),
        ("Sec-Fetch-Site: cross-site",),
        ("Sec-Fetch-Site: same-site",),
        ("Sec-Fetch-Site: none",),
        ("Origin: http://localhost", "Sec-Fetch-Site: cross-site"),
    ],
)
async def test_a_form_of_another_site_is_refused(headers: tuple[str, ...], port: int) -> None:
    """Also one of another server on the same machine, such as a notebook's."""
    sent = request("POST", "/actions/pause-cluster", FORM, *headers, body="reason=x")
    answer = await send(port, sent)

    assert answer.status == 403
    assert b"another site" in answer.body


@pytest.mark.parametrize("cookie", [(), ("Cookie: iris-browser=" + "a" * 43,)])
@pytest.mark.parametrize("body", ["", "token=", "token=" + "0" * 64, "token=%ff"])
async def test_a_form_without_this_browsers_token_is_refused(
    cookie: tuple[str, ...], body: str, port: int
) -> None:
    own = ("Origin: http://localhost", "Sec-Fetch-Site: same-origin")
    sent = request("POST", "/actions/pause-cluster", FORM, *own, *cookie, body=f"reason=x&{body}")
    answer = await send(port, sent)

    assert answer.status == 403
    assert b"not from this browser" in answer.body


def with_cookie(value: str) -> Request:
    return Request({"type": "http", "headers": [(b"cookie", f"iris-browser={value}".encode())]})


def test_a_token_fits_one_browser_and_one_process() -> None:
    """A form of another browser, of before the restart, or a copy of the cookie."""
    tokens, earlier = Tokens(), Tokens()
    mine, other = (tokens.browser(Request({"type": "http", "headers": []})) for _ in range(2))

    assert tokens.fits(with_cookie(mine), tokens.of(mine))
    assert not tokens.fits(with_cookie(mine), tokens.of(other))
    assert not tokens.fits(with_cookie(mine), earlier.of(mine))
    assert not tokens.fits(with_cookie(mine), mine)
    assert not tokens.fits(with_cookie(""), tokens.of(""))


def test_pages_of_other_sites_do_not_send_the_cookie_and_scripts_do_not_read_it() -> None:
    response = Response()
    remember(response, "x" * 43)

    cookie = response.headers["set-cookie"].lower()
    assert "samesite=strict" in cookie
    assert "httponly" in cookie


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_dashboard_without_the_right_changes_nothing(action: str) -> None:
    """Neither asks nor acts, whatever is sent."""
    own = ("Origin: http://localhost", "Sec-Fetch-Site: same-origin")
    async with a_dashboard() as port:
        asked = await ask(port, "GET", f"/actions/{action}?target=a/b")
        acted = await send(port, request("POST", f"/actions/{action}", FORM, *own, body="target=a"))

    assert (asked.status, acted.status) == (403, 403)
    assert b"<form" not in asked.body


@pytest.mark.parametrize(("identities", "status"), [(False, 415), (True, 403)])
async def test_the_dashboard_of_a_cluster_with_identities_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, identities: bool, status: int
) -> None:
    """It would act as the control plane, for everybody who reaches it."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path))
    for name in ("IRIS_IDENTITY", "IRIS_USER"):
        monkeypatch.delenv(name, raising=False)
    record = ClusterRecord(name="iris", address="127.0.0.1:1", store="file:///nowhere")
    if identities:
        own = new_identity("control-plane").with_cluster(record.name, record.address)
        write_identity(identity_path(), own)
    client = await Client.connect(record.address, lazy=True)
    port, _ = free_ports()
    async with serving(client, record, DashboardAddress(port, allow_actions=True)):
        async with asyncio.timeout(30):
            while (await ask(port, "GET", FILE)).status != 200:
                pass
        acted = await send(port, request("POST", "/actions/pause-cluster", body="token=x"))

    assert acted.status == status


@pytest.mark.parametrize("allowed", [False, True])
def test_a_page_shows_actions_only_with_the_right(allowed: bool) -> None:
    template = make_environment(allow_actions=allowed).get_template("slice_actions.html")

    assert (
        "/actions/delete-slice?target=x" in template.render(status=SimpleNamespace(id="x"))
    ) is allowed


# -- requests that no browser sends
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../app.py",
        "..%2fapp.py",
        "%2e%2e/app.py",
        "..%5capp.py",
        "....//app.py",
        "/etc/passwd",
        "%2fetc/passwd",
        "..%252fapp.py",
        "iris.css/../../app.py",
        "iris.css%00",
        "",
        ".",
    ],
)
async def test_no_file_beside_the_static_ones_is_served(name: str, port: int) -> None:
    digest = FILE.split("/")[2]
    answer = await ask(port, "GET", f"/static/{digest}/{name}")

    assert answer.status in (400, 404)
    assert b"class Dashboard" not in answer.body
    assert b"root:" not in answer.body


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "X"])
@pytest.mark.parametrize("path", ["/", "/jobs", FILE, "/actions/pause-cluster"])
async def test_other_methods_are_refused(method: str, path: str, port: int) -> None:
    """Above all TRACE, which would show a cookie to a script."""
    answer = await ask(port, method, path, "Cookie: iris-browser=secret")

    assert answer.status == 405
    assert b"secret" not in answer.body


@pytest.mark.parametrize("path", ["/", "/jobs", FILE])
async def test_pages_take_no_forms(path: str, port: int) -> None:
    sent = request("POST", path, FORM, "Sec-Fetch-Site: same-origin", body="a=b")
    assert (await send(port, sent)).status == 405


@pytest.mark.parametrize(
    "path",
    ["/none%0d%0aSet-Cookie:%20a=b", "/static/0/iris.css?x=%0d%0aSet-Cookie:%20a=b"],
)
async def test_a_name_adds_no_header(path: str, port: int) -> None:
    answer = await ask(port, "GET", path)

    assert answer.status in (307, 404)
    assert "a=b" not in answer.head


def test_a_message_adds_no_header_and_arrives_unchanged() -> None:
    """It contains what the cluster says, and so names and reasons of users."""
    message = "job ada/x:\r\nSet-Cookie: a=b; \u202e “done”"
    response = RedirectResponse("/", 303)
    say(response, "0", message)

    header = response.headers["set-cookie"]
    assert "\n" not in header
    assert "a=b" not in unquote(header.partition("=")[0])
    cookie = header.partition(";")[0].encode()
    assert said(Request({"type": "http", "headers": [(b"cookie", cookie)]}), "0") == message


@pytest.mark.parametrize(
    "back",
    ["//evil.example", "/\\evil.example", "http://evil.example", "/a\r\nX: y", "", "/\u202e"],
)
def test_an_action_leads_to_no_other_site(back: str) -> None:
    assert _own_address(back) == "/"


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x", ""])
async def test_only_forms_are_read(kind: str, port: int) -> None:
    sent = request("POST", "/actions/pause-cluster", f"Content-Type: {kind}", body='{"token": "x"}')
    assert (await send(port, sent)).status == 415


async def test_a_form_that_is_too_large_is_not_read(port: int) -> None:
    """With the length in front, or in pieces without an end."""
    sent = request("POST", "/actions/pause-cluster", FORM, body="a" * (MOST_BYTES + 1))
    piece = f"{MOST_BYTES:x}\r\n{'a' * MOST_BYTES}\r\n"
    pieces = request("POST", "/actions/pause-cluster", FORM, "Transfer-Encoding: chunked")

    assert (await send(port, sent)).status == 413
    assert (await send(port, pieces + (2 * piece).encode())).status == 413


async def test_a_form_with_many_fields_is_not_read(port: int) -> None:
    sent = request("POST", "/actions/pause-cluster", FORM, body="&".join("a=b" for _ in range(50)))
    assert (await send(port, sent)).status == 400


async def test_a_head_without_an_end_is_refused(port: int) -> None:
    """It would fill the memory."""
    sent = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 2 * serve.MOST_HEAD
    # The answer may be lost, because the server closes before it has read everything.
    assert (await send(port, sent)).status in (0, 400)


async def test_requests_that_are_no_http_do_not_fill_the_log(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody on the machine can send a million of them."""
    with caplog.at_level(logging.INFO):
        assert (await send(port, b"\x16\x03\x01\x00\r\n\r\n")).status == 400

    assert [each.message for each in caplog.records if each.levelno >= logging.INFO] == []


# -- what it may cost
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: local",
        request("POST", "/actions/pause-cluster", FORM, "Content-Length: 100") + b"a=",
    ],
    ids=["silence", "half-a-head", "half-a-form"],
)
async def test_a_request_that_does_not_come_ends_its_connection(
    beginning: bytes, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection is a file descriptor of the control plane."""
    monkeypatch.setattr(serve, "REQUEST_TIMEOUT", 0.3)
    assert (await send(port, beginning, within=20)).status in (0, 403)


async def connected(port: int, sent: Iterable[bytes]) -> list[bytes]:
    """Opens connections at the same time, and returns the first bytes of each answer; none if the
    server has closed the connection.
    """
    async with AsyncExitStack() as stack:

        async def one(request: bytes) -> bytes:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)
                writer.write(request)
                return await reader.read(200)
            except OSError:
                return b""

        async with asyncio.timeout(60):
            return await asyncio.gather(*(one(each) for each in sent))


STREAM = b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"


async def test_thousands_of_connections_leave_the_control_plane_its_files(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those above the limit are closed at once, and the next browser is answered again."""
    monkeypatch.setattr(serve, "MOST_CONNECTIONS", 20)
    answers = await connected(port, [STREAM] * 200)

    assert 0 < sum(bool(each) for each in answers) <= 20
    await asyncio.to_thread(
        eventually, lambda: asyncio.run(ask(port, "GET", FILE)).status == 200, 30
    )


async def test_the_streams_have_a_limit_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nobody could open a page any more."""
    monkeypatch.setattr(live, "MOST_STREAMS", 3)
    async with dev_server_cluster() as cluster, a_dashboard(cluster.users) as port:
        readers = []
        for _ in range(6):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(STREAM)
            readers.append((await reader.read(50), writer))
        ordinary = await ask(port, "GET", "/jobs")
        for _, writer in readers:
            writer.close()

    assert [b" 200 " in head for head, _ in readers] == [True] * 3 + [False] * 3
    assert all(b" 503 " in head for head, _ in readers[3:])
    assert ordinary.status == 200


async def test_a_browser_acts_with_its_own_token_only() -> None:
    """The whole way: the question, its form, and the answer, which leads back to the page."""
    async with (
        dev_server_cluster() as cluster,
        a_dashboard(cluster.users, allow_actions=True) as port,
    ):
        question = "/actions/pause-cluster"
        asked = await ask(port, "GET", question, "Referer: http://localhost/jobs?state=live")
        cookie = re.search(r"iris-browser=[^;]+", asked.head)
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', asked.body.decode()))
        other = await ask(port, "GET", question)
        foreign = re.search(r'name="token" value="(\w+)"', other.body.decode())
        assert cookie is not None
        assert foreign is not None
        own = (FORM, "Origin: http://localhost", f"Cookie: {cookie[0]}")

        stolen = urlencode({**fields, "token": foreign[1], "reason": "mine"})
        refused = await send(port, request("POST", question, *own, body=stolen))
        before = (await cluster.users.cluster.status()).paused
        sent = urlencode({**fields, "reason": "an upgrade"})
        done = await send(port, request("POST", question, *own, body=sent))
        after = (await cluster.users.cluster.status()).paused

    assert (refused.status, before) == (403, None)
    assert (done.status, after) == (303, "an upgrade (by dashboard)")
    assert "location: /jobs?state=live" in done.head


async def test_a_reader_that_does_not_read_is_cut_off(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for it would stay in memory for ever."""
    monkeypatch.setattr(serve, "READ_TIMEOUT", 0.3)
    asked = f"GET {FILE} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(lazy, ("127.0.0.1", port))

    async def flood() -> None:
        async with asyncio.timeout(60):
            while True:
                await loop.sock_sendall(lazy, asked * 100)

    try:
        with pytest.raises(ConnectionError):  # the server has reset it
            await flood()
    finally:
        lazy.close()


def test_every_action_is_in_the_documentation() -> None:
    """Whoever allows actions has to know which ones."""
    page = (Path(__file__).parents[2] / "docs/dashboard.md").read_text().lower()

    assert [
        name for name, action in ACTIONS.items() if action.verb.split()[0].lower() not in page
    ] == []
