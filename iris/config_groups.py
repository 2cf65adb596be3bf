"""What a configuration says, as those want it whom it concerns: scale groups, and the scheduler's rules."""

from iris.accelerators import parse_gpu
from iris.config_defaults import tpu_of
from iris.config_models import Accelerator, ClusterConfig, ScaleGroupConfig
from iris.placement import Rules
from iris.resources import Resources, parse_device
from iris.scale_groups import Pace, ScaleGroup


def groups(config: ClusterConfig) -> tuple[ScaleGroup, ...]:
    """The scale groups of a configuration whose defaults have been applied, in its order."""
    return tuple(_scale_group(name, group) for name, group in config.scale_groups.items())


def rules(config: ClusterConfig) -> Rules:
    """The scheduler's rules."""
    return Rules(**{field: getattr(config.scheduler, field) for field in Rules.model_fields})


def _scale_group(name: str, group: ScaleGroupConfig) -> ScaleGroup:
    kind = tpu_of(group)
    resources = Resources(
        cpu_millis=round(group.resources.cpu * 1000),
        memory_bytes=group.resources.memory,
        disk_bytes=group.resources.disk,
        device=parse_device(group.resources.device),
    )
    return ScaleGroup(
        name=name,
        type=group.type,
        zones=group.zones,
        hosts=kind.hosts if kind else 1,
        resources=resources,
        attributes=group.attributes,
        topology=group.topology,
        accelerator_variant=kind.variant if kind else _gpu_variant(group),
        runtime_version=group.runtime_version,
        machine_type=group.machine_type,
        preemptible=group.preemptible,
        reservation=group.reservation,
        queued=group.queued,
        accept_cpu_jobs=group.accept_cpu_jobs,
        task_image=group.task_image,
        priority=group.priority,
        min_slices=group.min_slices,
        max_slices=group.max_slices,
        buffer_slices=group.buffer_slices,
        pace=Pace(**{field: getattr(group, field) for field in Pace.model_fields}),
    )


def _gpu_variant(group: ScaleGroupConfig) -> str:
    """`H100` of `H100x8`: how many there are is said by the resources."""
    if group.accelerator_type is not Accelerator.GPU:
        return ""
    device = parse_device(group.resources.device)
    return device.variant if device else parse_gpu(group.accelerator_variant).variant
