"""Decides which valid configurations this version can start, and finds the settings that it
ignores.
"""

import re
from collections.abc import Iterator
from typing import Literal

from iris.config.checks.mixed import is_mixed, machine_groups, unreachable
from iris.config.defaults import IN_FILE, origins_of
from iris.config.schema import ClusterConfig
from iris.model.errors import InvalidValue

#: Matches the paths of settings for machines over SSH. They have an effect only if the platform is
#: `manual`, or if a cluster on Google Cloud also has `manual_vm` groups.
_OVER_SSH = re.compile(
    r"defaults\.(ssh\..*|timeouts\.ssh_poll_interval)|scale_groups\.[^.]+\.ssh_.*"
)
#: Matches the paths of settings for the containers in which Iris itself runs. They have no effect
#: on the platform `manual`: its agents and control plane run without containers.
_OF_CONTAINERS = re.compile(r"controller\.image|(defaults\.)?bootstrap\.(image|cache_dir)")
_SIMULATE = "run the same cluster on this machine with --local"


def served_kind(config: ClusterConfig) -> Literal["gcp", "manual", "local"]:
    """Returns where the control plane of the configuration runs.

    Raises:
        InvalidValue: this version cannot start the cluster.
    """
    for problem in unserved(config):
        raise problem
    kind = config.controller.kind or config.platform.kind
    return "gcp" if kind == "gcp" else "manual" if kind == "manual" else "local"


def unserved(config: ClusterConfig) -> Iterator[InvalidValue]:
    """Yields the reasons why this version cannot start the cluster."""
    controller, platform = config.controller, config.platform
    kind = controller.kind or platform.kind
    if kind == "gcp" and platform.gcp is not None:
        if is_mixed(config):
            yield from unreachable(config)
    elif platform.manual is not None and kind in ("local", "manual"):
        if controller.temporal is not None:
            remedy = "remove it: the control plane runs a Temporal service of its own"
            address = controller.temporal.address
            yield InvalidValue(
                "controller.temporal", address, "is not supported with platform.manual", remedy
            )
    elif kind != "local" or platform.local is None:
        yield InvalidValue("platform", platform.kind, "is not supported by this version", _SIMULATE)


def unread(config: ClusterConfig) -> Iterator[str]:
    """Yields a line for each setting of the file that has no effect."""
    manual = config.platform.manual is not None
    without_effect = _OF_CONTAINERS if manual else _OVER_SSH
    reason = (
        "with platform.manual, whose agents and control plane run without containers"
        if manual
        else "in this version, which reaches only machines of manual_vm groups over SSH"
    )
    reached = (
        ("defaults.", *(f"scale_groups.{name}." for name in machine_groups(config)))
        if is_mixed(config)
        else ()
    )
    for path, origin in origins_of(config).items():
        if origin == IN_FILE and without_effect.fullmatch(path) and not path.startswith(reached):
            yield f"{path}: has no effect {reason}; remove it"
