"""Clusters on this machine: any configuration as a simulation of itself, and the one of a cluster that has none."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar

from iris.accelerators import Tpu
from iris.config_defaults import apply_defaults
from iris.config_models import (
    AutoscalerDefaults,
    ClusterConfig,
    Controller,
    GroupResources,
    LocalController,
    LocalPlatform,
    Platform,
    ScaleGroupConfig,
)
from iris.config_rules import check_config
from iris.config_values import Section
from iris.constraints import Attribute
from iris.resources import Device
from iris.scale_groups import SliceType

#: The group of plain hosts of a cluster that has no configuration file.
LOCAL_GROUP = "local-cpu"

#: Processes come and go in a second: nobody wants to wait for them as for machines.
LOCAL_EVALUATION_INTERVAL = timedelta(seconds=0.5)
LOCAL_SCALE_UP_DELAY = timedelta(seconds=1)
LOCAL_SCALE_DOWN_DELAY = timedelta(minutes=5)

#: Means something only for machines that are elsewhere.
_NOT_LOCAL = {
    *("type", "machine_type", "runtime_version", "queued", "reservation"),
    *("hosts", "ssh_user", "ssh_port", "ssh_key_file", "scale_up_delay"),
}
#: What the platform or the kind of machine decided, which is no longer known afterwards.
_PINNED = {"zones", "max_slices", "topology"}

S = TypeVar("S", bound=Section)


def make_local_config(config: ClusterConfig, name: str | None = None) -> ClusterConfig:
    """The same cluster on this machine: its groups keep their shapes, limits and zones, and become processes.

    What the autoscaler waits for is made short; a `scale_down_delay` that was written stays.

    Args:
        name: of the local cluster, instead of the configuration's.

    Raises:
        InvalidConfig: the name is none.
    """
    changes: dict[str, Any] = {
        "platform": Platform(local=LocalPlatform()),
        "controller": Controller(bundle_prefix="", local=LocalController(port=0)),
        "autoscaler": _with(config.autoscaler, evaluation_interval=LOCAL_EVALUATION_INTERVAL),
        "defaults": _with(config.defaults, autoscaler=_local_pace(config.defaults.autoscaler)),
        "scale_groups": {each: _local_group(group) for each, group in config.scale_groups.items()},
    }
    if name is not None:
        changes["name"] = name
    return check_config(apply_defaults(_with(config, **changes)))


def with_rules(config: ClusterConfig, **rules: Any) -> ClusterConfig:
    """The configuration with some of the scheduler's rules decided otherwise."""
    return apply_defaults(_with(config, scheduler=_with(config.scheduler, **rules)))


def _local_pace(pace: AutoscalerDefaults) -> AutoscalerDefaults:
    changes = {"evaluation_interval": LOCAL_EVALUATION_INTERVAL, "scale_up_delay": LOCAL_SCALE_UP_DELAY}
    if "scale_down_delay" not in pace.model_fields_set:
        changes["scale_down_delay"] = LOCAL_SCALE_DOWN_DELAY
    return _with(pace, **changes)


def _local_group(group: ScaleGroupConfig) -> ScaleGroupConfig:
    kept = {name: getattr(group, name) for name in group.model_fields_set - _NOT_LOCAL}
    pinned = {name: getattr(group, name) for name in _PINNED if getattr(group, name)}
    resources = GroupResources(**{name: getattr(group.resources, name) for name in GroupResources.model_fields})
    return ScaleGroupConfig(**{**kept, **pinned, "type": SliceType.LOCAL_VM, "resources": resources})


def _with(section: S, **changes: Any) -> S:
    """The section as it was written, with these changes."""
    return type(section)(**{name: getattr(section, name) for name in section.model_fields_set} | changes)


def local_config(
    name: str,
    hosts: int = 1,
    *,
    min_hosts: int = 1,
    tpu: Tpu | None = None,
    slices: int = 1,
    cpu_millis: int | None = None,
    memory_bytes: int | None = None,
    disk_bytes: int | None = None,
    device: Device | None = None,
    attributes: Mapping[str, Attribute] | None = None,
) -> ClusterConfig:
    """The configuration of a cluster on this machine that has no file.

    Args:
        hosts, min_hosts: hosts outside TPU slices, at the most and at the least; each is a slice by itself.
        tpu, slices: of this kind there are so many slices, all the time.
        cpu_millis, memory_bytes, disk_bytes: of each host, instead of what a local host or one of such a TPU slice has.
        device, attributes: of each host outside TPU slices. One with a device takes other jobs too: there may be no other host.

    Raises:
        InvalidConfig: the name is none, or the attributes are.
    """
    sizes = {
        "cpu": None if cpu_millis is None else cpu_millis / 1000,
        "memory": memory_bytes,
        "disk": disk_bytes,
    }
    given = {key: value for key, value in sizes.items() if value is not None}
    scale_groups = {}
    if hosts:
        scale_groups[LOCAL_GROUP] = ScaleGroupConfig(
            type=SliceType.LOCAL_VM,
            min_slices=min(min_hosts, hosts),
            max_slices=hosts,
            resources=GroupResources(**given, **({"device": str(device)} if device else {})),
            attributes=dict(attributes or {}),
            accept_cpu_jobs=device is not None,
        )
    if tpu is not None:
        scale_groups[f"local-{tpu.variant}"] = ScaleGroupConfig(
            type=SliceType.LOCAL_VM,
            accelerator_variant=tpu.variant,
            min_slices=slices,
            max_slices=slices,
            resources=GroupResources(**given),
        )
    plain = ClusterConfig(name=name, platform=Platform(local=LocalPlatform()), scale_groups=scale_groups)
    return make_local_config(apply_defaults(plain))
