"""The hosts of resources: each is a process (`machine.py`) that survives the cloud's own
process.
"""

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from iris.model.host.accelerators import tpu
from tests.fakes.google.cloud import Cloud
from tests.fakes.google.records import INSTANCE, NODE, SPOT, Machine, Resource
from tests.fakes.google.tpu_messages import Node

#: The root of the repository: what `tests.…` is found from.
ROOT = Path(__file__).parents[3]


class Machines:
    """Power, with real processes behind it."""

    #: Set before anything happens.
    cloud: Cloud

    def __init__(self, directory: Path, owner: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._owner = directory, owner
        self._children: list[subprocess.Popen[bytes]] = []

    def on(self, resource: Resource) -> None:
        """Every host boots but those that are not to."""
        for worker in range(
            min(resource.hosts, len(resource.endpoints)) if resource.kind == NODE else 1
        ):
            if host_name(resource, worker) not in self.cloud.knobs.dead_hosts:
                self._boot(resource, worker)
        self.cloud.touch(resource)

    def off(self, resource: Resource) -> None:
        for machine in resource.machines.values():
            if _plays(machine):
                os.kill(machine.pid, signal.SIGTERM)
            machine.pid = 0

    def notice(self, resource: Resource) -> None:
        for worker in resource.machines:
            with contextlib.suppress(OSError):  # one that is broken hears nothing
                self.set(resource, int(worker), "instance/preempted", "TRUE")

    def reap(self) -> int:
        """How many of its children have not ended."""
        self._children = [each for each in self._children if each.poll() is None]
        return len(self._children)

    def set(self, resource: Resource, worker: int, path: str, value: str) -> None:
        """Change a value of a host's metadata."""
        port = (Path(resource.machines[str(worker)].directory) / "port").read_text()
        body = json.dumps({"path": path, "value": value}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/machine/set", body, timeout=60):
            pass

    def console(self, resource: Resource, worker: int) -> Path:
        """The file of a host's serial console."""
        machine = resource.machines.get(str(worker))
        return Path(machine.directory, "console.log") if machine else Path(os.devnull)

    def told(self, resource: Resource) -> list[dict[str, Any]]:
        """The hosts that have booted."""
        return [
            {
                "worker": int(worker),
                "pid": machine.pid,
                "directory": machine.directory,
                "alive": _plays(machine),
            }
            for worker, machine in resource.machines.items()
        ]

    def _boot(self, resource: Resource, worker: int) -> None:
        machine = resource.machines.get(str(worker))
        if machine is None:
            number = len(list(self._directory.iterdir()))
            machine = Machine(0, str(self._directory / str(number)))
            Path(machine.directory).mkdir()
        home = Path(machine.directory)
        told = {
            "name": host_name(resource, worker),
            "owner": self._owner,
            "metadata": metadata_of(resource, worker),
        }
        (home / "machine.json").write_text(json.dumps(told))
        with (home / "machine.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.fakes.google.machine", str(home)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children.append(child)
        machine.pid = child.pid
        resource.machines[str(worker)] = machine


def _plays(machine: Machine) -> bool:
    """Whether its process runs: a number may be somebody else's by now."""
    if not machine.pid:
        return False
    try:
        return machine.directory.encode() in Path(
            f"/proc/{machine.pid}/cmdline"
        ).read_bytes().split(b"\0")
    except OSError:
        return False


def host_name(resource: Resource, worker: int) -> str:
    """What tests call a host."""
    return (
        f"{resource.name}-w-{worker}"
        if resource.kind == NODE and resource.hosts > 1
        else resource.name
    )


def metadata_of(resource: Resource, worker: int) -> dict[str, str]:
    """Everything that the host's metadata server knows, by path."""
    attributes = (
        _tpu_attributes(resource, worker)
        if resource.kind == NODE
        else _instance_attributes(resource)
    )
    short = (
        f"t1v-n-{resource.uid % (1 << 32):08x}-w-{worker}"
        if resource.kind == NODE
        else resource.name
    )
    token = {"access_token": "ya29.fake", "expires_in": 3599, "token_type": "Bearer"}
    account = "123456789012-compute@developer.gserviceaccount.com"
    values = {
        "project/project-id": resource.project,
        "project/numeric-project-id": "123456789012",
        "instance/id": str(resource.uid + worker),
        "instance/name": short,
        # Nobody resolves it here.
        "instance/hostname": f"{short}.{resource.zone}.c.{resource.project}.internal",
        "instance/zone": f"projects/123456789012/zones/{resource.zone}",
        "instance/machine-type": f"projects/123456789012/machineTypes/{resource.type}",
        "instance/preempted": "FALSE",
        "instance/maintenance-event": "NONE",
        "instance/scheduling/preemptible": "TRUE" if resource.tier == SPOT else "FALSE",
        "instance/network-interfaces/0/ip": resource.endpoints[worker][0],
        "instance/network-interfaces/0/access-configs/0/external-ip": resource.endpoints[worker][1],
        "instance/service-accounts/default/email": account,
        "instance/service-accounts/default/scopes": (
            "https://www.googleapis.com/auth/cloud-platform\n"
        ),
        "instance/service-accounts/default/token": json.dumps(token),
    }
    return values | {f"instance/attributes/{name}": value for name, value in attributes.items()}


def _instance_attributes(resource: Resource) -> dict[str, str]:
    items = (
        json.loads(resource.body).get("metadata", {}).get("items", [])
        if resource.kind == INSTANCE
        else []
    )
    return {each["key"]: each.get("value", "") for each in items}


def _tpu_attributes(resource: Resource, worker: int) -> dict[str, str]:
    kind = tpu(resource.type)
    bounds = {1: "1,1,1", 4: "2,2,1", 8: "2,4,1"}[kind.chips_per_host]
    environment = {
        "ACCELERATOR_TYPE": resource.type,
        "CHIPS_PER_HOST_BOUNDS": bounds,
        "NODE_ID": resource.name,
        "TOPOLOGY": kind.topology,
        "WORKER_ID": str(worker),
        "ZONE": resource.zone,
    }
    asked = dict(Node.FromString(base64.b64decode(resource.body)).metadata)
    return {
        **asked,
        "accelerator-type": resource.type,
        "agent-worker-number": str(worker),
        "worker-network-endpoints": ",".join(
            f"unknown:unknown:{private}" for private, _ in resource.endpoints
        ),
        "instance-id": resource.name,
        "tpu-env": "".join(f"{name}: '{value}'\n" for name, value in environment.items()),
    }
