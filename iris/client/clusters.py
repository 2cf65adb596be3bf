"""Which clusters there are, and which one is meant.

A cluster that was started from here leaves a record under the user's state directory: a local one, and one elsewhere until it is
stopped. Any other is named by its address, and tells the rest itself.
"""

import contextlib
import os
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from iris import names
from iris.errors import InvalidValue, NotFound, Unreachable

#: In a cluster's directory: what it consists of.
CONFIG = "config.yaml"
START_HINT = "start one with: iris cluster start --local -d"


class ProcessRef(BaseModel):
    """A process that may have ended, and whose number another may have by now: hence the time it was created."""

    model_config = ConfigDict(frozen=True)

    pid: int
    created: float

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process with this number, or None when there is none."""
        import psutil  # only for local clusters: not worth the time of every command

        try:
            return cls(pid=pid, created=psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return None

    def alive(self) -> bool:
        import psutil

        try:
            process = psutil.Process(self.pid)
            return process.create_time() == self.created and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


class Gate(BaseModel):
    """The machine of a control plane, which is reached by a tunnel through SSH."""

    model_config = ConfigDict(frozen=True)

    project: str
    zone: str
    machine: str
    #: Of the Temporal service there; its Web UI has the next one.
    port: int
    #: Whether the way leads through Identity-Aware Proxy: the machine has no public address, or none may reach it.
    iap: bool = False


class ClusterRecord(BaseModel):
    """What a client needs to know of a cluster; of a local one also who runs it, of one elsewhere how it is reached."""

    model_config = ConfigDict(frozen=True)

    name: str
    address: str
    namespace: str = "default"
    store: str
    ui: str = ""
    supervisor: ProcessRef | None = None
    processes: tuple[ProcessRef, ...] = ()
    ephemeral: bool = False
    #: It was started from here, but is elsewhere.
    remote: bool = False
    #: Of a cluster on Google Cloud; empty: it says where its machine is.
    project: str = ""
    #: Where a tunnel to it leads; None: it is reached without one.
    gate: Gate | None = None
    #: The process that keeps this tunnel, at `address` on this machine; there may be none: whoever needs it starts it.
    tunnel: ProcessRef | None = None

    def alive(self) -> bool:
        """Whether a local cluster's supervisor runs."""
        return self.supervisor is not None and self.supervisor.alive()

    def place(self) -> str:
        """Of a cluster elsewhere, for people: what tells it from another of its name."""
        project = self.gate.project if self.gate is not None else self.project
        return f"project {project}, store {self.store.rstrip('/')}"

    def is_meant(self) -> bool:
        """Whether somebody who names no cluster may mean this one: it runs here, or was started from here and not stopped."""
        return self.remote or self.alive()


def state_dir() -> Path:
    """Where Iris keeps what must outlive its processes: `IRIS_STATE_DIR`, else the XDG state directory."""
    if explicit := os.environ.get(names.ENV_STATE_DIR):
        return Path(explicit).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "iris"


def cluster_dir(name: str) -> Path:
    return state_dir() / "clusters" / name


def read_record(name: str) -> ClusterRecord | None:
    """The record of a cluster that was started from here, running or not; None when there is none that can be read."""
    try:
        return ClusterRecord.model_validate_json((cluster_dir(name) / "cluster.json").read_bytes())
    except (OSError, ValidationError):
        return None


def write_record(record: ClusterRecord) -> None:
    """Keep it."""
    _put(cluster_dir(record.name) / "cluster.json", record.model_dump_json(indent=2) + "\n")


def read_config(name: str) -> str:
    """The configuration of a cluster elsewhere that was started from here, exactly as it was written.

    Raises:
        NotFound: there is no such cluster.
    """
    try:
        return (cluster_dir(name) / CONFIG).read_bytes().decode()
    except OSError:
        raise NotFound(f"cluster {name!r} is not known here; name its configuration with --config FILE") from None


def write_config(name: str, text: str) -> None:
    """Keep it, exactly as it is."""
    _put(cluster_dir(name) / CONFIG, text)


def _put(path: Path, text: str) -> None:
    """Write the file whole or not at all; several processes may at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.new-{os.getpid()}")
    draft.write_bytes(text.encode())
    draft.replace(path)


def check_is_free(name: str, project: str = "", store: str = "") -> None:
    """Raise when the name is another cluster's: what is known here is found by its name, and kept under it.

    Args:
        project, store: of the cluster that is meant, if it is elsewhere; empty: it is on this machine.

    Raises:
        InvalidValue: a cluster is known here that has the name and is not this one.
    """
    known = read_record(name)
    if known is None:
        return
    here = ClusterRecord(name=name, address="", store=store, project=project, remote=bool(project))
    if known.remote == here.remote and (not here.remote or known.place() == here.place()):
        return
    this = f"this one is in {here.place()}" if here.remote else "this one is on this machine"
    stop, forget = f"iris cluster stop {name}", f"rm -r {cluster_dir(name)}"
    if known.remote:
        there, way = f"a cluster elsewhere that was started from here ({known.place()})", f"stop that one with: {stop}"
    elif known.ephemeral:
        there, way = "a cluster on this machine", f"stop that one with: {stop}"
    elif known.alive():
        there, way = "a cluster that runs on this machine", f"stop that one and forget its jobs with: {stop} && {forget}"
    else:
        there, way = "a cluster on this machine that was stopped", f"forget that one and its jobs with: {forget}"
    raise InvalidValue("name", name, f"is that of {there}, and {this}", f"give this one another, or {way}")


def forget(name: str) -> None:
    """Remove what is kept here of a cluster elsewhere; what a local one of its name has left stays."""
    directory = cluster_dir(name)
    for path in ("cluster.json", CONFIG, "logs/tunnel.log", "tunnel/lock"):
        (directory / path).unlink(missing_ok=True)
    for path in ("logs", "tunnel", ""):
        with contextlib.suppress(OSError):  # there is something else in it
            (directory / path).rmdir()


def known_clusters() -> list[ClusterRecord]:
    """Those that run on this machine, and those elsewhere that were started from here, by name."""
    found = (read_record(path.parent.name) for path in sorted(state_dir().glob("clusters/*/cluster.json")))
    return [record for record in found if record is not None and record.is_meant()]


def not_running(name: str, beside: str = "") -> Unreachable:
    """What is said of a cluster on this machine that does not run.

    Args:
        beside: what does; empty: that is not of interest.
    """
    beside = f" ({beside})" if beside else ""
    return Unreachable(f"local cluster {name!r} does not run{beside}; start it with: iris cluster start --local --name {name} -d")


def known_cluster(name: str | None) -> ClusterRecord:
    """The cluster of that name among those that are known here, or the only one.

    Raises:
        Unreachable: it does not run, or none does.
        NotFound: there are several and none was named.
    """
    known = known_clusters()
    if name is not None:
        for record in known:
            if record.name == name:
                return record
        raise not_running(name, f"running: {', '.join(record.name for record in known)}" if known else "no local cluster runs")
    if not known:
        raise Unreachable(
            f"no cluster: no local cluster runs, and neither --cluster nor {names.ENV_CLUSTER} names one; {START_HINT}"
        )
    if len(known) > 1:
        what = "several clusters are known here" if any(record.remote for record in known) else "several local clusters run"
        raise NotFound(f"{what} ({', '.join(record.name for record in known)}); say which with --cluster NAME")
    return known[0]
