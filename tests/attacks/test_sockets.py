"""docs/security.md lists every socket on which a cluster listens. The tables are compared with
clusters that run.
"""

import http.client
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.e2e.cluster import a_cluster, eventually
from tests.e2e.google.cluster import a_gcp_cluster, processes_of
from tests.e2e.operate.test_metrics import measured_cluster
from tests.fakes.google.client import FakeGoogle

pytestmark = pytest.mark.long

PAGE = (Path(__file__).parents[2] / "docs/security.md").read_text()


@pytest.fixture(scope="module")
def google() -> Iterator[FakeGoogle]:
    """A cloud whose machines boot."""
    with FakeGoogle(boot=True) as google:
        yield google


class Listening(NamedTuple):
    """A socket on which a process listens."""

    process: str
    ip: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.ip}:{self.port}"


def listed(heading: str) -> dict[str, int]:
    """Returns how many of each socket the table below this line lists."""
    table = PAGE.partition(heading)[2].lstrip("\n").partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
    return {name: int(number) for name, _, _, number in rows}


def sockets_of(processes: Iterable[psutil.Process]) -> set[Listening]:
    """Returns the processes' sockets that others can send to: TCP sockets that listen, and UDP
    sockets without a peer.
    """
    found = set()
    for process in processes:
        try:
            words, sockets = process.cmdline(), process.net_connections("inet")
        except psutil.Error:  # it has just ended
            continue
        parts = {
            "start-dev": "Temporal server",
            "run": "controller",
            "serve": "controller",
            "agent": "agent",
        }
        part = next(
            (parts[word] for word in words if word in parts),
            "supervisor" if "--local" in words else " ".join(words[:6]),
        )
        udp = [each for each in sockets if each.type.name == "SOCK_DGRAM" and not each.raddr]
        for each in [*udp, *(each for each in sockets if each.status == psutil.CONN_LISTEN)]:
            found.add(Listening(part, each.laddr.ip, each.laddr.port))
    return found


def answer(socket: Listening, path: str) -> int:
    """Returns the status of the answer to an HTTP request; 0 if the socket does not speak
    HTTP/1.
    """
    connection = http.client.HTTPConnection(socket.ip, socket.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": "evil.example"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def says(socket: Listening, text: str) -> bool:
    """Returns whether the answer to a web page of another name contains the text."""
    connection = http.client.HTTPConnection(socket.ip, socket.port, timeout=30)
    try:
        connection.request("GET", "/", headers={"Host": "evil.example"})
        return text.encode() in connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def name_of(socket: Listening, service: str, guard: str) -> str:
    """Returns the name of the socket in the table, by its process and its answers to a web page."""
    match socket:
        case Listening(process="Temporal server") if socket.address == service:
            return "Temporal service (gRPC)"
        case Listening(process="supervisor" | "controller") if (
            socket.address == guard and answer(socket, "/") == 403
        ):
            return "Web UI, behind the guard"
        case Listening(process="controller", ip="127.0.0.1") if says(socket, "the dashboard at"):
            return "dashboard"
        case Listening(process="Temporal server", ip="127.0.0.1"):
            answers = (answer(socket, "/metrics"), answer(socket, "/api/v1/namespaces"))
            return {
                (200, 404): "metrics",
                (404, 403): "HTTP API",
                (0, 0): "internal services (gRPC)",
            }.get(answers, f"? {answers}")
        case Listening(process="Temporal server") if (
            socket.ip.startswith("127.") and answer(socket, "/healthz") == 200
        ):
            return "Web UI itself"
        case Listening(ip="127.0.0.1") if (
            socket.process.startswith("sshd") and answer(socket, "/") == 0
        ):
            return "tunnel to the Temporal service"
        case Listening(ip="127.0.0.1") if " iris.client.connect.tunnel " in socket.process:
            if says(socket, "the dashboard at"):
                return "tunnel to the dashboard"
            answers = {
                0: "tunnel to the Temporal service",
                403: "tunnel to the Web UI, behind the guard",
            }
            return answers.get(answer(socket, "/"), f"? {socket}")
    return f"unknown: {socket}"


def named(sockets: Iterable[Listening], service: str = "", guard: str = "") -> dict[str, int]:
    """Returns how many sockets of each name there are, as `listed` does."""
    return dict(Counter(name_of(each, service, guard) for each in sockets))


def test_a_local_cluster_listens_where_the_page_says_and_nowhere_else() -> None:
    """While a job runs, so that all its processes are there."""
    with a_cluster("--cpu", "2", "--memory", "2g", "--hosts", "2", "--ephemeral") as cluster:
        cluster.submit("long", "--", "sleep", "600")
        eventually(lambda: cluster.status("long")["state"] == "RUNNING")
        record = json.loads((cluster.home / "clusters/local/cluster.json").read_text())
        found = named(
            sockets_of(cluster.processes()), record["address"], record["ui"].removeprefix("http://")
        )
        cluster.iris("cancel", "long")

    assert found == listed("A cluster on one machine:")


def test_metrics_open_the_sockets_of_the_page_and_publish_none(tmp_path: Path) -> None:
    """A local cluster listens at 127.0.0.1, whatever address its configuration has; its hosts share
    a machine and have no port.
    """

    def name(socket: Listening) -> str:
        if socket.port == page.port:
            assert answer(socket, "/metrics") == 403
            return "metrics of Iris"
        return "metrics of the SDK" if answer(socket, "/metrics") == 200 else f"? {socket}"

    with measured_cluster(tmp_path) as (cluster, page):
        eventually(lambda: page.value("iris_hosts", group="cpu", state="open"))
        found = sockets_of(cluster.processes())
        own = {
            each
            for each in found
            if each.process in ("controller", "agent") and not says(each, "the dashboard at")
        }
        names = dict(Counter(map(name, own)))

    assert names == listed("which is the default, none:")
    assert {each.ip for each in own} == {"127.0.0.1"}


def test_the_machine_of_a_control_plane_publishes_one_port(google: FakeGoogle) -> None:
    """Temporal's dev server opened six ports on all addresses of it."""
    with a_gcp_cluster(google, "ports") as cluster:

        def opened() -> set[Listening]:
            # The processes that play the machine are not of the cluster.
            sockets = sockets_of(processes_of(cluster.machine, google))
            return {each for each in sockets if each.process in ("Temporal server", "controller")}

        # A cluster is ready before its dashboard.
        eventually(
            lambda: any(
                says(each, "the dashboard at") for each in opened() if each.process == "controller"
            )
        )
        found = opened()
        published = {each for each in found if not each.ip.startswith("127.")}
        guard = f"127.0.0.1:{cluster.port + 1}"
        (service,) = {
            each.address for each in found if each.process == "Temporal server" and _serves(each)
        }
        others = named(found - published, service, guard)

    assert {(each.process, each.ip, each.port) for each in published} == {
        ("controller", "0.0.0.0", cluster.port)
    }
    own = listed("publishes the service:")
    assert own == {"Temporal service, published": len(published), "Web UI, behind the guard": 1}
    assert others == listed("A cluster on one machine:")


def _serves(socket: Listening) -> bool:
    """Returns whether the socket is the service: the port on the server's command line."""
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "start-dev" in words and words[words.index("--port") + 1] == str(socket.port):
            return True
    return False
