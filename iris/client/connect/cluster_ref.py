"""Decides which cluster a command acts on: one on this machine, one on Google Cloud, or one at an
address.
"""

import contextlib
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from iris.client import connect
from iris.client.connect.clusters import (
    START_HINT,
    ClusterRecord,
    ControllerVm,
    check_is_free,
    known_clusters,
    read_config,
    read_record,
)
from iris.model import names
from iris.model.errors import NotFound, Rejected, Unreachable

if TYPE_CHECKING:
    from iris.config import ClusterConfig


class ClusterRef(NamedTuple):
    """The cluster that a command acts on. The cluster may be stopped, and this machine may have no
    record of it.
    """

    #: The cluster's name, or the address of its Temporal service, `HOST:PORT`, with or without the
    #: cluster's name: `HOST:PORT/NAME`.
    name: str
    #: The record of the cluster on this machine. None if there is none: only the cluster's name or
    #: address is known, or the user named a configuration file whose cluster has no record here.
    record: ClusterRecord | None = None
    #: The text of the configuration, if the cluster's control plane is not on this machine. None if
    #: it is, or if the configuration is not known.
    text: str | None = None

    @property
    def is_address(self) -> bool:
        """Returns whether the cluster is named by its address."""
        return ":" in self.name

    @property
    def config(self) -> "ClusterConfig | None":
        """The configuration of a cluster that is not on this machine."""
        return _load(self.text) if self.text is not None else None

    @property
    def platform(self) -> str:
        """Where the control plane runs: `local`, `gcp` or `manual`. `address` if only the address
        of the service is known.
        """
        config = self.config
        if config is not None:
            return config.controller.kind or config.platform.kind
        return "local" if self.record is not None and not self.record.remote else "address"

    def known(self) -> "ClusterRef":
        """Returns this cluster, running or not.

        Raises:
            NotFound: no cluster with this name was started from here.
        """
        if self.record is None and self.text is None and not self.is_address:
            raise NotFound(
                f"cluster {self.name!r} is not known here: there is no local cluster {self.name!r},"
                " and this machine has started no cluster of this name on other machines; name its"
                " configuration with --config FILE"
            )
        return self

    def gcp_config(self, refusal: str) -> "ClusterConfig":
        """Returns the configuration of a cluster on Google Cloud.

        Args:
            refusal: the end of the error message for any other cluster.

        Raises:
            Rejected: the cluster is not on Google Cloud.
        """
        config = self.config
        if config is not None and self.platform == "gcp":
            return config
        if self.platform == "local":
            raise Rejected(f"cluster {self.name} runs on this machine: {refusal}")
        raise Rejected(
            f"cluster {self.name} is not known to be on Google Cloud: {refusal}; name its"
            " configuration with --config"
        )

    def controller_vm(self, refusal: str) -> ControllerVm:
        """Returns the control plane's machine of a cluster on Google Cloud. Makes no request.

        Raises:
            Rejected: as in `gcp_config`.
        """
        config = self.gcp_config(refusal)
        if self.record is not None and self.record.vm is not None:
            return self.record.vm
        return connect.controller_vm.controller_vm_of(config)


@functools.cache
def _load(text: str) -> "ClusterConfig":
    """Loads a configuration once. One command uses the same configuration several times, and
    loading a large one is slow.
    """
    from iris.config import load_config  # most commands need no configuration

    return load_config(text)


def resolve_cluster(
    cluster: str | None = None,
    config: Path | None = None,
    *,
    none_known: type[NotFound | Unreachable] = Unreachable,
) -> ClusterRef:
    """Decides which cluster a command acts on. Makes no request.

    The first of these that is set decides: `config`; `cluster`; the environment variable
    `IRIS_CLUSTER`. Otherwise it is the only cluster that is known here.

    Args:
        cluster: the cluster's name, or its address.
        config: the cluster's configuration file.
        none_known: the error if no cluster is named and no cluster is known here.

    Raises:
        NotFound: no cluster is named and several are known; or the local cluster of the
            configuration was never started.
        Unreachable: no cluster is named and no cluster is known here.
        InvalidConfig: the configuration is invalid.
        InvalidValue: the name is invalid, or another cluster with the configuration's name is
            known here.
    """
    if config is not None:
        return _of_file(config)
    # An empty name is an error: a script with an unset variable must not stop the only cluster.
    if cluster is None:
        cluster = os.environ.get(names.ENV_CLUSTER) or None
    return _only_known(none_known) if cluster is None else _named(cluster)


def _named(cluster: str) -> ClusterRef:
    """Returns the cluster with this name or address."""
    if ":" in cluster:
        return ClusterRef(cluster)
    record = read_record(names.check_name("cluster", cluster))
    address = os.environ.get(names.ENV_ADDRESS)
    in_its_job = cluster == os.environ.get(names.ENV_CLUSTER) and bool(address)
    if address and in_its_job and (record is None or not record.in_use()):
        return ClusterRef(address)  # a record of a stopped cluster here is of another cluster
    return ClusterRef(cluster) if record is None else _of_record(record)


def _only_known(none_known: type[NotFound | Unreachable]) -> ClusterRef:
    """Returns the only cluster that is known here. A cluster that a program owns counts only if
    there is no other.
    """
    known = known_clusters()
    known = [record for record in known if not record.owned] or known
    if not known:
        problem = f"no local cluster runs, and neither --cluster nor {names.ENV_CLUSTER} names one"
        raise none_known(f"no cluster: {problem}; {START_HINT}")
    if len(known) > 1:
        any_remote = any(record.remote for record in known)
        several = "several clusters are known here" if any_remote else "several local clusters run"
        found = ", ".join(record.name for record in known)
        raise NotFound(f"{several} ({found}); name one with --cluster NAME")
    return _of_record(known[0])


def _of_record(record: ClusterRecord) -> ClusterRef:
    """Returns a known cluster with the configuration text of its last use from here."""
    text = None
    if record.remote:
        with contextlib.suppress(NotFound):
            text = read_config(record.name)
    return ClusterRef(record.name, record, text)


def _of_file(file: Path) -> ClusterRef:
    """Returns the cluster of a configuration file, with its record if that is of this cluster."""
    from iris.config import load_written  # most commands need no configuration

    config, text = load_written(file)
    record, gcp = read_record(config.name), config.platform.gcp
    if config.platform.kind == "local":
        if record is None:
            raise NotFound(
                f"there is no local cluster {config.name!r}; start it with: iris cluster start"
                f" --local --config {file}"
            )
        check_is_free(config.name)
        return _of_record(record)
    if (
        record is not None
        and config.platform.manual is not None
        and config.controller.kind == "local"
    ):
        check_is_free(config.name, over_ssh=True)
        return _of_record(record)
    if record is not None and record.remote and config.controller.manual is not None:
        check_is_free(
            config.name,
            store=config.controller.bundle_prefix,
            machine=config.controller.manual.host,
        )
        return ClusterRef(config.name, record, text)
    if record is not None and gcp is not None and (record.remote or record.alive()):
        check_is_free(config.name, gcp.project_id, config.controller.bundle_prefix)
        return ClusterRef(config.name, record if _leads(record, config) else None, text)
    return ClusterRef(config.name, None, text)


def _leads(record: ClusterRecord, config: "ClusterConfig") -> bool:
    """Returns whether the record is of the configuration's cluster. The zone of the machine may
    differ.
    """
    temporal = config.controller.temporal
    if temporal is not None:
        return record.vm is None and (record.address, record.namespace) == (
            temporal.address,
            temporal.namespace,
        )
    return record.vm is not None and record.vm == connect.controller_vm.controller_vm_of(
        config
    ).model_copy(update={"zone": record.vm.zone})
