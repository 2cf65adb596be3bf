"""Converts `ClusterConfig` to scale groups, scheduling rules and quotas."""

from iris.config.defaults import tpu_of
from iris.config.group_settings import Accelerator, ScaleGroupConfig
from iris.config.quota_settings import QuotaAmounts, QuotaConfig
from iris.config.schema import ClusterConfig
from iris.model.host.accelerators import parse_gpu
from iris.model.host.resources import Resources, parse_device
from iris.model.quotas import NAMED, QuotaRule, QuotaRules
from iris.model.rules import Rules
from iris.model.slice.scale_groups import Pace, ScaleGroup


def scale_groups_of(config: ClusterConfig) -> tuple[ScaleGroup, ...]:
    """Returns the scale groups in the configuration's order. The defaults must have been
    applied.
    """
    return tuple(_scale_group(name, group) for name, group in config.scale_groups.items())


def rules_of(config: ClusterConfig) -> Rules:
    """Returns the scheduling rules of a configuration."""
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
        reserved_memory=group.reserved_memory,
        reserved_disk=group.reserved_disk,
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
        machines=len(group.hosts),
        buffer_slices=group.buffer_slices,
        pace=Pace(**{field: getattr(group, field) for field in Pace.model_fields}),
    )


def _gpu_variant(group: ScaleGroupConfig) -> str:
    """Returns `H100` for `H100x8`. The count is part of the resources."""
    if group.accelerator_type is not Accelerator.GPU:
        return ""
    device = parse_device(group.resources.device)
    return device.variant if device else parse_gpu(group.accelerator_variant).variant


def quotas_of(config: ClusterConfig) -> QuotaRules:
    """Returns the quotas of a configuration. Teams count only if one of them has a quota."""
    has_teams = any(quota.team for quota in config.quotas.values())
    return QuotaRules(
        quotas=tuple(_rule(name, quota) for name, quota in config.quotas.items()),
        limits=config.limits,
        teams=config.teams if has_teams else {},
    )


def _rule(name: str, quota: QuotaConfig) -> QuotaRule:
    return QuotaRule(
        name=name,
        user=quota.user,
        team=quota.team,
        tag=quota.tag,
        bands=quota.bands,
        nominal=amounts(quota),
        cohort=quota.cohort,
        borrow=amounts(quota.borrow),
        lend=amounts(quota.lend),
        waiting=quota.waiting,
    )


def amounts(section: QuotaAmounts) -> dict[str, int]:
    """Returns the amounts that are set, by resource."""
    found = {
        "chips": section.chips,
        "gpus": section.gpus,
        "cpus": round(section.cpus * 1000) if section.cpus is not None else None,
        "memory": section.memory,
        "hosts": section.hosts,
        **{NAMED + name: amount for name, amount in section.limits.items()},
    }
    return {resource: amount for resource, amount in found.items() if amount is not None}
