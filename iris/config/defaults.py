"""Computes defaults for the values that a configuration file does not set.

A completed section keeps its `model_fields_set`. So completing it again changes nothing, writing it
out shows only what the user wrote, and `origins_of` can return the source of every other value.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar, cast

from iris.config.controller_settings import Controller, GcpControllerConfig, LocalControllerConfig
from iris.config.group_settings import Accelerator, ScaleGroupConfig
from iris.config.schema import ALL_APIS, Autoscaler, Bootstrap, ClusterConfig, Ssh
from iris.config.values import Section
from iris.model.errors import InvalidValue
from iris.model.host.accelerators import Tpu, parse_gpu, tpu
from iris.model.host.machine_types import machine_type, smallest_machine_type
from iris.model.host.resources import Device, DeviceKind, parse_device
from iris.model.host.run_as import AGENT_USER
from iris.model.job.secrets import ALL_OF_THE_USERS, SecretKind
from iris.model.slice.scale_groups import SliceType, region_of
from iris.model.units import GIB, MIB

#: The source of a value that the configuration file sets.
IN_FILE = "set in file"
#: The source of a value that Iris sets by default.
BUILT_IN = "built-in default"
#: The source of a value from the table of TPU types.
TPU_TABLE = "accelerator table"
#: The name of the source of values that come from the table of machine types.
MACHINE_TABLE = "machine type table"

#: The types of group whose machines Google Cloud creates.
IN_CLOUD = frozenset({SliceType.TPU_VM, SliceType.GCE_VM})
#: The keys that apply only to some types of group. For groups of other types, these keys are not
#: shown, and setting them is an error.
ONLY_FOR: Mapping[str, frozenset[SliceType]] = {
    "hosts": frozenset({SliceType.MANUAL_VM}),
    "retiring_hosts": frozenset({SliceType.MANUAL_VM}),
    "machine_type": frozenset({SliceType.GCE_VM}),
    "runtime_version": frozenset({SliceType.TPU_VM}),
    "queued": frozenset({SliceType.TPU_VM}),
    "reservation": IN_CLOUD,
    "topology": frozenset({SliceType.TPU_VM, SliceType.LOCAL_VM}),
    "ssh_user": IN_CLOUD | {SliceType.MANUAL_VM},
    "ssh_port": IN_CLOUD | {SliceType.MANUAL_VM},
    "ssh_key_file": IN_CLOUD | {SliceType.MANUAL_VM},
    "ssh_jump_host": frozenset({SliceType.MANUAL_VM}),
}

#: The zone of slices on this machine.
LOCAL_ZONE = "local-a"
#: The zone of slices on existing machines.
MANUAL_ZONE = "manual-a"
#: The default of `max_stockout_delay` for manual_vm groups: after a request failed because no
#: machine was free, the group makes no request for at most this time.
MAX_POOL_DELAY = timedelta(minutes=1)
#: The disk of a cloud machine, unless the configuration sets another size.
CLOUD_DISK = 50 * GIB
#: The default lease on Google Cloud. Programs must survive a restart of the controller's VM, which
#: takes minutes if the VM pulls its image.
CLOUD_LEASE = timedelta(minutes=5)
#: The memory of a cloud machine that its host does not offer to tasks: a share of the memory,
#: because the kernel of an n2-standard-8 reports 31.4 of 32 GiB, plus an amount for the system's
#: programs, Docker and the agent. At most half of a small machine is reserved.
MEMORY_SHARE, SYSTEM_MEMORY = 0.02, GIB
#: The disk of a VM that its host does not offer to tasks, because the images of the system and of
#: Iris use it: a share of the disk or an amount, whichever is larger, but at most half. Not for TPU
#: machines, because Google determines the size of their boot disk.
DISK_SHARE, LEAST_DISK = 0.1, 15 * GIB

S = TypeVar("S", bound=Section)


class Source(NamedTuple):
    """The default values of keys, and the name of their origin, which is shown with each value."""

    origin: str
    values: Mapping[str, Any]


def apply_defaults(config: ClusterConfig) -> ClusterConfig:
    """Returns the configuration with a value for every key. Values that the user set stay. Applying
    the defaults twice changes nothing.
    """
    return _complete(config, {})


def origins_of(config: ClusterConfig) -> dict[str, str]:
    """Returns the source of each value by its path, in the order of the sections."""
    origins: dict[str, str] = {}
    _complete(config, origins)
    return origins


def secrets_of(config: ClusterConfig, *, own_users: bool) -> tuple[str, ...]:
    """Returns the secrets that jobs may use on a host.

    Args:
        config: a configuration with its defaults.
        own_users: whether the host's jobs have users of their own. The default of a local cluster
            is for jobs that run as the agent's user.
    """
    written = (
        "secrets" in config.bootstrap.model_fields_set | config.defaults.bootstrap.model_fields_set
    )
    return config.bootstrap.secrets if written or not own_users else ()


def secret_manager_references(config: ClusterConfig) -> tuple[str, ...]:
    """Returns the keys that refer to Google Secret Manager. If there are any, the hosts'
    credentials need the scope of all APIs.
    """
    temporal, boot = config.controller.temporal, config.bootstrap
    if "secrets" not in boot.model_fields_set:
        boot = config.defaults.bootstrap
    references = {
        "controller.temporal": temporal.credentials.values() if temporal is not None else (),
        "controller.payload_keys": (config.controller.payload_keys,),
        "controller.secret_keys": (config.controller.secret_keys,),
        "bootstrap.secrets": boot.secrets,
    }
    return tuple(
        key
        for key, found in references.items()
        if any(each.startswith(f"{SecretKind.GCP}:") for each in found)
    )


def _complete(config: ClusterConfig, origins: dict[str, str]) -> ClusterConfig:
    for key in ("name", "teams", "limits"):
        origins[key] = IN_FILE if key in config.model_fields_set else BUILT_IN
    defaults, gcp = config.defaults, config.platform.gcp
    home: list[Source] = []
    if gcp is not None and gcp.default_zones:
        home = [Source("platform.gcp.default_zones", {"region": region_of(gcp.default_zones[0])})]
    if found := secret_manager_references(config):
        home.append(Source(found[0], {"scopes": (ALL_APIS,)}))
    boot = _present("defaults.bootstrap", defaults.bootstrap, Bootstrap)
    pace = _present("defaults.autoscaler", defaults.autoscaler, Autoscaler)
    # Jobs with users of their own must not get every secret that the agent can read.
    run_as = (
        config.bootstrap if "run_as" in config.bootstrap.model_fields_set else defaults.bootstrap
    ).run_as
    of_the_user = config.platform.local is not None and run_as in ("", AGENT_USER)
    secrets = Source(BUILT_IN, {"secrets": ALL_OF_THE_USERS} if of_the_user else {})
    lease = Source(BUILT_IN, {"lease": CLOUD_LEASE} if gcp is not None else {})
    sections: dict[str, Any] = {
        "platform": _filled(config.platform, "platform", origins, {"gcp": home}),
        "defaults": _filled(defaults, "defaults", origins),
        "controller": _controller(config, origins),
        "bootstrap": _filled(config.bootstrap, "bootstrap", origins, {"": [boot, secrets]}),
        "autoscaler": _filled(config.autoscaler, "autoscaler", origins, {"": [pace]}),
        "scheduler": _filled(config.scheduler, "scheduler", origins, {"": [lease]}),
        "metrics": _filled(config.metrics, "metrics", origins),
        "prices": _filled(config.prices, "prices", origins),
        "budgets": {
            name: _filled(budget, f"budgets.{name}", origins)
            for name, budget in config.budgets.items()
        },
        "quotas": {
            name: _filled(quota, f"quotas.{name}", origins) for name, quota in config.quotas.items()
        },
        "dashboard": _filled(config.dashboard, "dashboard", origins),
        "scale_groups": {
            name: _group(config, group, f"scale_groups.{name}", origins)
            for name, group in config.scale_groups.items()
        },
    }
    return _with_values(config, sections)


def _filled(
    section: S,
    path: str,
    origins: dict[str, str],
    sources: Mapping[str, list[Source]] | None = None,
) -> S:
    """Returns the section with a value for every field: the user's value, otherwise the value of
    the first source that has one, otherwise the built-in default.

    Args:
        sources: the sources of each subsection by name. The empty name stands for the section
            itself.
    """
    sources = sources or {}
    values = {}
    for name, field in type(section).model_fields.items():
        value, here = getattr(section, name), f"{path}.{name}"
        if isinstance(value, Section):
            values[name] = _filled(value, here, origins, {"": sources.get(name, [])})
            continue
        if name in section.model_fields_set:
            origin = IN_FILE
        else:
            found = next((source for source in sources.get("", []) if name in source.values), None)
            origin = found.origin if found else BUILT_IN
            value = found.values[name] if found else field.get_default(call_default_factory=True)
        if value is not None:
            origins[here] = origin
        values[name] = value
    return _with_values(section, values)


def _with_values(section: S, values: Mapping[str, Any]) -> S:
    """Returns the section with these values, without validation. `model_fields_set` stays
    unchanged.
    """
    unchanged = {name: getattr(section, name) for name in type(section).model_fields}
    made = type(section).model_construct(
        _fields_set=set(section.model_fields_set), **{**unchanged, **values}
    )
    return cast(S, made)


def _present(origin: str, section: Section, known: type[Section]) -> Source:
    """Returns the values that the user set in a section of `defaults`, for the fields that the
    other section has.
    """
    return Source(
        origin,
        {
            name: getattr(section, name)
            for name in section.model_fields_set
            if name in known.model_fields
        },
    )


def _controller(config: ClusterConfig, origins: dict[str, str]) -> Controller:
    """Returns the controller. The platform decides its default. A manual platform has no default:
    the user must name the machine.
    """
    controller, gcp = config.controller, config.platform.gcp
    if not controller.kind and gcp is not None:
        controller = _with_values(controller, {"gcp": GcpControllerConfig()})
    elif not controller.kind and config.platform.local is not None:
        controller = _with_values(controller, {"local": LocalControllerConfig()})
    zones = (
        [Source("platform.gcp.default_zones", {"zone": gcp.default_zones[0]})]
        if gcp and gcp.default_zones
        else []
    )
    return _filled(controller, "controller", origins, {"gcp": zones})


def meaningless_keys(group: ScaleGroupConfig) -> set[str]:
    """Returns the keys that do not apply to a group of this type."""
    return {key for key, types in ONLY_FOR.items() if group.type not in types}


def tpu_of(group: ScaleGroupConfig) -> Tpu | None:
    """Returns the TPU slice that the group's variant names, or None."""
    if (
        group.accelerator_type is not Accelerator.TPU
        and "accelerator_type" in group.model_fields_set
    ):
        return None
    try:
        return tpu(group.accelerator_variant)
    except InvalidValue:
        return None


def gpu_of(group: ScaleGroupConfig) -> Device | None:
    """Returns the GPUs that the group's variant names, or None."""
    if (
        group.accelerator_type is not Accelerator.GPU
        and "accelerator_type" in group.model_fields_set
    ):
        return None
    try:
        return parse_gpu(group.accelerator_variant)
    except InvalidValue:
        return None


def _group(
    config: ClusterConfig, group: ScaleGroupConfig, path: str, origins: dict[str, str]
) -> ScaleGroupConfig:
    defaults = config.defaults
    kind = tpu_of(group)
    ssh = _present("defaults.ssh", defaults.ssh, Ssh).values
    sources = [
        Source(TPU_TABLE, _slice_facts(group, kind)),
        _accelerator(group),
        _machine(group),
        Source(BUILT_IN, _reserves(group, kind)),
        _zones(config, group),
        Source(
            "hosts",
            {"max_slices": len(group.hosts)}
            if group.type is SliceType.MANUAL_VM and group.hosts
            else {},
        ),
        Source("defaults.ssh", {f"ssh_{name}": value for name, value in ssh.items()}),
        _present("defaults.autoscaler", defaults.autoscaler, ScaleGroupConfig),
        _present("defaults.timeouts", defaults.timeouts, ScaleGroupConfig),
        # A group takes only the image from the bootstrap sections.
        *(
            Source(f"{origin}.task_image", {"task_image": boot.task_image})
            for origin, boot in (
                ("bootstrap", config.bootstrap),
                ("defaults.bootstrap", defaults.bootstrap),
            )
            if "task_image" in boot.model_fields_set
        ),
        # Checking whether a machine of a pool is free costs nothing, so the delay is short.
        Source(
            BUILT_IN,
            {"max_stockout_delay": MAX_POOL_DELAY} if group.type is SliceType.MANUAL_VM else {},
        ),
    ]
    filled = _filled(group, path, origins, {"": sources, "resources": _resources(group, kind)})
    for key in meaningless_keys(group):
        origins.pop(f"{path}.{key}")
    return filled


def _slice_facts(group: ScaleGroupConfig, kind: Tpu | None) -> dict[str, Any]:
    if kind is None:
        return {}
    return {"topology": kind.topology} | (
        {"runtime_version": kind.runtime_version} if group.type is SliceType.TPU_VM else {}
    )


def _zones(config: ClusterConfig, group: ScaleGroupConfig) -> Source:
    gcp = config.platform.gcp
    if group.type in IN_CLOUD:
        return Source(
            "platform.gcp.default_zones",
            {"zones": gcp.default_zones} if gcp and gcp.default_zones else {},
        )
    return Source(
        BUILT_IN, {"zones": (MANUAL_ZONE if group.type is SliceType.MANUAL_VM else LOCAL_ZONE,)}
    )


def _accelerator(group: ScaleGroupConfig) -> Source:
    if group.type is SliceType.TPU_VM:
        return Source("type", {"accelerator_type": Accelerator.TPU})
    if tpu_of(group) is not None or gpu_of(group) is not None:
        found = Accelerator.TPU if tpu_of(group) else Accelerator.GPU
        return Source("accelerator_variant", {"accelerator_type": found})
    written = "device" in group.resources.model_fields_set
    device = parse_device(group.resources.device) if written else None
    return Source(
        "resources.device", {"accelerator_type": Accelerator(device.kind.value)} if device else {}
    )


def _machine(group: ScaleGroupConfig) -> Source:
    """Returns the smallest machine type with the group's CPU and memory, for a gce_vm group without
    a machine type.
    """
    resources = group.resources
    if group.type is not SliceType.GCE_VM or not {"cpu", "memory"} <= resources.model_fields_set:
        return Source(MACHINE_TABLE, {})
    found = smallest_machine_type(round(resources.cpu * 1000), resources.memory)
    return Source(MACHINE_TABLE, {"machine_type": found.name} if found else {})


def _reserves(group: ScaleGroupConfig, kind: Tpu | None) -> dict[str, int]:
    """Returns the amounts that the hosts of a cloud machine do not offer. If the user set resources
    below those of the machine, less must be reserved.
    """
    if group.type not in IN_CLOUD:
        return {}
    resources, written = group.resources, group.resources.model_fields_set
    machine = machine_type(group.machine_type) or smallest_machine_type(
        round(resources.cpu * 1000), resources.memory
    )
    table = kind.host_memory_bytes if kind else machine.memory_bytes if machine else 0
    memory = resources.memory if "memory" in written or not table else table
    whole = max(memory, table)
    system = min(whole // 2, _share(whole, MEMORY_SHARE) + SYSTEM_MEMORY)
    reserves = {"reserved_memory": max(0, memory - whole + system)}
    if group.type is SliceType.GCE_VM:
        disk = resources.disk if "disk" in written else CLOUD_DISK
        reserves["reserved_disk"] = min(disk // 2, max(_share(disk, DISK_SHARE), LEAST_DISK))
    return reserves


def _share(size: int, share: float) -> int:
    return int(size * share) // MIB * MIB


def _resources(group: ScaleGroupConfig, kind: Tpu | None) -> list[Source]:
    """Returns the sources of a machine's resources: the accelerator, the machine type, and the
    default disk of cloud machines.
    """
    sources = []
    gpus = gpu_of(group)
    if kind is not None:
        device = Device(kind=DeviceKind.TPU, variant=kind.variant, count=kind.chips_per_host)
        table = {
            "cpu": kind.host_cpu_millis / 1000,
            "memory": kind.host_memory_bytes,
            "device": str(device),
        }
        sources.append(Source(TPU_TABLE, table))
    elif gpus is not None:
        sources.append(Source("accelerator_variant", {"device": str(gpus)}))
    machine = machine_type(group.machine_type) if group.type is SliceType.GCE_VM else None
    if machine is not None:
        sources.append(
            Source(
                MACHINE_TABLE, {"cpu": machine.cpu_millis / 1000, "memory": machine.memory_bytes}
            )
        )
    if group.type in IN_CLOUD:
        sources.append(Source(BUILT_IN, {"disk": CLOUD_DISK}))
    return sources
