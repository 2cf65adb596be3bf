"""A cluster and its configuration file: a change of the file is also applied to the cluster."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple, Self

from iris.client.connect.cluster_ref import ClusterRef
from iris.client.operate.controller import Progress
from iris.client.operate.make_controller import create_controller, known_config
from iris.config import ClusterConfig, load_config, load_written
from iris.model.errors import IrisError, NotFound, Rejected


class ConfiguredCluster(NamedTuple):
    """A cluster, running or not, and its configuration file."""

    file: Path
    text: str
    config: ClusterConfig
    running: bool
    #: The configuration that was applied last; None if the cluster does not run, or if this machine
    #: does not know the cluster.
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
