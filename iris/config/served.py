"""Tells which valid configurations this version can start, and which settings it does not read."""

import re
from collections.abc import Iterator
from typing import Literal

from iris.config.defaults import IN_FILE, origins_of
from iris.config.schema import ClusterConfig
from iris.model.errors import InvalidValue

#: The paths of the settings for machines that Iris reaches over SSH.
_OVER_SSH = re.compile(r"defaults\.(ssh\..*|timeouts\.ssh_poll_interval)|scale_groups\.[^.]+\.ssh_.*")


def served_kind(config: ClusterConfig) -> Literal["gcp", "local"]:
    """Returns where the control plane of the configuration runs.

    Raises:
        InvalidValue: this version cannot start the cluster.
    """
    kind = config.controller.kind or config.platform.kind
    if kind == "gcp" and config.platform.gcp is not None:
        return "gcp"
    if kind == "local" and config.platform.local is not None:
        return "local"
    # The control plane may be of a served kind, and its platform not.
    field, value = ("controller", kind) if kind not in ("gcp", "local") else ("platform", config.platform.kind)
    raise InvalidValue(field, value, "is not served by this version", "run the same cluster on this machine with --local")


def unread(config: ClusterConfig) -> Iterator[str]:
    """Yields a line for each setting in the file that has no effect in this version."""
    if config.platform.manual is not None:
        return  # such a cluster is refused as a whole, and --local reads none of them
    for path, origin in origins_of(config).items():
        if origin == IN_FILE and _OVER_SSH.fullmatch(path):
            yield f"{path}: has no effect in this version, which reaches no machine over SSH; remove it"
