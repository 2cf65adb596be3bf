"""A configuration that may be written anew at any time, and the platform that it names now."""

import logging
from pathlib import Path

from iris.config import ClusterConfig, InvalidConfig, load_config
from iris.machines import DeleteResult, FleetListing, SliceObservation, SliceRequest
from iris.platforms.base import Platform
from iris.platforms.factory import create_platform
from iris.platforms.gcp.settings import gcp_settings

logger = logging.getLogger(__name__)


class ConfigFile:
    """A configuration that may be written anew at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = self._path.stat().st_mtime_ns
        self.config, self.text = _read(path)

    def changed(self) -> bool:
        """Whether there is another one now; one that cannot be used is as good as none."""
        try:
            written = self._path.stat().st_mtime_ns
            if written == self._written:
                return False
            self._written = written
            config, text = _read(self._path)
        except (OSError, InvalidConfig) as error:
            logger.warning("the configuration stays as it was: %s", error)
            return False
        if (config.platform.kind, config.name) != (self.config.platform.kind, self.config.name):
            logger.warning("the configuration stays as it was: the new one is of another cluster, or for another platform")
            return False
        self.config, self.text = config, text
        return True


def _read(path: Path) -> tuple[ClusterConfig, str]:
    """The configuration, and exactly what is written."""
    return load_config(path), path.read_bytes().decode()


class Surroundings:
    """What a platform has to know of a cluster beside its configuration.

    Args:
        uid: see `GcpSettings.uid`.
        address: `host:port` of the Temporal service, as hosts reach it.
        machines: where a local cluster's machines are asked for.
    """

    def __init__(self, *, uid: str = "", address: str = "", namespace: str = "default", machines: Path | None = None) -> None:
        self._uid = uid
        self._address = address
        self._namespace = namespace
        self._machines = machines

    def platform(self, file: ConfigFile) -> Platform:
        """The platform as the configuration has it.

        Raises:
            InvalidValue: this version has no such platform.
        """
        if file.config.platform.gcp is None:
            return create_platform(file.config, self._machines)
        settings = gcp_settings(file.config, self._uid, text=file.text, address=self._address, namespace=self._namespace)
        return create_platform(file.config, settings=settings)


class CurrentPlatform:
    """The platform as the configuration has it now: the next one may have other zones, networks and images."""

    def __init__(self, platform: Platform) -> None:
        self.now = platform

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """See `Platform`."""
        return await self.now.create_slice(request)

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """See `Platform`."""
        return await self.now.describe_slice(slice_id, zone)

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """See `Platform`."""
        return await self.now.delete_slice(slice_id, zone)

    async def list_slices(self) -> FleetListing:
        """See `Platform`."""
        return await self.now.list_slices()
