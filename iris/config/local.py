"""Builds the configurations of clusters on this machine: a simulation of any configuration, or a
cluster without a configuration file.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar

from iris.config.checks.cluster import check_config
from iris.config.controller_settings import Controller, LocalControllerConfig
from iris.config.defaults import apply_defaults
from iris.config.group_settings import GroupResources, ScaleGroupConfig
from iris.config.schema import (
    AutoscalerDefaults,
    ClusterConfig,
    Dashboard,
    LocalPlatformConfig,
    Metrics,
    PlatformConfig,
)
from iris.config.values import Section
from iris.model.host.accelerators import Tpu
from iris.model.host.constraints import Attribute
from iris.model.host.resources import Device
from iris.model.slice.scale_groups import SliceType

#: The scale group of the hosts outside TPU slices, in a local cluster without a configuration file.
LOCAL_GROUP = "local-cpu"

#: The pause between two evaluations of a local cluster's autoscaler. It is shorter than for other
#: clusters, because local processes start and stop within a second.
LOCAL_EVALUATION_INTERVAL = timedelta(seconds=0.5)
#: The wait after a scale-up of a local group before the next one.
LOCAL_SCALE_UP_DELAY = timedelta(seconds=1)
#: A slice of a local group is deleted after all its hosts have been free for this long, unless the
#: user has set another time.
LOCAL_SCALE_DOWN_DELAY = timedelta(minutes=5)

#: The keys of a scale group that are not copied to the local group that simulates it. They apply
#: only to remote machines, or have other values on this machine.
_NOT_LOCAL = {
    *("type", "machine_type", "runtime_version", "queued", "reservation"),
    *(
        "hosts",
        "retiring_hosts",
        "ssh_user",
        "ssh_port",
        "ssh_key_file",
        "ssh_jump_host",
        "scale_up_delay",
    ),
}
#: The keys of a scale group whose values, also default values, are copied to the local group that
#: simulates it, because their defaults depend on the platform or the machine type.
_PINNED = {"zones", "max_slices", "topology", "reserved_memory", "reserved_disk"}

S = TypeVar("S", bound=Section)


def make_local_config(config: ClusterConfig, name: str | None = None) -> ClusterConfig:
    """Returns the configuration of a local cluster that simulates this one. Its hosts are
    processes; its groups keep their shapes, limits and zones.

    The autoscaler's delays are shortened, except a `scale_down_delay` that the user set.

    Args:
        name: the name of the local cluster; None for the configuration's name.

    Raises:
        InvalidConfig: the name is invalid.
    """
    changes: dict[str, Any] = {
        "platform": PlatformConfig(local=LocalPlatformConfig()),
        "controller": Controller(bundle_prefix="", local=LocalControllerConfig(port=0)),
        "autoscaler": _with(config.autoscaler, evaluation_interval=LOCAL_EVALUATION_INTERVAL),
        "defaults": _with(config.defaults, autoscaler=_local_pace(config.defaults.autoscaler)),
        "metrics": _local_metrics(config.metrics),
        "dashboard": _local_dashboard(config.dashboard),
        "scale_groups": {each: _local_group(group) for each, group in config.scale_groups.items()},
    }
    if name is not None:
        changes["name"] = name
    return check_config(apply_defaults(_with(config, **changes)))


def on_its_machine(config: ClusterConfig) -> ClusterConfig:
    """Returns the configuration of a cluster with `controller.manual` in the form for the machine
    of its control plane.
    """
    manual = config.controller.manual
    if manual is None:
        return config
    local = Controller(
        bundle_prefix=config.controller.bundle_prefix, local=LocalControllerConfig(port=manual.port)
    )
    return check_config(apply_defaults(_with(config, controller=local)))


def with_rules(config: ClusterConfig, **rules: Any) -> ClusterConfig:
    """Returns the configuration with these rules of the scheduler replaced."""
    return apply_defaults(_with(config, scheduler=_with(config.scheduler, **rules)))


def with_actions(config: ClusterConfig) -> ClusterConfig:
    """Returns the configuration with the right to change something in the dashboard.

    Raises:
        InvalidConfig: other machines can reach the dashboard.
    """
    dashboard = _with(config.dashboard, allow_actions=True)
    return check_config(apply_defaults(_with(config, dashboard=dashboard)))


def _local_pace(pace: AutoscalerDefaults) -> AutoscalerDefaults:
    changes = {
        "evaluation_interval": LOCAL_EVALUATION_INTERVAL,
        "scale_up_delay": LOCAL_SCALE_UP_DELAY,
    }
    if "scale_down_delay" not in pace.model_fields_set:
        changes["scale_down_delay"] = LOCAL_SCALE_DOWN_DELAY
    return _with(pace, **changes)


def _local_metrics(metrics: Metrics) -> Metrics:
    """Returns the section for one machine: simulated hosts would all need the same port, and a
    simulation of a cluster must not publish a port of a user's machine.
    """
    return (
        Metrics(controller_port=metrics.controller_port) if metrics.controller_port else Metrics()
    )


def _local_dashboard(dashboard: Dashboard) -> Dashboard:
    """Returns the section for one machine: a simulation of a cluster must not publish a port of a
    user's machine.
    """
    kept = dashboard.model_fields_set - {"address", "url"}
    return Dashboard(**{name: getattr(dashboard, name) for name in kept})


def _local_group(group: ScaleGroupConfig) -> ScaleGroupConfig:
    kept = {name: getattr(group, name) for name in group.model_fields_set - _NOT_LOCAL}
    pinned = {name: getattr(group, name) for name in _PINNED if getattr(group, name)}
    resources = GroupResources(
        **{name: getattr(group.resources, name) for name in GroupResources.model_fields}
    )
    return ScaleGroupConfig(
        **{**kept, **pinned, "type": SliceType.LOCAL_VM, "resources": resources}
    )


def _with(section: S, **changes: Any) -> S:
    """Returns the section with these changes. Only fields that the user set count as set, and the
    changed ones.
    """
    return type(section)(
        **{name: getattr(section, name) for name in section.model_fields_set} | changes
    )


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
    """Returns the configuration of a local cluster without a configuration file.

    Args:
        name: the cluster's name.
        hosts: the maximum number of hosts outside TPU slices; each is a slice.
        min_hosts: the minimum number of such hosts.
        tpu: the kind of TPU slice.
        slices: the number of TPU slices that the cluster always has.
        cpu_millis: the CPU of each host, if not the default of a local host or of the TPU slice.
        memory_bytes: the same for memory.
        disk_bytes: the same for disk.
        device: the device of each host outside TPU slices. Such hosts also accept jobs without a
            device, because there may be no other hosts.
        attributes: the attributes of each host outside TPU slices.

    Raises:
        InvalidConfig: the name or the attributes are invalid.
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
    plain = ClusterConfig(
        name=name, platform=PlatformConfig(local=LocalPlatformConfig()), scale_groups=scale_groups
    )
    return make_local_config(apply_defaults(plain))
