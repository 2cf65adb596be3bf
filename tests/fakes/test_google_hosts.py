"""Hosts of the fake Google: they boot, run their scripts, and end with all processes that they
started.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fakes.google.callers import (
    a_node,
    an_instance,
    instances_client,
    location,
    operations_client,
    tpu_client,
)
from tests.fakes.google.client import ROOT, FakeGoogle, end_machines

pytestmark = pytest.mark.long

PROJECT, ZONE = "project-1", "europe-west4-b"
PLACE: dict[str, Any] = {"project": PROJECT, "zone": ZONE}
PATIENCE = 90.0
#: A program that nobody would find by its parents: it has left its session, and its parent has
#: ended.
SCRIPT = """
echo "[iris-init] worker $(curl -sf -H 'Metadata-Flavor: Google' \
    "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/attributes/agent-worker-number")"
mkdir -p "$IRIS_ROOT/etc/iris" && echo "as it is" > "$IRIS_ROOT/etc/iris/config"
docker pull some/missing:1 || echo "[iris-init] pull failed"
docker rm -f agent
docker run -d --name agent --restart=unless-stopped --ulimit core=0:0 -e FILE=/etc/iris/config \
    -v "$IRIS_ROOT/etc/iris:/etc/iris:ro" some/image:1 \
    bash -c '(setsid sleep 4711 &); echo $$ >> pids; cat "$FILE" "$0"; exec sleep 4712' /etc/iris/config
"""


@pytest.fixture
def google() -> Iterator[FakeGoogle]:
    with FakeGoogle(boot=True) as fake:
        yield fake


def until(holds: Callable[[], Any]) -> Any:
    """What the condition says as soon as it is true."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := holds()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)
    return answer


def started_in(directory: Path | str) -> list[str]:
    """The commands of all processes that work below a directory."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if (
                process.cwd().startswith(f"{directory}/")
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(" ".join(process.cmdline()))
    return found


def commands() -> list[str]:
    """Of all processes."""
    return [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]


def sleepers(directory: Path | str) -> list[str]:
    return sorted(each for each in started_in(directory) if each.startswith("sleep"))


def create(google: FakeGoogle, name: str = "n1", kind: str = "v5litepod-16") -> None:
    node = a_node(kind, metadata={"startup-script": SCRIPT})
    tpu_client(google).create_node(parent=location(PROJECT), node_id=name, node=node, timeout=60)


def pids_of(host: dict[str, Any]) -> list[str]:
    path = Path(host["directory"], "docker", "pids")
    return path.read_text().split() if path.exists() else []


def test_every_host_runs_its_script_with_its_worker_id(google: FakeGoogle) -> None:
    """The output is on its console; a host without a boot has no output, and the node is ready all
    the same.
    """
    google.refuse_boot("n1-w-2")
    create(google)
    for worker in (0, 1, 3):
        until(lambda worker=worker: "exit status 0" in google.console("n1", worker))
        assert f"startup-script: [iris-init] worker {worker}\n" in google.console("n1", worker)
        assert "[iris-init] pull failed" in google.console("n1", worker)

    assert google.console("n1", 2) == ""
    assert google.resources()[0]["state"] == "READY"


def test_a_container_has_its_mounts_and_is_restarted(google: FakeGoogle) -> None:
    """All its processes end with the first one."""
    create(google, kind="v5litepod-8")
    host = until(lambda: google.hosts("n1"))[0]
    log = Path(host["directory"], "docker", "agent.log")
    until(lambda: sleepers(host["directory"]) == ["sleep 4711", "sleep 4712"])
    assert log.read_text() == "as it is\nas it is\n"

    os.kill(int(pids_of(host)[0]), signal.SIGKILL)
    until(lambda: len(pids_of(host)) == 2)
    until(lambda: sleepers(host["directory"]) == ["sleep 4711", "sleep 4712"])


def test_a_delete_ends_all_processes(google: FakeGoogle) -> None:
    """Wherever they run."""
    create(google)
    until(lambda: len(sleepers(google.directory)) == 8)
    tpu_client(google).delete_node(name=f"{location(PROJECT)}/nodes/n1", timeout=60)

    until(lambda: not started_in(google.directory))
    until(lambda: not google.alive())


def test_a_preempted_host_gets_a_notice_before_it_ends(google: FakeGoogle) -> None:
    """It can still work during the notice."""
    create(google, kind="v5litepod-8")
    host = until(lambda: google.hosts("n1"))[0]
    until(lambda: sleepers(host["directory"]))
    port = Path(host["directory"], "port").read_text()
    google.preempt("n1")
    url = f"http://127.0.0.1:{port}/computeMetadata/v1/instance/preempted"
    told = subprocess.run(
        ["curl", "-sf", "-H", "Metadata-Flavor: Google", url],
        capture_output=True,
        text=True,
        check=True,
    )

    assert told.stdout == "TRUE"
    assert sleepers(host["directory"])
    google.advance(31)
    until(lambda: not started_in(host["directory"]))


def test_a_reset_keeps_the_disk_and_starts_the_containers(google: FakeGoogle) -> None:
    """The script runs again, on the same console; a stopped host does nothing until it is
    started.
    """
    vms, operations = instances_client(google), operations_client(google)
    instance = an_instance("vm1", metadata={"items": [{"key": "startup-script", "value": SCRIPT}]})
    vms.insert_unary(instance_resource=instance, **PLACE)

    def runs() -> int:
        return vms.get_serial_port_output(instance="vm1", **PLACE).contents.count("exit status 0")

    until(lambda: google.hosts("vm1"))
    until(lambda: runs() == 1)
    vms.reset_unary(instance="vm1", **PLACE)
    until(lambda: runs() == 2)
    until(lambda: len(sleepers(google.directory)) == 2)

    stopping = vms.stop_unary(instance="vm1", **PLACE)
    operations.wait(operation=stopping.name, **PLACE)
    until(lambda: not started_in(google.directory))
    assert vms.get(instance="vm1", **PLACE).status == "TERMINATED"
    vms.start_unary(instance="vm1", **PLACE)
    until(lambda: runs() == 3)


def test_hosts_survive_the_process_of_the_cloud(google: FakeGoogle) -> None:
    """Machines do not need the API; the next process finds them."""
    create(google)
    until(lambda: len(sleepers(google.directory)) == 8)
    before = google.hosts("n1")
    google.kill()
    assert len(sleepers(google.directory)) == 8
    google.restart()

    assert google.hosts("n1") == before
    tpu_client(google).delete_node(name=f"{location(PROJECT)}/nodes/n1", timeout=60)
    until(lambda: not started_in(google.directory))


@pytest.mark.parametrize("dead", [False, True])
def test_no_process_outlives_the_test(tmp_path: Path, dead: bool) -> None:
    """A killed test cleans up nothing itself; its processes end by themselves, also the hosts of a
    dead cloud.
    """
    program = f"""
import time
from pathlib import Path
from tests.fakes.google.client import FakeGoogle
from tests.fakes.test_google_hosts import create, sleepers, until

google = FakeGoogle(boot=True, directory=Path({str(tmp_path)!r})).start()
create(google)
until(lambda: len(sleepers(google.directory)) == 8)
if {dead}:
    google.kill()
print("up", flush=True)
time.sleep(1000)
"""
    test = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert test.stdout is not None
    with test, contextlib.ExitStack() as cleaning:
        cleaning.callback(end_machines, tmp_path)
        assert test.stdout.readline() == "up\n"
        test.kill()
        test.wait()
        until(lambda: not started_in(tmp_path))
        until(lambda: not any(str(tmp_path) in each for each in commands()))
