"""Builds the scripts that read and change the lease of a machine, and parses their answers. Runs
nothing.
"""

import base64
import shlex
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from iris.model import names
from iris.model.frozen import Frozen
from iris.model.host.constraints import written
from iris.model.host.resources import DeviceKind
from iris.model.slice.provisioning import MachineState, SliceObservation, SliceRequest
from iris.platforms.manual.settings import HostAccess, ManualSettings

_SCRIPT = (Path(__file__).parent / "host.sh").read_text()
#: The directory for the files of those jobs of a slice that run under separate operating-system
#: users. It is outside of Iris's own directory, which these users cannot enter.
JOBS = "/var/lib/iris-jobs-{slice_id}"


class Lease(Frozen):
    """The lease by which a slice has a machine, as the file on the machine records it."""

    uid: str
    request: SliceRequest
    created_at: datetime
    public_key: str
    #: The address of the machine in the configuration, at the time of the lease.
    address: str


class Fault(NamedTuple):
    """The reason why a slice does not start."""

    reason: str
    #: True if the slice cannot start before a person changes something.
    final: bool


class HostState(Frozen):
    """The state of a machine, as the script on the machine reports it."""

    #: The lease of the machine; None if no slice leases it.
    lease: Lease | None = None
    #: True if the lease cannot be parsed, because another version of Iris wrote it.
    unreadable: bool = False
    deleting: bool = False
    #: The digest of the installed packages; empty if none are installed.
    runtime: str = ""
    #: The port on the machine for the tunnel to the control plane; 0 if there was no tunnel yet.
    port: int = 0
    #: The digest of the files on the machine with the keys of payloads, secrets and messages; empty
    #: without such files.
    keys: str = ""
    #: True if an agent was started for this lease.
    started: bool = False
    #: True if the agent on the machine runs.
    running: bool = False

    @property
    def free(self) -> bool:
        """True if no slice leases the machine."""
        return self.lease is None and not self.unreadable


def state_of(answer: Mapping[str, str]) -> HostState:
    """Returns the state that a machine reported."""
    lease, unreadable = None, False
    if "lease" in answer:
        try:
            lease = Lease.model_validate_json(base64.b64decode(answer["lease"]))
        except (ValidationError, ValueError):
            unreadable = True
    port = answer.get("port", "")
    return HostState(
        lease=lease,
        unreadable=unreadable,
        deleting="delete" in answer,
        runtime=answer.get("runtime", ""),
        port=int(port) if port.isdecimal() else 0,
        keys=answer.get("keys", ""),
        started="started" in answer,
        running="agent" in answer,
    )


def observation_of(
    host: HostAccess, state: HostState, fault: Fault | None = None
) -> SliceObservation:
    """Returns the slice that leases the machine.

    Args:
        fault: why the agent is not started there; None: nothing speaks against it.
    """
    assert state.lease is not None
    request = state.lease.request
    lost = fault is not None and fault.final and not state.running
    seen = (
        MachineState.FAILED
        if lost
        else MachineState.ACTIVE
        if state.started
        else MachineState.CREATING
    )
    return SliceObservation(
        slice_id=request.slice_id,
        group=request.group.name,
        zone=request.zone,
        state=MachineState.DELETING if state.deleting else seen,
        reason=(
            fault.reason
            if fault is not None and (fault.final or seen is MachineState.CREATING)
            else ""
        ),
        created_at=state.lease.created_at,
        hosts=1,
        token=request.token,
        public_key=state.lease.public_key,
    )


def script(settings: ManualSettings, call: str, **values: str) -> str:
    """Returns the script that calls a function of `host.sh` with these variables."""
    assigned = {"DIRECTORY": settings.directory, **values}
    return "\n".join(
        (*(f"{name}={shlex.quote(value)}" for name, value in assigned.items()), _SCRIPT, call, "")
    )


def encoded(text: str) -> str:
    """Returns the text in base64, as the scripts expect it."""
    return base64.b64encode(text.encode()).decode()


def agent_command(
    settings: ManualSettings, host: HostAccess, request: SliceRequest, address: str
) -> str:
    """Returns the command line of the agent, without the Python, quoted for the shell. `$home` is
    the directory of the lease.

    Args:
        address: `host:port` of the Temporal service, as the machine reaches it.
    """
    group, slice_id = request.group, request.slice_id
    options = [
        "-m",
        "iris.cli.main",
        "--cluster",
        f"{address}/{request.cluster}",
        "agent",
        "--slice",
        slice_id,
    ]
    options += [
        "--host-id",
        host_id(slice_id),
        "--address",
        host.address,
        "--jobs-dir",
        JOBS.format(slice_id=slice_id),
    ]
    attributes = group.host_attributes(slice_id, request.zone, worker=0)
    options += [f"--attribute={key}={written(value)}" for key, value in attributes.items()]
    device = group.resources.device
    # Otherwise the agent would offer fewer GPUs without a message when some are missing.
    if device is not None and device.kind is DeviceKind.GPU:
        options.append(f"--device={device}")
    if group.accept_cpu_jobs:
        options.append("--accept-cpu-jobs")
    if group.task_image:
        options.append(f"--image={group.task_image}")
    files = (
        '--key-file "$home/slice.key" --config "$home/config.yaml" --dir "$home/agent" --cache'
        ' "$home/cache"'
    )
    return f"{shlex.join(options)} {files}"


def host_id(slice_id: str) -> str:
    """Returns the id of the slice's only host."""
    return names.host_of_slice(slice_id, 0, 1)
