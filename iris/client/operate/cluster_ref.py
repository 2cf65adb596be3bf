"""Resolves the cluster that a command names: one on this machine, one on Google Cloud, or an address."""

import asyncio
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ConfigDict

from iris.client.client import IrisClient
from iris.client.connect.clusters import ClusterRecord, Gate, check_is_free, cluster_dir, known_cluster, read_record
from iris.client.operate.control import Tell, answering, nobody
from iris.client.operate.controller_ssh import gate_of
from iris.client.operate.controllers import LocalController
from iris.config import ClusterConfig, load_config, load_written
from iris.model import names
from iris.model.errors import NotFound, Rejected, Unreachable

if TYPE_CHECKING:
    from iris.client.operate.gcp_controller import GcpController


class Subject(NamedTuple):
    """The cluster that a command was given."""

    #: The name or address for `IrisClient.connect`. A name works once the cluster has a record here.
    cluster: str | None
    #: None: only the address is known, or the cluster has not been used from here.
    record: ClusterRecord | None
    #: The configuration text of a cluster elsewhere.
    text: str | None = None

    @property
    def platform(self) -> str:
        """`local`, `gcp` or `manual`; `address`: only the service's address is known."""
        config = self.config
        if config is not None:
            return config.controller.kind or config.platform.kind
        return "local" if self.record is not None and not self.record.remote else "address"

    @property
    def config(self) -> ClusterConfig | None:
        """The configuration of a cluster elsewhere."""
        return _read(self.text) if self.text is not None else None

    @property
    def name(self) -> str:
        """The name to show to people."""
        return self.record.name if self.record is not None else str(self.cluster)

    def reached(self) -> str | None:
        """Returns the name or address for `IrisClient.connect`. Writes a record for a cluster elsewhere, if it runs.

        Raises:
            Unreachable: the cluster does not run.
            Rejected: this version cannot reach it.
        """
        if self.text is not None and self.record is None and self.controller("it cannot be reached").discover() is None:
            raise Unreachable(f"cluster {self.name} does not run; start it with: iris cluster start --config FILE")
        return self.cluster

    def controller(self, instead: str, tell: Tell = nobody) -> "GcpController":
        """Returns the control plane of a cluster on Google Cloud.

        Args:
            instead: the end of the error message for any other cluster.
            tell: called with progress messages of long operations.

        Raises:
            Rejected: the cluster is not on Google Cloud.
        """
        from iris.client.operate.gcp_controller import GcpController  # imports Google's clients

        return GcpController(self._on_gcp(instead), text=self.text, tell=tell)

    def gate(self, instead: str) -> Gate:
        """Returns the control plane's machine of a cluster on Google Cloud. Makes no request.

        Raises:
            Rejected: the cluster is not on Google Cloud.
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


#: One command reads the same configuration several times, and reading a large one is slow.
_read = functools.cache(load_config)


def subject(cluster: str | None, file: Path | None) -> Subject:
    """Returns the cluster of that configuration, else the one with that name or address, else the only one that is known here.

    Raises:
        NotFound: no cluster with that name is known here; or several are known and none was named.
        Unreachable: no cluster runs, and none was named.
        InvalidConfig: the configuration is invalid.
        InvalidValue: another cluster with the configuration's name is known here.
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
    """Returns whether the record leads to the configuration's cluster. The machine's zone may differ."""
    temporal = config.controller.temporal
    if temporal is not None:
        return record.gate is None and (record.address, record.namespace) == (temporal.address, temporal.namespace)
    return record.gate is not None and record.gate == gate_of(config).model_copy(update={"zone": record.gate.zone})


def _known(record: ClusterRecord) -> Subject:
    """Returns a known cluster with the configuration text that was kept when it was last used from here."""
    if not record.remote:
        return Subject(record.name, record)
    try:
        text = (cluster_dir(record.name) / "config.yaml").read_bytes().decode()
    except OSError:
        text = None
    return Subject(record.name, record, text)


def meant_by(cluster: str | None, file: Path | None) -> str | None:
    """Returns the name or address for `IrisClient.connect` of the cluster with this name, address or configuration.

    Raises:
        NotFound, Unreachable, Rejected, InvalidConfig: as in `subject` and `Subject.reached`.
    """
    return cluster if file is None else subject(cluster, file).reached()


class MachineSeen(BaseModel):
    """A control plane's machine, as its platform reports it."""

    model_config = ConfigDict(frozen=True)

    name: str
    zone: str
    project: str
    #: Google's status, such as RUNNING.
    status: str
    #: The address in its network.
    address: str = ""


class Discovery(BaseModel):
    """A cluster's location and state."""

    model_config = ConfigDict(frozen=True)

    cluster: str
    platform: str
    #: Whether the control plane's process or machine runs; None: unknown from here.
    running: bool | None = None
    #: Whether the scheduler and the autoscaler answer.
    healthy: bool = False
    #: `host:port` of its Temporal service, as this machine reaches it; empty: it cannot be reached.
    address: str = ""
    namespace: str = ""
    store: str = ""
    ui: str = ""
    #: The control plane's machine on Google Cloud; None: there is none.
    machine: MachineSeen | None = None


def discovery(of: Subject) -> Discovery:
    """Returns the cluster's location and whether it answers. Opens a tunnel to a running cluster that needs one."""
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
