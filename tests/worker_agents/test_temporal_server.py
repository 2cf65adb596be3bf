"""Temporal's dev server as Iris starts it: who can start workflows there, and who cannot."""

import http.client
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import NamedTuple

import psutil
import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from iris.processes.children import Child
from iris.processes.process import free_ports
from iris.worker_agents.local.temporal_server import server_command, started
from tests.e2e.cluster import eventually

PATIENCE = timedelta(seconds=60)
START = "/api/v1/namespaces/default/workflows"
#: What a page of any web site can send from a browser on this machine without being asked first.
FROM_A_PAGE = {"Content-Type": "text/plain", "Origin": "http://evil.example"}
WORKFLOW = json.dumps({"workflowType": {"name": "Any"}, "taskQueue": {"name": "any"}})


class Server(NamedTuple):
    """A dev server that runs."""

    client: Client
    ui_port: int
    #: All ports on which it listens.
    ports: tuple[int, ...]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    port, ui_port = free_ports()
    child = Child("temporal", server_command(port, f"127.0.0.1:{ui_port}", None), None)
    process = await child.start()
    try:
        client = await started(child, f"127.0.0.1:{port}", PATIENCE)
        listening = [
            each
            for each in psutil.Process(process.pid).net_connections("inet")
            if each.status == psutil.CONN_LISTEN
        ]
        yield Server(client, ui_port, tuple(sorted({each.laddr.port for each in listening})))
    finally:
        await child.stop(timedelta(seconds=10))


def asked(
    port: int, method: str, path: str, headers: dict[str, str], body: str | None = None
) -> tuple[int, bytes]:
    """(status, body) of the answer to an HTTP request; the status is 0 when the port does not speak
    HTTP/1.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


@pytest.mark.long
@pytest.mark.parametrize(
    "host", ["127.0.0.1:{port}", "localhost:{port}", "localhost", "127.0.0.1", "evil.example", ""]
)
async def test_no_web_page_can_start_a_workflow(server: Server, host: str) -> None:
    """A workflow of Iris runs any program as the user of the agent. A page in a browser reaches
    every port of its machine, under its own name too, when that is made to mean this machine.
    """
    statuses = {}
    for port in server.ports:
        headers = {**FROM_A_PAGE, "Host": host.format(port=port)}
        statuses[port], _ = asked(port, "POST", f"{START}/from-{port}", headers, WORKFLOW)

    assert 200 not in statuses.values()
    assert 403 in statuses.values()  # of the HTTP API
    assert 400 <= statuses[server.ui_port] < 500
    for port in server.ports:
        with pytest.raises(RPCError, match="not found"):
            await server.client.get_workflow_handle(f"from-{port}").describe()


async def test_the_web_ui_allows_no_page_of_another_origin_to_send_its_token(
    server: Server,
) -> None:
    """The Web UI starts workflows for requests that have the token of its cookie in a header. A
    browser asks the UI before it lets a page of another origin send such a header.
    """
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    connection = http.client.HTTPConnection("127.0.0.1", server.ui_port, timeout=60)
    connection.request(
        "OPTIONS",
        f"{START}/any",
        None,
        {**headers, "Access-Control-Request-Headers": "x-csrf-token"},
    )

    assert connection.getresponse().getheader("Access-Control-Allow-Origin") is None
    connection.close()


async def test_the_web_ui_still_shows_workflows_and_clients_still_start_them(
    server: Server,
) -> None:
    """It is for that that they are there."""
    await server.client.start_workflow("Any", id="one", task_queue="any")

    status, page = asked(server.ui_port, "GET", "/", {})
    assert (status, b"<html" in page) == (200, True)
    # It looks again only after a while for a server that was not there when it came.
    seen = eventually(
        lambda: [
            body
            for status, body in [asked(server.ui_port, "GET", f"{START}/one", {})]
            if status == 200
        ]
    )
    assert json.loads(seen[0])["workflowExecutionInfo"]["execution"]["workflowId"] == "one"
