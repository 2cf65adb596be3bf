"""Runs commands over SSH on the machine of a control plane on Google Cloud, to find faults. Changes nothing there."""

import contextlib
import os
import shutil
import signal
import subprocess
from datetime import timedelta
from typing import Any

from iris.client.connect.clusters import ClusterRecord, Gate
from iris.client.connect.tunnel import GCLOUD, SSH_OPTIONS, login
from iris.config import ClusterConfig
from iris.config.schema import GcpControllerConfig
from iris.model.errors import InvalidValue, Rejected, Unreachable
from iris.platforms.gcp.labels import controller_name
from iris.platforms.gcp.settings import gcp_settings

#: For one command on the machine; includes the creation of an SSH key at the first login.
SSH_TIMEOUT = timedelta(minutes=2)
#: The name that the startup script gives the container.
CONTAINER = "iris-controller"
#: How many lines of gcloud's output an error shows.
SAID = 5
#: Each output line is a keyword and its value, separated by bars. There may be several `container` lines.
_LOOK = """
printf 'hostname|%s\\n' "$(hostname)"
printf 'up|%s\\n' "$(uptime -p)"
printf 'load|%s\\n' "$(cut -d' ' -f1-3 /proc/loadavg)"
printf 'disk|%s\\n' "$(df -h --output=used,size,pcent / | tail -n 1 | xargs)"
printf 'startup|%s\\n' "$(systemctl is-active google-startup-scripts 2>/dev/null)"
sudo docker ps --all --format='container|{{.Names}}|{{.Image}}|{{.Status}}'
"""


def gate_of(config: ClusterConfig) -> Gate:
    """Returns the machine of this configuration's control plane, whether or not it exists.

    Raises:
        InvalidValue: the configuration is not for Google Cloud, or names no zone for the control plane.
    """
    settings = gcp_settings(config, uid="")
    asked = config.controller.gcp or GcpControllerConfig()
    if not asked.zone:
        remedy = "write controller: {gcp: {zone: …}}, or platform: {gcp: {default_zones: […]}}"
        raise InvalidValue("controller.gcp.zone", asked.zone, "is not a zone", remedy)
    return Gate(project=settings.project, zone=asked.zone, machine=controller_name(settings), port=asked.port, iap=asked.iap)


def record_of(config: ClusterConfig, machine: str, zone: str) -> ClusterRecord:
    """Builds the record of this configuration's cluster for a control plane on that machine. Opens no tunnel.

    Raises:
        InvalidValue: as in `gate_of`.
    """
    temporal = config.controller.temporal
    gate = gate_of(config).model_copy(update={"machine": machine, "zone": zone})
    return ClusterRecord(
        name=config.name,
        address="" if temporal is None else temporal.address,
        namespace="default" if temporal is None else temporal.namespace,
        store=config.controller.bundle_prefix,
        remote=True,
        project=gate.project,
        gate=gate if temporal is None else None,
    )


def ssh_command(gate: Gate, command: str) -> list[str]:
    """Builds the command line that runs a shell command on the machine."""
    return [*login(gate), *(f"--ssh-flag=-o{option}" for option in SSH_OPTIONS), f"--command={command}"]


def container_log(gate: Gate, tail: int) -> list[str]:
    """Returns the last lines of the log of the control plane's container.

    Raises:
        Unreachable, Rejected: as in `run_there`.
    """
    return run_there(gate, f"sudo docker logs --tail={tail} {CONTAINER} 2>&1").splitlines()


def look(gate: Gate) -> dict[str, Any]:
    """Returns the machine's containers, disk use, uptime and load, and the state of its startup script.

    Raises:
        Unreachable, Rejected: as in `run_there`.
    """
    found: dict[str, Any] = {"machine": gate.machine, "zone": gate.zone}
    containers = []
    for line in run_there(gate, _LOOK).splitlines():
        what, *rest = line.split("|")
        if what == "container" and len(rest) == 3:
            containers.append(dict(zip(("name", "image", "status"), rest, strict=True)))
        elif len(rest) == 1:
            found[what] = rest[0]
    return {**found, "containers": containers}


def run_there(gate: Gate, command: str, patience: timedelta = SSH_TIMEOUT) -> str:
    """Runs a shell command on the machine and returns its output.

    Raises:
        Unreachable: the login failed, or the command failed or did not end in time.
        Rejected: gcloud is not installed on this machine.
    """
    if shutil.which(GCLOUD) is None:
        raise Rejected("gcloud is not installed here; install the Google Cloud CLI, then say: gcloud auth login")
    pipe, line = subprocess.PIPE, ssh_command(gate, command)
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True) as process:
        try:
            out, err = (said.decode(errors="replace") for said in process.communicate(timeout=patience.total_seconds()))
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):  # also ends the ssh that gcloud has started
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                words = f"{gate.machine} did not answer over SSH within {patience.total_seconds():g} s"
                raise Unreachable(words) from None
            raise
    if process.returncode != 0:
        said = "\n".join((err or out).strip().splitlines()[-SAID:])
        raise Unreachable(f"ssh to {gate.machine} in {gate.zone} ended with {process.returncode}:\n{said}")
    return out
