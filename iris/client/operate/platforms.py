"""Creates the platform that a configuration names."""

from functools import partial
from pathlib import Path

from iris.config import ClusterConfig
from iris.model.errors import InvalidValue
from iris.platforms.base import Platform
from iris.platforms.gcp.settings import GcpSettings
from iris.platforms.local import LocalPlatform


def create_platform(config: ClusterConfig, machines: Path | None = None, *, settings: GcpSettings | None = None) -> Platform:
    """Creates the platform that the configuration names.

    Args:
        machines: the directory in which a local cluster's machines are requested.
        settings: of a cluster on Google Cloud, from `gcp_settings`. They need no address for listing and deleting.

    Raises:
        InvalidValue: this version does not have the platform.
    """
    if config.platform.gcp is not None and settings is not None:
        # Google's clients take a second to import, and most commands do not need them.
        from iris.platforms.gcp.platform import GcpPlatform
        from iris.platforms.gcp.startup import host_script

        return GcpPlatform(settings, partial(host_script, settings))
    if config.platform.local is not None and machines is not None:
        return LocalPlatform(machines)
    raise InvalidValue(
        "platform", config.platform.kind, "cannot be served by this version", "run the same cluster on this machine with --local"
    )
