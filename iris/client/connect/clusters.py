"""Keeps the records of the clusters that are known here.

Starting a cluster from this machine writes a record below the user's state directory. The record of
a cluster elsewhere stays until the cluster is stopped. Any other cluster is named by its address;
its service supplies the record.
"""

import contextlib
import os
import shlex
import sys
from datetime import timedelta
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from iris.client.connect.paths import state_dir
from iris.model.errors import InvalidValue, NotFound, Unreachable
from iris.model.frozen import Frozen
from iris.storage.files import make_private, make_private_tree, private_file, writing

#: The name of the configuration file in a cluster's directory.
CONFIG = "config.yaml"
#: The name of the file in a cluster's directory that has the key of the cluster's messages.
MESSAGE_KEY = "message.key"
#: The part of a message that tells users without a cluster how to start one.
START_HINT = "start one with: iris cluster start --local -d"


class ProcessRef(Frozen):
    """A process, identified by its pid and its creation time, because the system can give its pid
    to another process.
    """

    pid: int
    created: float

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Returns the process with this pid; None if there is no such process."""
        return None if (found := _look_up(pid)) is None else cls(pid=pid, created=found[0])

    def alive(self) -> bool:
        return (found := _look_up(self.pid)) is not None and found == (self.created, True)


def _look_up(pid: int) -> tuple[float, bool] | None:
    """Returns when the process was created, and whether it is not a zombie. Returns None if there
    is no such process.

    On Linux it computes the values of psutil itself, because psutil's import takes a tenth of the
    time of a command.
    """
    if sys.platform == "linux":
        try:
            # See proc_pid_stat(5): the state is field 3, and the time of the start is field 22.
            # Field 2 is a name that may have blanks.
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            lines = Path("/proc/stat").read_bytes().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            return None
        booted = next(line for line in lines if line.startswith(b"btime")).split()[1]
        started = float(fields[19]) / os.sysconf("SC_CLK_TCK")
        return started + float(booted), fields[0] != b"Z"
    import psutil

    try:
        process = psutil.Process(pid)
        return process.create_time(), process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None


class ControllerVm(Frozen):
    """The virtual machine of a control plane on Google Cloud, which clients reach through an SSH
    tunnel.
    """

    project: str
    zone: str
    machine: str
    #: The port of the Temporal service on the machine. The Web UI has the next port.
    port: int
    #: The port of the dashboard on the machine; 0 if there is none.
    dashboard_port: int = 0
    #: True if SSH goes through Identity-Aware Proxy, because the machine has no public address or a
    #: firewall blocks the address.
    iap: bool = False


class SshController(Frozen):
    """An existing machine that runs a control plane, which clients reach through an SSH tunnel."""

    #: The name or address of the machine, as in the configuration key `controller.manual.host`.
    machine: str
    user: str
    ssh_port: int
    key_file: Path | None = None
    jump_host: str = ""
    known_hosts: Path
    connect_timeout: timedelta
    #: The port of the Temporal service on the machine.
    port: int
    #: The port of the Web UI on the machine; 0 if there is no Web UI.
    ui_port: int = 0
    #: The port of the dashboard on the machine; 0 if there is none.
    dashboard_port: int = 0


class ClusterRecord(Frozen):
    """A cluster's address, store and Web UI. The record of a local cluster also names the cluster's
    processes. The record of a remote cluster also names the machine of the control plane.
    """

    name: str
    address: str
    namespace: str = "default"
    store: str
    ui: str = ""
    #: The address of the dashboard; empty if the cluster has none.
    dashboard: str = ""
    supervisor: ProcessRef | None = None
    processes: tuple[ProcessRef, ...] = ()
    ephemeral: bool = False
    #: True if the cluster belongs to a program and ends with the program. A command uses the
    #: cluster only if the user names it, or if it is the only cluster.
    owned: bool = False
    #: True if the control plane runs on this machine and Iris reaches the cluster's machines over
    #: SSH.
    over_ssh: bool = False
    #: True if a command on this machine started the cluster on other machines.
    remote: bool = False
    #: The Google Cloud project of the cluster; empty if `vm` names the project, or if the cluster
    #: is not on Google Cloud.
    project: str = ""
    #: The machine on which Iris started the control plane over SSH; empty for any other control
    #: plane.
    machine: str = ""
    #: The machine on Google Cloud to which the cluster's tunnel leads; None if the cluster has no
    #: tunnel to Google Cloud.
    vm: ControllerVm | None = None
    #: The machine to which the cluster's tunnel leads, if the tunnel needs no `gcloud`; None if the
    #: cluster has no tunnel of this kind.
    ssh: SshController | None = None
    #: The process that keeps the tunnel open. Clients connect to the tunnel at `address` on this
    #: machine. If the process has ended, the next client starts another one.
    tunnel: ProcessRef | None = None

    def alive(self) -> bool:
        """Returns whether a local cluster's supervisor runs."""
        return self.supervisor is not None and self.supervisor.alive()

    @property
    def end(self) -> ControllerVm | SshController | None:
        """The machine at the end of the cluster's tunnel; None if the cluster needs no tunnel."""
        return self.vm or self.ssh

    def location(self) -> str:
        """Describes where a cluster elsewhere is, for people. Distinguishes it from another cluster
        with the same name.
        """
        if self.machine:
            return f"machine {self.machine}, store {self.store.rstrip('/')}"
        project = self.vm.project if self.vm is not None else self.project
        return f"project {project}, store {self.store.rstrip('/')}"

    def in_use(self) -> bool:
        """Returns whether the cluster runs on this machine, or was started elsewhere from here and
        not stopped since.
        """
        return self.remote or self.alive()


def cluster_dir(name: str) -> Path:
    return state_dir() / "clusters" / name


def make_cluster_dir(name: str) -> Path:
    """Creates the cluster's directory if it is missing, closes it and its content to other users,
    and returns it.
    """
    for directory in (state_dir(), state_dir() / "clusters"):
        make_private(directory)
    make_private_tree(cluster_dir(name))
    return cluster_dir(name)


def read_record(name: str) -> ClusterRecord | None:
    """Returns the record of a cluster that was started from here, running or not; None if no
    readable record exists.
    """
    try:
        return ClusterRecord.model_validate_json((cluster_dir(name) / "cluster.json").read_bytes())
    except (OSError, ValidationError):
        return None


def write_record(record: ClusterRecord) -> None:
    """Writes the cluster's record."""
    _write(
        make_cluster_dir(record.name) / "cluster.json",
        record.model_dump_json(indent=2) + "\n",
    )


def read_config(name: str) -> str:
    """Returns the configuration text of a cluster elsewhere that was started from here, exactly as
    it was written.

    Raises:
        NotFound: there is no such cluster.
    """
    try:
        return (cluster_dir(name) / CONFIG).read_bytes().decode()
    except OSError:
        raise NotFound(
            f"cluster {name!r} is not known here; name its configuration with --config FILE"
        ) from None


def write_config(name: str, text: str) -> None:
    """Writes the cluster's configuration text, unchanged."""
    _write(make_cluster_dir(name) / CONFIG, text)


def _write(path: Path, text: str) -> None:
    """Writes the file completely or not at all, also if several processes write it at once."""
    draft = path.with_name(f"{path.name}.new-{os.getpid()}")
    with writing(path):
        private_file(draft).write_bytes(text.encode())
        draft.replace(path)


def check_is_free(
    name: str, project: str = "", store: str = "", *, machine: str = "", over_ssh: bool = False
) -> None:
    """Raises when another cluster has this name here: records and directories are found by name.

    Args:
        project: the project of the cluster that is to use the name; empty if it is not on Google
            Cloud.
        store: the store of that cluster, if it is not on this machine.
        machine: the machine of its control plane over SSH, instead of `project`.
        over_ssh: whether its hosts are machines over SSH, as in `ClusterRecord`.

    Raises:
        InvalidValue: a different cluster with this name is known here.
    """
    known = read_record(name)
    if known is None:
        return
    asked = ClusterRecord(
        name=name,
        address="",
        store=store,
        project=project,
        machine=machine,
        remote=bool(project or machine),
        over_ssh=over_ssh,
    )
    alike = (known.remote, known.over_ssh) == (asked.remote, asked.over_ssh)
    if alike and (not asked.remote or known.location() == asked.location()):
        return
    if asked.remote:
        this = f"the new cluster is in {asked.location()}"
    else:
        where = "reaches its hosts over SSH" if over_ssh else "is on this machine"
        this = f"the new cluster {where}"
    there, remedy = _other_cluster(known)
    raise InvalidValue(
        "name",
        name,
        f"is taken by {there}, and {this}",
        f"give the new cluster another name, or {remedy}",
    )


def _other_cluster(known: ClusterRecord) -> tuple[str, str]:
    """Describes the known cluster that has a name already, and how to free the name."""
    stop = f"iris cluster stop {known.name}"
    forget = f"rm -r {shlex.quote(str(cluster_dir(known.name)))}"
    stop_it = f"stop the other cluster with: {stop}"
    delete_it = f"stop the other cluster and delete its jobs with: {stop} && {forget}"
    if known.remote:
        return f"a cluster elsewhere that this machine knows ({known.location()})", stop_it
    if known.over_ssh:  # it leases its machines until it is stopped, also if it does not run
        return "a cluster whose hosts are reached over SSH", delete_it
    if known.ephemeral:
        return "a cluster on this machine", stop_it
    if known.alive():
        return "a cluster that runs on this machine", delete_it
    return (
        "a cluster on this machine that was stopped",
        f"delete the other cluster and its jobs with: {forget}",
    )


def forget(name: str) -> None:
    """Removes the files that this machine keeps for a cluster elsewhere. Keeps the files of a local
    cluster with the same name.
    """
    directory = cluster_dir(name)
    for path in ("cluster.json", CONFIG, MESSAGE_KEY, "logs/tunnel.log", "tunnel/lock"):
        (directory / path).unlink(missing_ok=True)
    for path in ("logs", "tunnel", ""):
        with contextlib.suppress(OSError):  # the directory is not empty
            (directory / path).rmdir()


def known_clusters() -> list[ClusterRecord]:
    """Lists the clusters that run on this machine, and the clusters elsewhere that were started
    from here, by name.
    """
    return [record for record in kept_records() if record.in_use()]


def kept_records() -> list[ClusterRecord]:
    """Lists all clusters that were started from here by name, including clusters on this machine
    that do not run.
    """
    found = (
        read_record(path.parent.name)
        for path in sorted(state_dir().glob("clusters/*/cluster.json"))
    )
    return [record for record in found if record is not None]


def not_running(name: str, beside: str = "") -> Unreachable:
    """Builds the error for a local cluster that does not run.

    Args:
        beside: a description of the clusters that do run; empty to leave it out.
    """
    beside = f" ({beside})" if beside else ""
    record = read_record(name)
    over_ssh = record is not None and record.over_ssh
    start = (
        "iris cluster start --config FILE"
        if over_ssh
        else f"iris cluster start --local --name {name} -d"
    )
    return Unreachable(f"local cluster {name!r} does not run{beside}; start it with: {start}")
