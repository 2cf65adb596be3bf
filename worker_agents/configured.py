"""A configuration that may be written anew at any time, and the platform that it names now."""

import logging
from collections.abc import Callable
from pathlib import Path

from iris.config import ClusterConfig, InvalidConfig, load_written
from iris.errors import InvalidValue
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
        self.config, self.text = load_written(path)

    def changed(self, usable: Callable[[ClusterConfig, str], object]) -> bool:
        """Whether there is another one now; one that cannot be used is as good as none.

        Args:
            usable: raises `InvalidValue` for one, and its text, that cannot.
        """
        try:
            written = self._path.stat().st_mtime_ns
            if written == self._written:
                return False
            self._written = written
            config, text = load_written(self._path)
            check_successor(self.config, config)
            usable(config, text)
        except (OSError, InvalidConfig, InvalidValue) as error:
            logger.warning("the configuration stays as it was: %s", error)
            return False
        self.config, self.text = config, text
        return True


def check_successor(config: ClusterConfig, successor: ClusterConfig) -> None:
    """Whether a cluster that runs with the first one can go on with the second.

    Raises:
        InvalidConfig: it cannot.
    """
    if (successor.platform.kind, successor.name) != (config.platform.kind, config.name):
        raise InvalidConfig([f"it is of another cluster or platform than {config.name} on {config.platform.kind}"])


def platform_of(
    config: ClusterConfig,
    text: str,
    *,
    uid: str = "",
    address: str = "",
    namespace: str = "default",
    machines: Path | None = None,
) -> Platform:
    """The platform as the configuration has it.

    Args:
        text: the configuration, exactly as it is written.
        uid: see `GcpSettings.uid`.
        address: `host:port` of the Temporal service, as hosts reach it.
        machines: where a local cluster's machines are asked for.

    Raises:
        InvalidValue: this version has no such platform.
    """
    if config.platform.gcp is None:
        return create_platform(config, machines)
    return create_platform(config, settings=gcp_settings(config, uid, text=text, address=address, namespace=namespace))


class CurrentPlatform:
    """The platform as the configuration has it now: the next one may have other zones, networks and images.

    Args:
        make: the platform of a configuration and its text.

    Raises:
        InvalidValue: this version has no such platform.
    """

    def __init__(self, file: ConfigFile, make: Callable[[ClusterConfig, str], Platform]) -> None:
        self._file = file
        self._make = make
        self.now = make(file.config, file.text)

    def renew(self) -> ClusterConfig:
        """The configuration, whose platform this is from now on; if there is another one that cannot be used, it stays."""
        self._file.changed(self._take)
        return self._file.config

    def _take(self, config: ClusterConfig, text: str) -> None:
        self.now = self._make(config, text)

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """See `Platform`."""
        return await self.now.create_slice(request)

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """See `Platform`."""
        return await self.now.describe_slice(slice_id, zone)

    async def last_words(self, slice_id: str, zone: str) -> str:
        """See `Platform`."""
        return await self.now.last_words(slice_id, zone)

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """See `Platform`."""
        return await self.now.delete_slice(slice_id, zone)

    async def list_slices(self) -> FleetListing:
        """See `Platform`."""
        return await self.now.list_slices()
