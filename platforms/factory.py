"""Which platform a configuration is for."""

from functools import partial
from pathlib import Path

from iris.config import ClusterConfig
from iris.errors import InvalidValue
from iris.platforms.base import Platform
from iris.platforms.gcp.settings import GcpSettings
from iris.platforms.local import LocalPlatform


def create_platform(config: ClusterConfig, machines: Path | None = None, *, settings: GcpSettings | None = None) -> Platform:
    """The platform that the configuration names.

    Args:
        machines: where a local cluster's machines are asked for.
        settings: of a cluster on Google Cloud (see `gcp_settings`); whoever only looks and deletes needs no address in them.

    Raises:
        InvalidValue: this version has no such platform.
    """
    if config.platform.gcp is not None and settings is not None:
        # Google's clients take a second to import, and most commands never need them.
        from iris.platforms.gcp.platform import GcpPlatform
        from iris.platforms.gcp.startup import host_script

        return GcpPlatform(settings, partial(host_script, settings))
    if config.platform.local is not None and machines is not None:
        return LocalPlatform(machines)
    raise InvalidValue(
        "platform", config.platform.kind, "cannot be served by this version", "run the same cluster on this machine with --local"
    )
