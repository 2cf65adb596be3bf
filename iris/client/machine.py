"""Logging in to the machine of a control plane on Google Cloud. Looks only; for people who have to know what is wrong."""

import shutil
import subprocess
from datetime import timedelta
from typing import Any

from iris.client.clusters import Gate
from iris.client.tunnel import GCLOUD
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


def ssh_command(gate: Gate, command: str) -> list[str]:
    """The command line that runs a shell's command there."""
    through = ["--tunnel-through-iap"] if gate.iap else []
    where = [gate.machine, f"--project={gate.project}", f"--zone={gate.zone}", "--quiet", *through]
    return [GCLOUD, "compute", "ssh", *where, f"--command={command}"]


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


def run_there(gate: Gate, command: str) -> str:
    """What a shell's command prints on the machine.

    Raises:
        Unreachable: nobody could log in, or the command did not end in time, or failed.
        Rejected: there is no gcloud on this machine.
    """
    if shutil.which(GCLOUD) is None:
        raise Rejected("gcloud is not installed here; install the Google Cloud CLI, then say: gcloud auth login")
    try:
        ran = subprocess.run(
            ssh_command(gate, command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE.total_seconds(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{gate.machine} did not answer over SSH within {PATIENCE.seconds} s") from None
    if ran.returncode != 0:
        said = "\n".join((ran.stderr or ran.stdout).strip().splitlines()[-SAID:])
        raise Unreachable(f"ssh to {gate.machine} in {gate.zone} ended with {ran.returncode}:\n{said}")
    return ran.stdout
