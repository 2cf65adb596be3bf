"""Creates the platform that a configuration names."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from iris.client.connect.identity import known_uid
from iris.config import ClusterConfig, is_mixed
from iris.model.errors import InvalidValue
from iris.model.slice.scale_groups import is_gcp_zone
from iris.platforms import gcp, manual
from iris.platforms.base import Platform
from iris.platforms.gcp.settings import GcpSettings
from iris.platforms.gcp.startup import host_script
from iris.platforms.local import LocalPlatform
from iris.platforms.manual.settings import ManualSettings, manual_settings
from iris.platforms.mixed import MixedPlatform
from iris.storage.object_store import Store

if TYPE_CHECKING:
    from iris.platforms.manual.platform import ManualPlatform

#: A placeholder for the directory of `LocalPlatform`, for a local cluster without machines. No file
#: can exist below this path.
NO_MACHINES = Path(os.devnull)


def create_platform(
    config: ClusterConfig,
    machines: Path | None = None,
    *,
    settings: GcpSettings | None = None,
    over_ssh: ManualSettings | None = None,
    delegate: Callable[[str, str], str] = lambda slice_id, public_key: "",
) -> Platform:
    """Creates the platform that the configuration names.

    Args:
        machines: the directory in which a local cluster's machines are requested; without scale
            groups, none are, because all machines of the cluster join by themselves.
        settings: the settings of a cluster on Google Cloud, from `gcp_settings`. Listing and
            deleting need no address in them.
        over_ssh: the settings of a cluster with machines over SSH. The platform lists and deletes
            slices and leases machines, but starts no agents: `HostKeeper` starts them.
        delegate: as in `GcpPlatform`. Other platforms have a Temporal service of their own, which
            knows no identities.

    Raises:
        InvalidValue: this version does not support the platform.
    """
    if config.platform.gcp is not None and settings is not None:
        cloud = gcp.platform.GcpPlatform(
            settings, partial(host_script, settings), delegate=delegate
        )
        return (
            cloud
            if over_ssh is None
            else mixed_platform(cloud, ssh_platform(config, over_ssh), over_ssh)
        )
    if over_ssh is not None:
        return ssh_platform(config, over_ssh)
    if config.platform.local is not None and machines is not None:
        return LocalPlatform(machines)
    if config.platform.local is not None and not config.scale_groups:
        return LocalPlatform(NO_MACHINES)
    raise InvalidValue(
        "platform",
        config.platform.kind,
        "is not supported by this version",
        "run the same cluster on this machine with --local",
    )


def mixed_platform(cloud: Platform, machines: Platform, over_ssh: ManualSettings) -> Platform:
    """Joins Google Cloud and machines over SSH.

    Args:
        over_ssh: the settings of the machines.
    """
    zones = (zone for each in over_ssh.zones.values() for zone in each)
    return MixedPlatform(cloud, machines, zones, is_gcp_zone)


def over_ssh(config: ClusterConfig, uid: str) -> ManualSettings | None:
    """Returns the settings that list and delete the slices on machines beside Google Cloud; None if
    the cluster has no such machines.
    """
    return manual_settings(config, uid) if is_mixed(config) else None


def secret_reader(config: ClusterConfig) -> Callable[[str], bytes] | None:
    """Returns a function that reads the files for SSH from Secret Manager; None if the cluster is
    not on Google Cloud.
    """
    google = config.platform.gcp
    if google is None:
        return None

    def access(resource: str) -> bytes:
        endpoint = google.endpoints.secret_manager
        return gcp.secret_manager.GoogleSecrets(google.project_id, endpoint).access(resource)

    return access


def ssh_platform(config: ClusterConfig, settings: ManualSettings) -> "ManualPlatform":
    """Returns the platform of a cluster's machines over SSH. It starts no agents."""
    return manual.platform.ManualPlatform(
        settings, manual.connections.Connections(settings, access=secret_reader(config))
    )


async def machines_of(config: ClusterConfig, machines: Path) -> Platform:
    """Creates the platform of a cluster whose control plane is on this machine, to list and delete
    its slices.

    Args:
        machines: the directory in which a local cluster's machines are requested.

    Raises:
        Unreachable: the store cannot be read. It has the uid that marks leases over SSH.
    """
    if config.platform.manual is None:
        return create_platform(config, machines)
    uid = await known_uid(Store(config.controller.bundle_prefix), config.name)
    return create_platform(config, over_ssh=manual_settings(config, uid))
