"""Runs commands over SSH on the machine of a control plane on Google Cloud, to find faults. The
commands change nothing.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from datetime import timedelta
from typing import Any

from iris.client.connect.clusters import ControllerVm
from iris.client.connect.tunnel import GCLOUD, SSH_OPTIONS, ssh_login
from iris.model.errors import Rejected, Unreachable

#: How long one command on the control plane's machine may take, including the creation of an SSH
#: key at the first login.
SSH_TIMEOUT = timedelta(minutes=2)
#: The name that the startup script gives the container of the control plane.
CONTAINER = "iris-controller"
#: How many lines of gcloud's output an error shows.
ERROR_LINES = 5
#: A shell script that prints the state of the control plane's machine. Each line is a keyword and a
#: value, separated by a bar. The keyword `container` may occur several times.
_STATUS_SCRIPT = """
printf 'hostname|%s\\n' "$(hostname)"
printf 'up|%s\\n' "$(uptime -p)"
printf 'load|%s\\n' "$(cut -d' ' -f1-3 /proc/loadavg)"
printf 'disk|%s\\n' "$(df -h --output=used,size,pcent / | tail -n 1 | xargs)"
printf 'startup|%s\\n' "$(systemctl is-active google-startup-scripts 2>/dev/null)"
sudo docker ps --all --format='container|{{.Names}}|{{.Image}}|{{.Status}}'
"""


def ssh_command(vm: ControllerVm, command: str) -> list[str]:
    """Builds the command line that runs a shell command on the machine."""
    return [
        *ssh_login(vm),
        *(f"--ssh-flag=-o{option}" for option in SSH_OPTIONS),
        f"--command={command}",
    ]


def container_log(vm: ControllerVm, tail: int) -> list[str]:
    """Returns the last lines of the log of the control plane's container."""
    return run_on_machine(vm, f"sudo docker logs --tail={tail} {CONTAINER} 2>&1").splitlines()


def machine_status(vm: ControllerVm) -> dict[str, Any]:
    """Returns the machine's containers, disk use, uptime and load, and the state of its startup
    script.
    """
    found: dict[str, Any] = {"machine": vm.machine, "zone": vm.zone}
    containers = []
    for line in run_on_machine(vm, _STATUS_SCRIPT).splitlines():
        what, *rest = line.split("|")
        if what == "container" and len(rest) == 3:
            containers.append(dict(zip(("name", "image", "status"), rest, strict=True)))
        elif len(rest) == 1:
            found[what] = rest[0]
    return {**found, "containers": containers}


def run_on_machine(vm: ControllerVm, command: str, timeout: timedelta = SSH_TIMEOUT) -> str:
    """Runs a shell command on the machine and returns its output.

    Raises:
        Unreachable: the login failed, or the command failed or did not end in time.
        Rejected: gcloud is not installed on this machine.
    """
    if shutil.which(GCLOUD) is None:
        raise Rejected(
            "gcloud is not installed here; install the Google Cloud CLI, then run: gcloud auth"
            " login"
        )
    pipe, line = subprocess.PIPE, ssh_command(vm, command)
    with subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
    ) as process:
        try:
            out, err = (
                output.decode(errors="replace")
                for output in process.communicate(timeout=timeout.total_seconds())
            )
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):  # ends gcloud and its child ssh
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                problem = (
                    f"{vm.machine} did not answer over SSH within {timeout.total_seconds():g} s"
                )
                raise Unreachable(problem) from None
            raise
    if process.returncode != 0:
        output = "\n".join((err or out).strip().splitlines()[-ERROR_LINES:])
        raise Unreachable(
            f"ssh to {vm.machine} in {vm.zone} ended with {process.returncode}:\n{output}"
        )
    return out
