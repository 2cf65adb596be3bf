"""Logging in to the machine of a control plane on Google Cloud. Looks only; for people who have to know what is wrong."""

import contextlib
import os
import shutil
import signal
import subprocess
from datetime import timedelta
from typing import Any

from iris.client.clusters import ClusterRecord, Gate
from iris.client.tunnel import GCLOUD, SSH_OPTIONS, login
from iris.config import ClusterConfig
from iris.config_models import GcpController
from iris.errors import InvalidValue, Rejected, Unreachable
from iris.platforms.gcp.marks import controller_name
from iris.platforms.gcp.settings import gcp_settings

#: For a command on the machine, the making of a key at the first time included.
PATIENCE = timedelta(minutes=2)
#: How the startup script calls it.
CONTAINER = "iris-controller"
#: Lines of gcloud's own words that go with an error.
SAID = 5
#: Each line a word and what it is about, with bars between; of containers there are several.
_LOOK = """
printf 'hostname|%s\\n' "$(hostname)"
printf 'up|%s\\n' "$(uptime -p)"
printf 'load|%s\\n' "$(cut -d' ' -f1-3 /proc/loadavg)"
printf 'disk|%s\\n' "$(df -h --output=used,size,pcent / | tail -n 1 | xargs)"
printf 'startup|%s\\n' "$(systemctl is-active google-startup-scripts 2>/dev/null)"
sudo docker ps --all --format='container|{{.Names}}|{{.Image}}|{{.Status}}'
"""


def gate_of(config: ClusterConfig) -> Gate:
    """The machine that this configuration's control plane has, or would have.

    Raises:
        InvalidValue: the configuration is not for Google Cloud, or names no zone for it.
    """
    settings = gcp_settings(config, uid="")
    asked = config.controller.gcp or GcpController()
    if not asked.zone:
        remedy = "write controller: {gcp: {zone: …}}, or platform: {gcp: {default_zones: […]}}"
        raise InvalidValue("controller.gcp.zone", asked.zone, "is not a zone", remedy)
    return Gate(project=settings.project, zone=asked.zone, machine=controller_name(settings), port=asked.port, iap=asked.iap)


def record_of(config: ClusterConfig, machine: str, zone: str) -> ClusterRecord:
    """How this configuration's cluster is reached whose control plane is on that machine; a tunnel is yet to be opened.

    Raises:
        InvalidValue: as `gate_of` does.
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
    """The command line that runs a shell's command there."""
    return [*login(gate), *(f"--ssh-flag=-o{option}" for option in SSH_OPTIONS), f"--command={command}"]


def container_log(gate: Gate, tail: int) -> list[str]:
    """The last lines of the control plane's container.

    Raises:
        Unreachable, Rejected: as `run_there` does.
    """
    return run_there(gate, f"sudo docker logs --tail={tail} {CONTAINER} 2>&1").splitlines()


def look(gate: Gate) -> dict[str, Any]:
    """The machine's containers, its disk, how long it is up, and whether its startup script has ended.

    Raises:
        Unreachable, Rejected: as `run_there` does.
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


def run_there(gate: Gate, command: str, patience: timedelta = PATIENCE) -> str:
    """What a shell's command prints on the machine.

    Raises:
        Unreachable: nobody could log in, or the command did not end in time, or failed.
        Rejected: there is no gcloud on this machine.
    """
    if shutil.which(GCLOUD) is None:
        raise Rejected("gcloud is not installed here; install the Google Cloud CLI, then say: gcloud auth login")
    pipe, line = subprocess.PIPE, ssh_command(gate, command)
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True) as process:
        try:
            out, err = (said.decode(errors="replace") for said in process.communicate(timeout=patience.total_seconds()))
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):  # with the ssh that it has started
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                words = f"{gate.machine} did not answer over SSH within {patience.total_seconds():g} s"
                raise Unreachable(words) from None
            raise
    if process.returncode != 0:
        said = "\n".join((err or out).strip().splitlines()[-SAID:])
        raise Unreachable(f"ssh to {gate.machine} in {gate.zone} ended with {process.returncode}:\n{said}")
    return out
