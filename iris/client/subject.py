"""Which cluster is meant by whoever looks for what is wrong with it: one on this machine, one on Google Cloud, or an address."""

import asyncio
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ConfigDict

from iris import names
from iris.client.client import IrisClient
from iris.client.clusters import ClusterRecord, Gate, check_is_free, cluster_dir, known_cluster, read_record
from iris.client.control import Tell, answering, nobody
from iris.client.controllers import LocalController
from iris.client.machine import gate_of
from iris.config import ClusterConfig, load_config, load_written
from iris.errors import NotFound, Rejected, Unreachable

if TYPE_CHECKING:
    from iris.client.gcp_controller import GcpController


class Subject(NamedTuple):
    """The cluster that is looked at."""

    #: As `IrisClient.connect` understands it, once it is known here.
    cluster: str | None
    #: None: it is known by its address only, or nobody has used it from here.
    record: ClusterRecord | None
    #: Of a cluster elsewhere, as it was written.
    text: str | None = None

    @property
    def platform(self) -> str:
        """`local`, `gcp` or `manual`; `address`: nothing is known but where its service is."""
        config = self.config
        if config is not None:
            return config.controller.kind or config.platform.kind
        return "local" if self.record is not None and not self.record.remote else "address"

    @property
    def config(self) -> ClusterConfig | None:
        """Of a cluster elsewhere."""
        return _read(self.text) if self.text is not None else None

    @property
    def name(self) -> str:
        """For people."""
        return self.record.name if self.record is not None else str(self.cluster)

    def reached(self) -> str | None:
        """What `IrisClient.connect` finds it by. A cluster elsewhere becomes known here, if it runs.

        Raises:
            Unreachable: it does not run.
            Rejected: this version cannot reach it.
        """
        if self.text is not None and self.record is None and self.controller("it cannot be reached").discover() is None:
            raise Unreachable(f"cluster {self.name} does not run; start it with: iris cluster start --config FILE")
        return self.cluster

    def controller(self, instead: str, tell: Tell = nobody) -> "GcpController":
        """The control plane of a cluster on Google Cloud.

        Args:
            instead: what is said of any other.
            tell: is told what a long operation waits for.

        Raises:
            Rejected: it is elsewhere.
        """
        from iris.client.gcp_controller import GcpController  # with Google's clients

        return GcpController(self._on_gcp(instead), text=self.text, tell=tell)

    def gate(self, instead: str) -> Gate:
        """The machine of the same. Asks nobody.

        Raises:
            Rejected: it is elsewhere.
        """
        config = self._on_gcp(instead)
        return self.record.gate if self.record is not None and self.record.gate is not None else gate_of(config)

    def _on_gcp(self, instead: str) -> ClusterConfig:
        config = self.config
        if config is not None and self.platform == "gcp":
            return config
        if self.platform == "local":
            raise Rejected(f"cluster {self.name} runs on this machine: {instead}")
        raise Rejected(f"cluster {self.name} is not known to be on Google Cloud: {instead}; name its configuration with --config")


#: One command asks for the same one again and again, and reading a large one takes its time.
_read = functools.cache(load_config)


def subject(cluster: str | None, file: Path | None) -> Subject:
    """The cluster of that configuration, or of that name or address, or the only one that is known here.

    Raises:
        NotFound: there is no cluster of that name here; or there are several, and none was named.
        Unreachable: none runs, and none was named.
        InvalidConfig: the configuration cannot be used.
        InvalidValue: another cluster is known here by the name of this configuration's.
    """
    if file is not None:
        return _of_file(file)
    cluster = cluster or os.environ.get(names.ENV_CLUSTER) or None
    if cluster is not None and ":" in cluster:
        return Subject(cluster, None)
    record = known_cluster(None) if cluster is None else read_record(names.check_name("cluster", cluster))
    if record is None:
        raise NotFound(f"cluster {cluster!r} is not known here; name its configuration with --config FILE")
    return _known(record)


def _of_file(file: Path) -> Subject:
    config, text = load_written(file)
    record, gcp = read_record(config.name), config.platform.gcp
    if config.platform.kind == "local":
        if record is None:
            raise NotFound(
                f"there is no local cluster {config.name!r}; start it with: iris cluster start --local --config {file}"
            )
        check_is_free(config.name)
        return _known(record)
    if record is not None and gcp is not None and (record.remote or record.alive()):
        check_is_free(config.name, gcp.project_id, config.controller.bundle_prefix)
        return Subject(config.name, record if _leads(record, config) else None, text)
    return Subject(config.name, None, text)


def _leads(record: ClusterRecord, config: ClusterConfig) -> bool:
    """Whether the record leads to where the configuration says, in whichever zone the machine was found."""
    temporal = config.controller.temporal
    if temporal is not None:
        return record.gate is None and (record.address, record.namespace) == (temporal.address, temporal.namespace)
    return record.gate is not None and record.gate == gate_of(config).model_copy(update={"zone": record.gate.zone})


def _known(record: ClusterRecord) -> Subject:
    """A cluster with what was kept of its configuration when it was last used from here."""
    if not record.remote:
        return Subject(record.name, record)
    try:
        text = (cluster_dir(record.name) / "config.yaml").read_bytes().decode()
    except OSError:
        text = None
    return Subject(record.name, record, text)


def meant_by(cluster: str | None, file: Path | None) -> str | None:
    """What `IrisClient.connect` finds the cluster by that has this name or address, or this configuration.

    Raises:
        NotFound, Unreachable, Rejected, InvalidConfig: as `subject` and `Subject.reached` do.
    """
    return cluster if file is None else subject(cluster, file).reached()


class MachineSeen(BaseModel):
    """The machine of a control plane, as its platform shows it."""

    model_config = ConfigDict(frozen=True)

    name: str
    zone: str
    project: str
    #: In Google's words, such as RUNNING.
    status: str
    #: Inside its network.
    address: str = ""


class Discovery(BaseModel):
    """Where a cluster is."""

    model_config = ConfigDict(frozen=True)

    cluster: str
    platform: str
    #: Whether the process or the machine of its control plane runs; None: nobody here could know.
    running: bool | None = None
    #: Whether its planners answer.
    healthy: bool = False
    #: `host:port` of its Temporal service, as this machine reaches it; empty: it is not reached.
    address: str = ""
    namespace: str = ""
    store: str = ""
    ui: str = ""
    #: Of a control plane on Google Cloud; None: there is none.
    machine: MachineSeen | None = None


def discovery(of: Subject) -> Discovery:
    """Where the cluster is, and whether it answers. One elsewhere that runs gets a tunnel, if it needs one."""
    if of.platform == "address":
        return asyncio.run(_at_address(str(of.cluster)))
    machine = None
    if of.platform == "local":
        status = LocalController.of(of.name).status()
    else:
        controller = of.controller("nobody here knows where")
        status = controller.status()
        seen, project = asyncio.run(controller.seen()), of.gate("").project
        machine = (
            MachineSeen(project=project, **seen.model_dump(include={"name", "zone", "status", "address"}))
            if seen is not None
            else None
        )
    record = read_record(of.name)
    known = record.model_dump(include={"namespace", "store", "ui"}) if record is not None and status.running else {}
    running = {"running": status.running, "healthy": status.healthy, "address": status.address}
    return Discovery(cluster=of.name, platform=of.platform, machine=machine, **running, **known)


async def _at_address(cluster: str) -> Discovery:
    record = (await IrisClient.connect(cluster)).cluster
    known = record.model_dump(include={"address", "namespace", "store", "ui"})
    return Discovery(cluster=record.name, platform="address", healthy=await answering(cluster) is not None, **known)
