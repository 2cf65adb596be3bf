"""`docker/compose.yaml` runs with the images that this repository builds: PostgreSQL from Debian,
Temporal's server from its Go module, the control plane and an agent. Temporal's Web UI, which is
not built here, and its guard are left out.
"""

import json
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
import yaml

from tests.attacks.test_sockets import listed
from tests.e2e.cluster import USER, eventually, until
from tests.e2e.operate.production import OwnCluster
from tests.images import docker_image

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "docker/compose.yaml"
#: The services that keep running. `up` also starts those that they depend on, but neither the Web
#: UI nor its guard.
SERVICES = ("postgres", "temporal", "iris", "agent")
#: Of this machine alone, and of no other test.
ADDRESS = "127.0.77.1"
IMAGES = {
    "POSTGRES_IMAGE": "iris-postgres:test",
    "TEMPORAL_IMAGE": "iris-temporal:test",
    "TEMPORAL_TOOLS_IMAGE": "iris-temporal:test",
    "IRIS_IMAGE": "iris-controller:test",
    "IRIS_AGENT_IMAGE": "iris-agent:test",
}
#: In Linux's tables of sockets: the state of a socket that listens, and 127.0.0.11.
LISTEN, RESOLVER = "0A", "0B00007F"
#: For one command of compose.
PATIENCE = 180.0


class Composed:
    """The services of the file in a project of their own.

    Args:
        directory: for the configuration and the store. The user of the control plane can enter it.
    """

    def __init__(self, directory: Path) -> None:
        self.store = directory / "store"
        self.store.mkdir()
        self.store.chmod(0o777)
        config = directory / "cluster.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "name": "composed",
                    "platform": {"local": {}},
                    "controller": {
                        "bundle_prefix": self.store.as_uri(),
                        "temporal": {"address": f"{ADDRESS}:7233"},
                    },
                }
            )
        )
        self._env = {
            **os.environ,
            **IMAGES,
            "POSTGRES_PASSWORD": "letters7",
            "IRIS_CONFIG": str(config),
            "IRIS_STORE_DIR": str(self.store),
            "IRIS_PUBLISH": ADDRESS,
            "IRIS_CLUSTER": f"{ADDRESS}:7233/composed",
        }
        program = subprocess.run(
            [ROOT / "scripts/install-compose"],
            check=True,
            capture_output=True,
            text=True,
            timeout=600,
        ).stdout.split()
        # Debian 12 has version 1, which does not know the file's `name`.
        text = COMPOSE.read_text()
        if program == ["docker-compose"]:
            text = text.replace("\nname: iris\n", "\n")
        self._file = directory / "compose.yaml"
        self._file.write_text(text)
        project = f"iris-test-{uuid4().hex[:8]}"
        self._command = [
            *program,
            "--project-name",
            project,
            "--project-directory",
            str(COMPOSE.parent),
        ]
        self._command += ["--file", str(self._file), "--profile", "agent"]

    def do(self, *arguments: str) -> str:
        """Runs a command of compose to its end, and returns what it prints."""
        ran = subprocess.run(
            [*self._command, *arguments],
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        if ran.returncode and arguments != ("logs",):
            pytest.fail(f"{arguments}\n{ran.stdout}\n{ran.stderr}\n{self.do('logs')[-8000:]}")
        return ran.stdout

    def up(self) -> None:
        self.do("up", "--detach", *SERVICES)

    def container(self, service: str) -> dict[str, Any]:
        """What the engine says of the container of a service."""
        name = self.do("ps", "--quiet", service).strip()
        shown = subprocess.run(
            ["docker", "inspect", name], capture_output=True, check=True, timeout=60
        )
        return dict(json.loads(shown.stdout)[0])


@pytest.fixture(scope="module")
def composed() -> Iterator[Composed]:
    docker_image()  # or fails with what to do: no engine answers
    subprocess.run(
        [ROOT / "scripts/build-images", "--local-base", "--services", "--tag", "test"],
        check=True,
        timeout=1800,
    )
    with tempfile.TemporaryDirectory(prefix="iris-compose-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        services = Composed(directory)
        try:
            services.up()
            yield services
        finally:
            services.do("down", "--volumes", "--timeout", "5")


@pytest.fixture(scope="module")
def cluster(composed: Composed) -> Iterator[OwnCluster]:
    """The commands of a user on the same machine."""
    with tempfile.TemporaryDirectory(prefix="iris-") as name:
        found = OwnCluster(Path(name), "composed", [f"{ADDRESS}:7233"])
        eventually(lambda: hosts(found) == ["READY"], every=1)
        yield found


def hosts(cluster: OwnCluster) -> list[str]:
    """The states of the hosts; none while the service does not answer."""
    listed = cluster.iris("host", "list", "--json", code=None)
    return [each["state"] for each in listed.json] if listed.code == 0 else []


def own_sockets(container: dict[str, Any]) -> set[tuple[str, int]]:
    """Address and port of the TCP sockets on which processes of a container listen that has the
    machine's network.
    """
    root = psutil.Process(container["State"]["Pid"])
    return {
        (each.laddr.ip, each.laddr.port)
        for process in [root, *root.children(recursive=True)]
        for each in process.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    }


def open_ports(container: dict[str, Any]) -> set[int]:
    """The TCP ports on which a container with a network of its own listens, without Docker's
    resolver of names.
    """
    found = set()
    for table in ("tcp", "tcp6"):
        rows = Path(f"/proc/{container['State']['Pid']}/net/{table}").read_text().splitlines()[1:]
        for row in rows:
            _, local, _, state, *_ = row.split()
            ip, port = local.split(":")
            if state == LISTEN and ip != RESOLVER:
                found.add(int(port, 16))
    return found


def test_a_job_survives_the_restart_of_each_service(
    composed: Composed, cluster: OwnCluster
) -> None:
    """Its program runs on unless its own host ends, and it ends well once."""
    here = composed.store / "marks"
    here.mkdir(mode=0o777)
    here.chmod(0o777)
    # Each attempt has a user of its own, so each makes a file of its own.
    steps = (f"mktemp {here}/begun.XXXXXX", until(f"{here}/go"), f"mktemp {here}/ended.XXXXXX")
    cluster.submit("long", "--", "sh", "-c", "; ".join(steps))

    def marks(name: str) -> int:
        return len(list(here.glob(f"{name}.*")))

    eventually(lambda: marks("begun") == 1, every=0.5)
    for service in SERVICES:
        composed.do("restart", "--timeout", "10", service)
        eventually(lambda: hosts(cluster) == ["READY"], every=1)
        said = cluster.iris("submit", "-n", f"after-{service}", "--cpu", "0", "--", "echo", service)
        assert said.out == f"{service}\n"
        assert service == "agent" or marks("begun") == 1
    eventually(lambda: marks("begun") == 2, every=0.5)
    (here / "go").touch()
    assert cluster.iris("wait", "long").code == 0
    assert (marks("begun"), marks("ended")) == (2, 1)


#: The sockets of the containers in the table of the security page, by their port.
SOCKETS = {
    5432: "PostgreSQL",
    7233: "Temporal service (gRPC)",
    7243: "HTTP API",
    **dict.fromkeys((7234, 7235, 7239), "internal services (gRPC)"),
    **dict.fromkeys((6933, 6934, 6935, 6939), "membership"),
}


def test_nothing_listens_that_the_security_page_does_not_name(
    composed: Composed, cluster: OwnCluster
) -> None:
    """Outside of the containers' network there is one port that others reach. Two containers have
    the machine's network.
    """
    containers = {service: composed.container(service) for service in SERVICES}
    published = {
        (socket["HostIp"], socket["HostPort"])
        for container in containers.values()
        for sockets in container["NetworkSettings"]["Ports"].values()
        for socket in sockets or ()
    }
    assert published == {(ADDRESS, "7233")}
    # The dashboard begins to listen a moment after the control plane serves.
    eventually(lambda: own_sockets(containers["iris"]) == {("127.0.0.1", 10002)}, every=0.5)
    assert own_sockets(containers["agent"]) == set()
    ports = open_ports(containers["postgres"]) | open_ports(containers["temporal"])
    assert Counter(SOCKETS[port] for port in ports) == listed("Between its containers:")


def test_jobs_and_logs_survive_down_and_up(composed: Composed, cluster: OwnCluster) -> None:
    """Containers are deleted; the volumes and the store keep everything."""
    cluster.iris("submit", "-n", "kept", "--", "echo", "kept")
    composed.do("down", "--timeout", "10")
    composed.up()
    eventually(lambda: hosts(cluster) == ["READY"], every=1)
    jobs = {each["id"]: each["state"] for each in cluster.iris("jobs", "--all", "--json").json}
    assert jobs[f"{USER}/kept"] == "SUCCEEDED"
    assert cluster.logs("kept") == ["kept"]
    assert cluster.iris("submit", "-n", "next", "--", "echo", "next").out == "next\n"
