"""Makes the control plane of a cluster: on this machine, on Google Cloud or over SSH. Applies a
changed configuration file to its cluster.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, Unpack

from iris.client.connect.cluster_ref import ClusterRef
from iris.client.connect.clusters import ClusterRecord, read_config, read_record
from iris.client.operate import gcp, manual
from iris.client.operate.controller import (
    ControllerProtocol,
    GivesUpMachines,
    Progress,
    no_progress,
)
from iris.client.operate.local.controller import LocalController, LocalOptions
from iris.config import ClusterConfig, load_config, load_written, served_kind
from iris.model.errors import IrisError, NotFound, Rejected, Unreachable

if TYPE_CHECKING:
    from iris.client.operate.gcp.controller import GcpController


def create_controller(
    config: ClusterConfig,
    *,
    text: str | None = None,
    progress: Progress = no_progress,
    **options: Unpack[LocalOptions],
) -> ControllerProtocol:
    """Creates the control plane that a configuration names.

    Args:
        text: the configuration as the user wrote it. A cluster on another machine gets exactly this
            text.
        progress: called with progress messages of long operations.
        options: the options of a cluster on this machine. They have no effect on other clusters.

    Raises:
        InvalidValue: this version does not support the configuration.
    """
    kind = served_kind(config)
    if kind == "manual":
        return manual.controller.ManualController(config, text=text, progress=progress)
    if kind == "gcp":
        return _on_google_cloud(config, text, progress)
    return LocalController(config, progress=progress, **options)


def controller_of(cluster: ClusterRef, progress: Progress = no_progress) -> ControllerProtocol:
    """Creates the control plane of a cluster, with its last configuration or with the configuration
    of `--config`.

    Raises:
        NotFound: the cluster is not known here, or its configuration is gone.
        InvalidValue: this version does not support the configuration.
    """
    record = cluster.known().record
    if record is not None and not record.remote:
        return LocalController.of(record.name, progress)
    text = cluster.text or read_config(cluster.name)
    return create_controller(load_config(text), text=text, progress=progress)


def give_up_machines(controller: ControllerProtocol, machines: Collection[str]) -> None:
    """Marks the slices of these machines as gone, because the machines will not come back.

    Raises:
        InvalidValue: the cluster does not have such a machine.
        Rejected: the cluster has no machines over SSH.
    """
    if not isinstance(controller, GivesUpMachines):
        raise Rejected("--give-up is for clusters of machines over SSH; run the command without it")
    controller.give_up(machines)


def gcp_controller(
    cluster: ClusterRef, refusal: str, progress: Progress = no_progress
) -> "GcpController":
    """Creates the control plane of a cluster on Google Cloud.

    Args:
        refusal: the end of the error message for any other cluster.

    Raises:
        Rejected: the cluster is not on Google Cloud.
    """
    return _on_google_cloud(cluster.gcp_config(refusal), cluster.text, progress)


def _on_google_cloud(
    config: ClusterConfig, text: str | None, progress: Progress
) -> "GcpController":
    return gcp.controller.GcpController(config, text=text, progress=progress)


def locate(cluster: ClusterRef) -> None:
    """Finds a cluster on another machine that has not been used from here, and writes its record.
    Does nothing for other clusters.

    Raises:
        Unreachable: the cluster does not run.
        Rejected: this version cannot reach it.
    """
    if cluster.text is None or cluster.record is not None:
        return
    start = "start it with: iris cluster start --config FILE"
    if cluster.platform == "local":  # machines over SSH: a cluster of simulated hosts has no text
        problem = (
            "was never started from this machine"
            if read_record(cluster.name) is None
            else "does not run"
        )
        raise Unreachable(f"cluster {cluster.name} {problem}; {start}")
    elsewhere = cluster.platform == "manual"
    controller = (
        controller_of(cluster) if elsewhere else gcp_controller(cluster, "it cannot be reached")
    )
    if controller.discover() is None:
        raise Unreachable(f"cluster {cluster.name} does not run; {start}")


def known_config(record: ClusterRecord) -> ClusterConfig:
    """Returns the last configuration of a cluster that was started from here.

    Raises:
        NotFound: the configuration is gone.
    """
    return (
        load_config(read_config(record.name))
        if record.remote
        else LocalController.of(record.name).config
    )


class ConfiguredCluster(NamedTuple):
    """A cluster, running or not, and its configuration file."""

    file: Path
    text: str
    config: ClusterConfig
    running: bool
    #: The configuration that was applied last; None if the cluster does not run, or if this machine
    #: does not have that configuration.
    applied: ClusterConfig | None

    @classmethod
    def find(cls, cluster: ClusterRef, file: Path, progress: Progress) -> Self:
        """Returns the cluster of a configuration file.

        Raises:
            InvalidConfig: the file cannot be used.
            Unreachable: it is unknown whether the cluster runs.
        """
        config, text = load_written(file)
        running = create_controller(config, text=text, progress=progress).discover() is not None
        applied = None
        if running and cluster.record is not None:
            with contextlib.suppress(NotFound):
                applied = known_config(cluster.record)
        return cls(file, text, config, running, applied)

    def apply(self, text: str, progress: Progress) -> Self:
        """Writes the file, and applies it to the cluster if the cluster runs. Returns the cluster
        with this text.

        A second call with the same text completes an interrupted one.

        Raises:
            Rejected: the file was changed after it was read.
            IrisError: the file cannot be written, or the cluster does not accept the configuration.
        """
        config = load_config(text)
        if text != self.text:
            _write(self.file, self.text, text)
        if self.running:
            progress("applying the configuration")
            create_controller(config, text=text, progress=progress).reload()
        return self._replace(text=text, config=config)


def _write(file: Path, before: str, after: str) -> None:
    """Replaces the file as a whole, if it still has the text before. Its owner and mode stay."""
    place = file.resolve()
    try:
        if place.read_bytes() != before.encode():
            raise Rejected(f"{file} was changed while the command ran; run it again")
        with tempfile.NamedTemporaryFile(
            dir=place.parent, prefix=f".{place.name}.", delete=False
        ) as new:
            new.write(after.encode())
        shutil.copymode(place, new.name)
        with contextlib.suppress(PermissionError):  # only root gives files to others
            os.chown(new.name, place.stat().st_uid, place.stat().st_gid)
        Path(new.name).replace(place)
    except OSError as error:
        raise IrisError(f"{file} cannot be written: {error.strerror}") from None
