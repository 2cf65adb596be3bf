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
from iris.errors import NotFound, Unreachable
from iris.files import write_whole

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
    #: Where a tunnel to it leads; None: it is reached without one.
    gate: Gate | None = None
    #: The process that keeps this tunnel, at `address` on this machine; there may be none: whoever needs it starts it.
    tunnel: ProcessRef | None = None

    def alive(self) -> bool:
        """Whether a local cluster's supervisor runs."""
        return self.supervisor is not None and self.supervisor.alive()

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
    """Whole or not at all."""
    directory = cluster_dir(record.name)
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f"cluster.new-{os.getpid()}"
    fresh.write_text(record.model_dump_json(indent=2) + "\n")
    fresh.replace(directory / "cluster.json")


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
    """Keep it."""
    write_whole(cluster_dir(name) / CONFIG, text)


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


def running_clusters() -> list[ClusterRecord]:
    """The local clusters that run, by name."""
    return [record for record in known_clusters() if record.alive()]


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
        there_are = f"running: {', '.join(record.name for record in known)}" if known else "no local cluster runs"
        raise Unreachable(
            f"local cluster {name!r} does not run ({there_are}); start it with: iris cluster start --local --name {name} -d"
        )
    if not known:
        raise Unreachable(
            f"no cluster: no local cluster runs, and neither --cluster nor {names.ENV_CLUSTER} names one; {START_HINT}"
        )
    if len(known) > 1:
        what = "several clusters are known here" if any(record.remote for record in known) else "several local clusters run"
        raise NotFound(f"{what} ({', '.join(record.name for record in known)}); say which with --cluster NAME")
    return known[0]
