"""Which platform a configuration is for."""

from pathlib import Path

from iris.config import ClusterConfig
from iris.errors import InvalidValue
from iris.platforms.base import Platform
from iris.platforms.local import LocalPlatform


def create_platform(config: ClusterConfig, machines: Path | None = None) -> Platform:
    """The platform that the configuration names.

    Args:
        machines: where a local cluster's machines are asked for.

    Raises:
        InvalidValue: this version has no such platform.
    """
    if config.platform.local is not None and machines is not None:
        return LocalPlatform(machines)
    raise InvalidValue(
        "platform", config.platform.kind, "cannot be served by this version", "run the same cluster on this machine with --local"
    )
