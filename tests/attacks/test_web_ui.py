"""A web page in the browser of a user: what it cannot start, under whatever name it reaches the
servers of this machine.
"""

import asyncio
import http.client
import json
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import NamedTuple

import psutil
import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from iris.model.errors import IrisError, Rejected
from iris.processes.children import Child
from iris.processes.process import free_ports
from iris.worker_agents.local.temporal_server import server_command, started
from iris.worker_agents.local.ui_guard import checked_head, guarding, hidden_address
from tests.e2e.cluster import eventually

PATIENCE = timedelta(seconds=60)
START = "/api/v1/namespaces/default/workflows/{}"
WORKFLOW = json.dumps({"workflowType": {"name": "Any"}, "taskQueue": {"name": "any"}})
#: A name that its owner makes resolve to 127.0.0.1 after the browser has loaded the page.
REBOUND = "evil.example:{}"


class Answer(NamedTuple):
    """The status is 0 if the port does not speak HTTP/1."""

    status: int
    cookie: str
    body: bytes


def ask(
    port: int, method: str, path: str, headers: dict[str, str], body: str | None = None
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return Answer(
            answer.status, (answer.getheader("Set-Cookie") or "").partition(";")[0], answer.read()
        )
    except (OSError, http.client.HTTPException):
        return Answer(0, "", b"")
    finally:
        connection.close()


def start_as_a_page(port: int, host: str, workflow_id: str) -> int:
    """Starts a workflow as a page does that the browser considers part of the Web UI: with the
    token of its cookie.
    """
    own = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    cookie = ask(port, "GET", "/api/v1/settings", own).cookie
    token = {
        "Cookie": cookie,
        "X-CSRF-Token": cookie.partition("=")[2],
        "Content-Type": "application/json",
    }
    return ask(port, "POST", START.format(workflow_id), {**own, **token}, WORKFLOW).status


class Server(NamedTuple):
    """A dev server as Iris runs it, with its Web UI behind the guard."""

    client: Client
    ui: int
    #: All ports at 127.0.0.1 that it opens, and the guard's.
    ports: frozenset[int]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    port, ui = free_ports()
    hidden = hidden_address()
    assert hidden is not None
    child = Child("temporal", server_command(port, hidden, None), None)
    process = await child.start()
    try:
        async with guarding(f"127.0.0.1:{ui}", hidden):
            client = await started(child, f"127.0.0.1:{port}", PATIENCE)
            opened = [
                each.laddr
                for each in psutil.Process(process.pid).net_connections("inet")
                if each.status == "LISTEN"
            ]
            assert hidden in {f"{each.ip}:{each.port}" for each in opened}
            # The Web UI connects again only after a while if the service was not there when it
            # came.
            await asyncio.to_thread(
                eventually,
                lambda: ask(ui, "GET", "/api/v1/namespaces", {"Host": "localhost"}).status == 200,
            )
            yield Server(
                client,
                ui,
                frozenset({each.port for each in opened if each.ip == "127.0.0.1"} | {ui}),
            )
    finally:
        await child.stop(timedelta(seconds=10))


async def page_of(port: int, host: str) -> Answer:
    return await asyncio.to_thread(ask, port, "GET", "/", {"Host": host})


async def page_starts(port: int, host: str, workflow_id: str) -> int:
    return await asyncio.to_thread(start_as_a_page, port, host, workflow_id)


async def test_a_page_whose_name_becomes_this_machine_starts_nothing(server: Server) -> None:
    """A workflow of Iris runs any program as the user of the agent. The dev server's Web UI answers
    under every name.
    """
    for port in server.ports:
        status = await page_starts(port, REBOUND.format(port), f"from-{port}")
        assert not 200 <= status < 300, port
        with pytest.raises(RPCError, match="not found"):
            await server.client.get_workflow_handle(f"from-{port}").describe()


@pytest.mark.parametrize("name", ["127.0.0.1:{}", "localhost:{}", "localhost:8233"])
async def test_the_user_works_in_the_web_ui_as_before(server: Server, name: str) -> None:
    """Under the names of this machine, and with the port of a tunnel."""
    host = name.format(server.ui)
    page = await page_of(server.ui, host)
    assert (page.status, b"<html" in page.body) == (200, True)

    assert await page_starts(server.ui, host, "mine") == 200
    described = await server.client.get_workflow_handle("mine").describe()
    assert described.workflow_type == "Any"


async def test_a_page_of_another_name_reads_nothing_either(server: Server) -> None:
    """Jobs' command lines and environments are in histories. The answer says how to open the Web
    UI.
    """
    answer = await asyncio.to_thread(
        ask, server.ui, "GET", "/api/v1/namespaces", {"Host": REBOUND.format(server.ui)}
    )

    assert answer.status == 403
    assert (
        answer.body
        == f"the Web UI does not accept the host name evil.example:{server.ui}; open it at"
        " 127.0.0.1 or localhost\n".encode()
    )


def head(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


REFUSED = {
    "no-host": head("GET / HTTP/1.1"),
    "empty-host": head("GET / HTTP/1.1", "Host:"),
    "a-name-that-begins-like-ours": head("GET / HTTP/1.1", "Host: 127.0.0.1.evil.example"),
    "a-name-that-ends-like-ours": head("GET / HTTP/1.1", "Host: evil.localhost"),
    "a-user-like-us": head("GET / HTTP/1.1", "Host: localhost@evil.example"),
    "two-hosts": head("GET / HTTP/1.1", "Host: localhost", "Host: evil.example"),
    "a-host-in-the-target": head("GET http://evil.example/ HTTP/1.1", "Host: localhost"),
    "a-folded-line": head("GET / HTTP/1.1", "Host: localhost", " evil.example"),
    "a-space-before-the-colon": head("GET / HTTP/1.1", "Host : localhost"),
    "a-line-that-others-would-split": head("GET / HTTP/1.1", "Host: localhost\nHost: evil.example"),
    "a-request-that-others-would-split": head(
        "GET / HTTP/1.1\nHost: evil.example", "Host: localhost"
    ),
    "the-page-of-another-site": head(
        "POST / HTTP/1.1", "Host: localhost", "Origin: http://evil.example"
    ),
    "a-page-at-another-port": head(
        "POST / HTTP/1.1", "Host: localhost:8233", "Origin: http://localhost:6006"
    ),
    "a-page-without-a-site": head("POST / HTTP/1.1", "Host: localhost", "Origin: null"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_head_that_another_server_might_read_otherwise_is_refused(case: str) -> None:
    """The Web UI must not find another host in it than the guard does."""
    with pytest.raises(Rejected):
        checked_head(REFUSED[case])


def test_the_pages_of_the_web_ui_may_send_requests() -> None:
    """A browser sends the origin with each change."""
    checked_head(head("POST / HTTP/1.1", "Host: localhost:8233", "Origin: http://localhost:8233"))


def test_each_connection_carries_one_request() -> None:
    """The next request on it would not be checked."""
    given = head(
        "GET /a HTTP/1.1",
        "host: [::1]:8233",
        "Connection: keep-alive",
        "Keep-Alive: 1",
        "Upgrade: h2c",
        "X: 1",
    )

    assert checked_head(given) == head(
        "GET /a HTTP/1.1", "host: [::1]:8233", "X: 1", "Connection: close"
    )


async def test_a_second_request_in_the_same_bytes_is_not_answered(server: Server) -> None:
    """It was not checked."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.ui)
    first = head("GET /healthz HTTP/1.1", f"Host: localhost:{server.ui}")
    writer.write(first + head("GET /healthz HTTP/1.1", "Host: evil.example"))
    async with asyncio.timeout(30):
        answers = await reader.read(-1)
    writer.close()

    assert answers.count(b"HTTP/1.1 200") == 1
    assert answers.count(b"HTTP/1.1") == 1


def test_no_two_clusters_have_the_same_hidden_address() -> None:
    """A page must not know it from another cluster, or from the source."""
    addresses = {hidden_address() for _ in range(200)}

    assert len(addresses) == 200
    assert all(
        each is not None and each.startswith("127.") and not each.startswith("127.0.0.")
        for each in addresses
    )


async def test_a_port_in_use_is_an_error_for_users(server: Server) -> None:
    """Another program took the port of the last start."""
    with pytest.raises(IrisError, match=f"the Web UI cannot be served at 127.0.0.1:{server.ui}: "):
        async with guarding(f"127.0.0.1:{server.ui}", "127.0.0.1:1"):
            pass


async def test_while_the_server_restarts_the_guard_says_so() -> None:
    """The user would take a broken connection for a stopped cluster."""
    _, port = free_ports()
    async with guarding(f"127.0.0.1:{port}", "127.0.0.1:1"):
        answer = await page_of(port, "localhost")

    assert (answer.status, answer.body) == (
        502,
        b"the Temporal server does not run; it is being started again\n",
    )


async def test_without_a_hidden_address_there_is_no_web_ui() -> None:
    """A system that has only 127.0.0.1 could not keep pages from it."""
    port, _ = free_ports()
    child = Child("temporal", server_command(port, None, None), None)
    process = await child.start()
    try:
        await started(child, f"127.0.0.1:{port}", PATIENCE)
        ports = {
            each.laddr.port
            for each in psutil.Process(process.pid).net_connections("inet")
            if each.status == "LISTEN"
        }
        answers = {
            each: await asyncio.to_thread(ask, each, "GET", "/healthz", {"Host": "localhost"})
            for each in ports
        }
    finally:
        await child.stop(timedelta(seconds=10))

    assert len(ports) >= 6
    assert 200 not in {answer.status for answer in answers.values()}


@pytest.mark.long
async def test_the_guard_runs_as_a_command_in_front_of_any_web_ui(server: Server) -> None:
    """As in `docker/compose.yaml`, where the Web UI is another container. It ends at SIGTERM."""
    port, _ = free_ports()
    addresses = ("--listen", f"127.0.0.1:{port}", "--backend", f"127.0.0.1:{server.ui}")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "iris.cli.main", "controller", "guard-ui", *addresses
    )
    try:
        await asyncio.to_thread(
            eventually,
            lambda: ask(port, "GET", "/healthz", {"Host": "localhost"}).status == 200,
            60,
        )
        other = await page_of(port, REBOUND.format(port))
    finally:
        process.terminate()
        status = await asyncio.wait_for(process.wait(), 60)

    assert (other.status, status) == (403, 0)
