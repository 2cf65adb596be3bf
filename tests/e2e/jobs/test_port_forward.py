"""Ports of running tasks, reached from this machine through the store."""

import hashlib
import re
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.e2e.cluster import PATIENCE, USER, Cluster, Running, eventually, free_port

pytestmark = pytest.mark.long

SERVER = (
    "import http.server, os; http.server.test(http.server.SimpleHTTPRequestHandler,"
    " port=int(os.environ['IRIS_PORT_HTTP']))"
)


@pytest.fixture(scope="module")
def web(cluster: Cluster) -> Iterator[str]:
    """A job that serves the files of its directory over HTTP on its port `http`."""
    job = "forwarded"
    cluster.submit(job, "--cpu", "0.1", "--port", "http", "--", sys.executable, "-u", "-c", SERVER)
    eventually(lambda: "Serving HTTP" in cluster.iris("logs", job).out)
    yield job
    cluster.iris("cancel", job, code=None)


@contextmanager
def forwarding(cluster: Cluster, *arguments: str) -> Iterator[Running]:
    """`iris port-forward` after it has said what it forwards."""
    command = cluster.begin("port-forward", *arguments)
    try:
        eventually(lambda: "->" in command.out or command.process.poll() is not None)
        yield command
    finally:
        command.process.kill()
        command.process.wait()


def url(command: Running) -> str:
    (address,) = re.findall("127.0.0.1:[0-9]+", command.out)
    return f"http://{address}"


def session_files(cluster: Cluster) -> list[Path]:
    return [
        path
        for path in (cluster.home / "clusters" / cluster.name).rglob("exec/*/*/*/*")
        if path.is_file()
    ]


def test_files_of_a_server_in_a_job_arrive_whole_over_connections_at_once(
    cluster: Cluster, web: str
) -> None:
    """What a browser does; and after Ctrl-C, nothing of it is left in the store."""
    sent = {f"page-{number}": bytes([number]) * (300_000 + number) for number in range(6)}
    for name, content in sent.items():
        cluster.file(name).write_bytes(content)

    def fetched(name: str) -> str:
        with urlopen(f"{url(command)}/{name}", timeout=PATIENCE) as answer:
            return hashlib.sha256(answer.read()).hexdigest()

    with forwarding(cluster, web, "0:http") as command:
        assert re.search(rf"-> {USER}/{web}:0 port [0-9]+ \(http\) on host ", command.out)
        with ThreadPoolExecutor(len(sent)) as threads:
            assert list(threads.map(fetched, sent)) == [
                hashlib.sha256(content).hexdigest() for content in sent.values()
            ]
        assert session_files(cluster)
        command.interrupt()
        command.ends(130)
    eventually(lambda: not session_files(cluster))  # the host deletes what the client has not


def test_ports_that_cannot_be_forwarded_say_why(cluster: Cluster, web: str) -> None:
    """One in use here, one without a program there, a name that the job has not, and what is no
    port.
    """
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = cluster.iris("port-forward", web, f"{port}:http", code=2).err
    assert f"port: '{port}'" in refused
    assert "Address already in use" in refused
    assert "the job has no port named 'htp'" in cluster.iris("port-forward", web, "htp", code=5).err
    assert "99999" in cluster.iris("port-forward", web, "8888:99999", code=2).err
    unserved = free_port()
    with (
        forwarding(cluster, web, f"0:{unserved}") as command,
        pytest.raises(OSError, match=r"closed|reset"),
    ):
        urlopen(url(command), timeout=PATIENCE)
    assert f"port {unserved}" in command.err


def test_the_end_of_the_attempt_ends_the_forwarding_with_its_reason(cluster: Cluster) -> None:
    """A retry runs elsewhere, with ports of its own."""
    cluster.submit("forwarded-once", "--cpu", "0.1", "--", "sleep", "1000")
    eventually(lambda: cluster.status("forwarded-once")["state"] == "RUNNING")
    with forwarding(cluster, "forwarded-once", "0:8888") as command:
        cluster.iris("cancel", "forwarded-once")
        assert "attempt has ended" in command.ends(1).err
