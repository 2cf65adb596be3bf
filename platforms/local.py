"""Implements a platform on one machine: each host is an agent process that reports the resources
its scale group declares.

The platform writes requests to a directory. The cluster's supervisor
(`iris.worker_agents.local.local_machines`) reads them, and starts and stops the agents. The agents
therefore survive when the control plane dies. The directory contains:

    <slice id>/request.json    the request for the slice
    <slice id>/slice.key       the private key of the slice; its agents read it
    <slice id>/machines.json   the running agents of the slice; written by the supervisor
    <slice id>/delete          a marker: the slice has to be deleted
    (no such directory)        nothing is left of the slice

A directory whose name begins with a dot is being created or removed.
"""

import secrets
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.host.constraints import written
from iris.model.host.hosts import Host
from iris.model.slice.keys import KEY_BYTES, public_key
from iris.model.slice.provisioning import (
    DeleteResult,
    FleetListing,
    MachineState,
    SliceObservation,
    SliceRequest,
)
from iris.platforms.base import BadConfig, Unavailable

#: The address of every host of a local cluster.
LOCAL_ADDRESS = "127.0.0.1"
#: The maximum number of hosts that a local cluster may have. Each host needs 20 to 60 MB of memory.
MAX_LOCAL_HOSTS = 500

REQUEST = "request.json"
#: The directory that contains one directory for each host, named by the host's id.
HOSTS = "hosts"
KEY = "slice.key"
MACHINES = "machines.json"
DELETE = "delete"
#: The beginning of the name of a directory that is being written.
UNFINISHED = ".new-"


class Unreadable(Exception):
    """The error if a file in a slice's directory is missing or has invalid content."""


class MachineReport(Frozen):
    """The report of the supervisor about the machines of a slice."""

    state: MachineState


class LocalPlatform:
    """Manages the slices of one cluster on this machine. All objects with the same directory manage
    the same slices.
    """

    def __init__(self, directory: Path) -> None:
        self._dir = directory

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """Implements `Platform.create_slice`. One atomic rename creates the directory, so two
        slices never share an id.
        """
        try:
            home = self._dir / names.check_name("slice", request.slice_id)
            hosts = request.group.hosts
            names.check_name("host", names.host_of_slice(request.slice_id, hosts - 1, hosts))
        except InvalidValue as error:
            raise BadConfig(str(error)) from None
        if not home.exists():
            self._write(request, home)
        seen = _observe(home)
        if seen is None or seen.state is MachineState.DELETING:
            raise Unavailable(f"slice {request.slice_id} is being deleted")
        if not _made_by(request, home):
            raise BadConfig(f"{home} already exists and was created by another request")
        return seen

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """Implements `Platform.describe_slice`."""
        home = _home(self._dir, slice_id)
        return _observe(home) if home else None

    async def last_output(self, slice_id: str, zone: str) -> str:
        """Implements `Platform.last_output`. Returns nothing: local agents write log files, which
        users can read directly.
        """
        return ""

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """Implements `Platform.delete_slice`.

        Returns GONE after the supervisor has stopped the agents. While no supervisor runs, the
        result stays GOING.
        """
        home = _home(self._dir, slice_id)
        if home is None:
            return DeleteResult.GONE
        try:
            (home / DELETE).touch()
        except FileNotFoundError:
            return DeleteResult.GONE
        return DeleteResult.GOING

    async def list_slices(self) -> FleetListing:
        """Implements `Platform.list_slices`. A slice with an unreadable directory is FAILED, so
        that Iris deletes it.
        """
        seen = (_observe(home) for home in homes(self._dir))
        return FleetListing(slices=tuple(each for each in seen if each is not None))

    def _write(self, request: SliceRequest, home: Path) -> None:
        try:
            self._dir.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(
                prefix=UNFINISHED, dir=self._dir, ignore_cleanup_errors=True
            ) as new:
                whole = Path(new, "whole")
                whole.mkdir()
                (whole / REQUEST).write_text(request.model_dump_json())
                (whole / KEY).touch(mode=0o600)
                (whole / KEY).write_text(secrets.token_hex(KEY_BYTES))
                whole.rename(home)
        except OSError as error:
            if not home.exists():  # else another call created it first
                raise Unavailable(f"cannot write {home}: {error}") from None


def homes(directory: Path) -> list[Path]:
    """Returns the directories of all slices, sorted by name."""
    if not directory.is_dir():
        return []
    found = (_home(directory, path.name) for path in directory.iterdir())
    return sorted(home for home in found if home is not None)


def read_request(home: Path) -> SliceRequest:
    """Returns the request that created the slice.

    Raises:
        FileNotFoundError: the directory does not exist any more.
        Unreadable: the request is missing or invalid.
    """
    try:
        return SliceRequest.model_validate_json((home / REQUEST).read_bytes())
    except FileNotFoundError:
        if not home.exists():
            raise
        raise Unreadable(f"{home / REQUEST} is missing") from None
    except (OSError, ValidationError) as error:
        raise Unreadable(f"{home / REQUEST} cannot be read: {error}") from None


def reported(home: Path) -> MachineState:
    """Returns the state that the supervisor reports for a slice; CREATING until there is a report.

    Raises:
        Unreadable: the report is invalid.
    """
    try:
        return MachineReport.model_validate_json((home / MACHINES).read_bytes()).state
    except FileNotFoundError:
        return MachineState.CREATING
    except (OSError, ValidationError) as error:
        raise Unreadable(f"{home / MACHINES} cannot be read: {error}") from None


def simulated_hosts(request: SliceRequest) -> tuple[Host, ...]:
    """Returns the hosts of the slice, by worker id."""
    return request.group.slice_hosts(request.slice_id, request.zone, address=LOCAL_ADDRESS)


def agent_directory(home: Path, host_id: str) -> Path:
    """Returns the directory of a host's agent. It is below the slice's directory and is removed
    with it.
    """
    return home / HOSTS / host_id


def slice_command(request: SliceRequest, home: Path) -> list[str]:
    """Returns the command line of the process that serves all hosts of the slice.

    Args:
        home: the directory of the slice.
    """
    return [*_command(request, request.slice_id, home), "--simulated", "--all-hosts-of", str(home)]


def agent_command(request: SliceRequest, host: Host, home: Path) -> list[str]:
    """Returns the command line of the agent for this host of the slice.

    Args:
        home: the directory of the slice.
    """
    offers = host.resources
    command = _command(request, host.id, home)
    command += [
        "--address",
        host.address,
        "--dir",
        str(agent_directory(home, host.id)),
        "--simulated",
    ]
    command += [
        "--cpu",
        f"{offers.cpu_millis}m",
        "--memory",
        str(offers.memory_bytes),
        "--disk",
        str(offers.disk_bytes),
    ]
    if offers.device is not None:
        command += ["--device", str(offers.device)]
    if host.accept_cpu_jobs:
        command.append("--accept-cpu-jobs")
    if request.group.task_image:
        command += ["--image", request.group.task_image]
    for key, value in host.attributes.items():
        command += ["--attribute", f"{key}={written(value)}"]
    return command


def _command(request: SliceRequest, host_id: str, home: Path) -> list[str]:
    command = [sys.executable, "-m", "iris.cli.main", "--cluster", request.cluster, "agent"]
    command += ["--host-id", host_id, "--slice", request.slice_id]
    return [*command, "--key-file", str(home / KEY)]


def _home(directory: Path, slice_id: str) -> Path | None:
    try:
        home = directory / names.check_name("slice", slice_id)
    except InvalidValue:
        return None
    return home if home.is_dir() else None


def _made_by(request: SliceRequest, home: Path) -> bool:
    try:
        there = read_request(home)
    except (Unreadable, FileNotFoundError):
        return False
    return (there.cluster, there.token, there.zone) == (
        request.cluster,
        request.token,
        request.zone,
    )


def _observe(home: Path) -> SliceObservation | None:
    going = (home / DELETE).exists()
    try:
        request, state = read_request(home), reported(home)
        created_at = datetime.fromtimestamp((home / REQUEST).stat().st_mtime, UTC)
        key = _public_key(home)
    except FileNotFoundError:
        return None
    except Unreadable as error:
        state = MachineState.DELETING if going else MachineState.FAILED
        return SliceObservation(
            slice_id=home.name, group="", zone="", state=state, reason=str(error)
        )
    return SliceObservation(
        slice_id=request.slice_id,
        group=request.group.name,
        zone=request.zone,
        state=MachineState.DELETING if going else state,
        created_at=created_at,
        hosts=request.group.hosts,
        token=request.token,
        public_key=key,
    )


def _public_key(home: Path) -> str:
    """Returns the slice's public key.

    Raises:
        FileNotFoundError: the slice was removed in the meantime.
        Unreadable: the private key is invalid.
    """
    try:
        return public_key((home / KEY).read_text())
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise Unreadable(f"{home / KEY} cannot be read: {error}") from None
