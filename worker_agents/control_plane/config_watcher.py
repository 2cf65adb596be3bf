"""Watches a configuration file that may change at any time, and makes the platform that it names.
Keeps the hosts of a cluster over SSH, or the machines over SSH that it has beside a cloud, with the
current configuration.
"""

import asyncio
import contextlib
import functools
import logging
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from iris.client.access.message_key import message_key, text_of
from iris.client.connect.encryption import payload_keys
from iris.client.connect.secret_keys import secret_keys
from iris.client.operate.platforms import create_platform, mixed_platform
from iris.concurrency import beside
from iris.config import ClusterConfig, InvalidConfig, load_written
from iris.model.errors import InvalidValue
from iris.model.slice.provisioning import DeleteResult, FleetListing, SliceObservation, SliceRequest
from iris.platforms import manual
from iris.platforms.base import Platform
from iris.platforms.gcp.settings import gcp_settings
from iris.platforms.manual.settings import ManualSettings, manual_settings

logger = logging.getLogger(__name__)


class ConfigFile:
    """A configuration file that may change at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = self._path.stat().st_mtime_ns
        self.config, self.text = load_written(path)

    def changed(self, usable: Callable[[ClusterConfig, str], object]) -> bool:
        """Returns True if the file has a new configuration. A configuration that cannot be used is
        logged and ignored.

        Args:
            usable: raises `InvalidValue` for a configuration and its text that cannot be used.
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
            logger.warning("the new configuration is ignored: %s", error)
            return False
        self.config, self.text = config, text
        return True


def check_successor(config: ClusterConfig, successor: ClusterConfig) -> None:
    """Checks that a cluster that runs with the first configuration can continue with the second.

    Raises:
        InvalidConfig: it cannot.
    """
    if (successor.platform.kind, successor.name) != (config.platform.kind, config.name):
        raise InvalidConfig(
            [
                f"the new configuration is for cluster {successor.name} on"
                f" {successor.platform.kind}, but this control plane serves cluster"
                f" {config.name} on {config.platform.kind}"
            ]
        )


def platform_of(
    config: ClusterConfig,
    text: str,
    *,
    uid: str = "",
    address: str = "",
    namespace: str = "default",
    machines: Path | None = None,
    ssh_platform: Callable[[ManualSettings], Platform | None] | None = None,
    delegate: Callable[[str, str], str] = lambda slice_id, public_key: "",
) -> Platform:
    """Returns the platform that the configuration names.

    Args:
        text: the configuration, exactly as it is written.
        uid: as in `GcpSettings.uid`.
        address: `host:port` of the Temporal service, as hosts reach it.
        machines: the directory in which a local cluster requests its machines.
        ssh_platform: makes the platform of machines over SSH, on which agents are started. It
            returns None if there are none.
        delegate: as in `create_platform`.

    Raises:
        InvalidValue: this version has no such platform.
    """
    over_ssh = manual_settings(config, uid, text=text, address=address, namespace=namespace)
    reached = ssh_platform(over_ssh) if ssh_platform is not None else None
    if config.platform.gcp is None:
        return reached or create_platform(config, machines)
    settings = gcp_settings(config, uid, text=text, address=address, namespace=namespace)
    cloud = create_platform(config, settings=settings, delegate=delegate)
    return cloud if reached is None else mixed_platform(cloud, reached, over_ssh)


class CurrentPlatform:
    """The platform of the current configuration. A new configuration may replace it, with other
    zones, networks and images.

    Args:
        make: returns the platform. Its arguments are a configuration and the text of the
            configuration.

    Raises:
        InvalidValue: this version has no such platform.
    """

    def __init__(self, file: ConfigFile, make: Callable[[ClusterConfig, str], Platform]) -> None:
        self._file = file
        self._make = make
        self.now = make(file.config, file.text)

    def renew(self) -> ClusterConfig:
        """Returns the current configuration and takes over its platform. Keeps the old ones if the
        new configuration cannot be used.
        """
        self._file.changed(self._take)
        return self._file.config

    def _take(self, config: ClusterConfig, text: str) -> None:
        self.now = self._make(config, text)

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """Implements `Platform.create_slice`, with the newest configuration: planners get a reload
        earlier.
        """
        self.renew()
        return await self.now.create_slice(request)

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """Implements `Platform.describe_slice`."""
        return await self.now.describe_slice(slice_id, zone)

    async def last_output(self, slice_id: str, zone: str) -> str:
        """Implements `Platform.last_output`."""
        return await self.now.last_output(slice_id, zone)

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """Implements `Platform.delete_slice`."""
        return await self.now.delete_slice(slice_id, zone)

    async def list_slices(self) -> FleetListing:
        """Implements `Platform.list_slices`."""
        return await self.now.list_slices()


class SshHosts:
    """The SSH connections of one control plane to its hosts. Keeps the hosts' agents running.

    Args:
        directory: the directory for the archive of packages that is copied to the hosts.
        access: returns the value of a secret, as for `manual.connections.SecretFiles`; None: no
            setting names a secret.
    """

    def __init__(
        self,
        settings: ManualSettings,
        directory: Path,
        access: Callable[[str], bytes] | None = None,
    ) -> None:
        self._connections = manual.connections.Connections(settings, keep=True, access=access)
        keys = payload_keys()
        text = "" if keys is None else keys.text
        key = message_key()
        self._keeper = manual.keeper.HostKeeper(
            settings,
            self._connections,
            functools.partial(manual.runtime.pack, directory),
            text,
            secret_keys=_secret_keys,
            message_key="" if key is None else text_of(key),
        )

    def platform(self, settings: ManualSettings) -> Platform:
        """Returns the platform with these settings, which replace the earlier ones."""
        keeper = self._keeper
        keeper.reconfigure(settings)
        return manual.platform.ManualPlatform(
            settings,
            self._connections,
            attend=keeper.attend,
            fault_of=keeper.fault_of,
            avoid=keeper.avoid,
        )

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serves the hosts for as long as the block lasts. Agents and programs run on
        afterwards.
        """
        try:
            async with self._keeper.serving():
                yield
        finally:
            await self._connections.close()


def _secret_keys() -> str:
    """Returns the content of the file of keys for users' secrets, which a rotation replaces; empty:
    there is none.
    """
    keys = secret_keys()
    return "" if keys is None else keys.text


class MachinesBeside:
    """The machines that a cluster reaches over SSH, in addition to those of a cloud. Most clusters
    have no such machines, so the SSH client is loaded only when a configuration names some.

    Args:
        access: returns the value of a secret, as for `manual.connections.SecretFiles`; None: no
            setting names a secret.
    """

    def __init__(self, access: Callable[[str], bytes] | None) -> None:
        self._access = access
        self._hosts: SshHosts | None = None
        self._directory = ""
        self._needed = asyncio.Event()

    def platform(self, settings: ManualSettings) -> Platform | None:
        """Returns the platform with these settings, which replace the earlier ones; None: no
        configuration had such machines.
        """
        if self._hosts is None:
            if not settings.hosts:
                return None
            self._hosts = SshHosts(settings, Path(self._directory), self._access)
            self._needed.set()
        return self._hosts.platform(settings)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serves the machines for as long as the block lasts. Agents and programs run on
        afterwards.
        """
        with tempfile.TemporaryDirectory(prefix="iris-packages-") as self._directory:
            async with beside(self._serve()):
                yield

    async def _serve(self) -> None:
        await self._needed.wait()
        assert self._hosts is not None
        async with self._hosts.serving():
            await asyncio.Event().wait()
