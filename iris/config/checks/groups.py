"""Checks the section `scale_groups`: each group by itself, and the groups' names and machines
together.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite, prod

from iris.config.checks.values import gcp_zone, raised_by, repeated
from iris.config.defaults import IN_CLOUD, ONLY_FOR, gpu_of, meaningless_keys, tpu_of
from iris.config.group_settings import Accelerator, PaceSettings, ScaleGroupConfig
from iris.config.schema import ClusterConfig
from iris.config.values import write_duration
from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.host import accelerators, constraints
from iris.model.host.machine_types import MachineType, machine_type
from iris.model.host.resources import ANY_VARIANT, parse_device
from iris.model.slice.scale_groups import SliceType
from iris.model.units import format_bytes, format_cpu

#: The limit on characters of the cluster's prefix and a group's name together. A host's id begins
#: with them and ends with the unique part of the slice's id and the host's number.
_MAX_GROUP_ID = names.MAX_NAME - len("-01234567-w-1535")
_ANY_ZONE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
#: Matches the name of a reservation of the same project, or the path of a reservation that another
#: project shares. Sources: cloud.google.com/tpu/docs/consume-reservation, and
#: reservationAffinity.values in cloud.google.com/compute/docs/reference/rest/v1/instances
_RESERVATION = re.compile(r"(projects/[^/]+/reservations/)?[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def group_problems(config: ClusterConfig, left_out: Iterable[str] = ()) -> Iterator[InvalidValue]:
    """Yields the errors of the scale groups. The defaults must have been applied.

    Args:
        left_out: the names of groups that were left out of the configuration because they have
            other errors. Only their names are checked.
    """
    yield from _group_names(config, [*config.scale_groups, *left_out])
    yield from _addresses(config)
    for name, group in config.scale_groups.items():
        path = f"scale_groups.{name}"
        yield from _size(path, group)
        yield from _place(path, group, config)
        yield from _accelerator(path, group)
        yield from _machine(path, group)
        yield from _reservation(path, group)
        yield from _keys(path, group)
        yield from longest_delay_problems(path, group)


def longest_delay_problems(path: str, pace: PaceSettings) -> Iterator[InvalidValue]:
    for first, most in (("backoff", "max_backoff"), ("stockout_delay", "max_stockout_delay")):
        start, end = getattr(pace, first), getattr(pace, most)
        if end < start:
            problem = f"is less than {first} ({write_duration(start)})"
            yield InvalidValue(
                f"{path}.{most}", write_duration(end), problem, f"increase it or reduce {first}"
            )


def _group_names(config: ClusterConfig, groups: Sequence[str]) -> Iterator[InvalidValue]:
    spelled: dict[str, str] = {}
    for name in groups:
        path = f"scale_groups.{name}"
        refused = list(raised_by(names.check_name, path, name))
        yield from refused
        if refused:
            continue
        machines = names.slice_id(config.slice_prefix, name, "")
        if machines in spelled:
            problem = (
                f"gives machines the same names as the group {spelled[machines]!r}: {machines}…"
            )
            yield InvalidValue(
                path,
                name,
                problem,
                "use names that differ in letters or digits, not only in case or punctuation",
            )
        spelled.setdefault(machines, name)
        if len(machines) > _MAX_GROUP_ID:
            problem = f"makes the names of machines, {machines}…, too long"
            yield InvalidValue(
                path, name, problem, f"use at most {_MAX_GROUP_ID} characters, including the prefix"
            )


def _addresses(config: ClusterConfig) -> Iterator[InvalidValue]:
    owners: dict[str, str] = {}
    for name, group in config.scale_groups.items():
        for address in group.hosts:
            if address in owners:
                problem = (
                    "is listed twice"
                    if owners[address] == name
                    else f"is also a host of the group {owners[address]!r}"
                )
                yield InvalidValue(
                    f"scale_groups.{name}.hosts", address, problem, "list each machine once"
                )
            owners.setdefault(address, name)


def _size(path: str, group: ScaleGroupConfig) -> Iterator[InvalidValue]:
    most = group.max_slices
    if group.min_slices > most:
        remedy = "increase it or reduce min_slices"
        yield InvalidValue(
            f"{path}.max_slices", most, f"is less than min_slices ({group.min_slices})", remedy
        )
    if group.buffer_slices > most:
        remedy = "increase it or reduce buffer_slices"
        yield InvalidValue(
            f"{path}.max_slices",
            most,
            f"is less than buffer_slices ({group.buffer_slices})",
            remedy,
        )
    if group.type is SliceType.MANUAL_VM and group.hosts and most > len(group.hosts):
        problem = f"is more than the number of hosts ({len(group.hosts)})"
        yield InvalidValue(f"{path}.max_slices", most, problem, "remove it: each host is a slice")
    for address in group.retiring_hosts:
        if address not in group.hosts:
            yield InvalidValue(
                f"{path}.retiring_hosts",
                address,
                "is not one of the group's hosts",
                "remove it, or add it to hosts",
            )
    yield from repeated(f"{path}.retiring_hosts", group.retiring_hosts, "machine")
    staying = len(set(group.hosts) - set(group.retiring_hosts))
    if group.retiring_hosts and group.min_slices > staying:
        problem = f"is more than the number of hosts that stay ({staying})"
        yield InvalidValue(
            f"{path}.min_slices",
            group.min_slices,
            problem,
            "reduce it, or remove a machine from retiring_hosts",
        )


def _place(path: str, group: ScaleGroupConfig, config: ClusterConfig) -> Iterator[InvalidValue]:
    platform = config.platform.kind
    if group.type in IN_CLOUD and platform != "gcp":
        remedy = "use manual_vm or local_vm, or platform.gcp"
        yield InvalidValue(
            f"{path}.type", group.type, f"is not available on the platform {platform}", remedy
        )
    elif group.type is SliceType.LOCAL_VM and platform != "local":
        remedy = "iris cluster start --local runs any configuration locally"
        yield InvalidValue(
            f"{path}.type", group.type, f"is not available on the platform {platform}", remedy
        )
    elif group.type is SliceType.MANUAL_VM and platform == "local":
        yield InvalidValue(
            f"{path}.type",
            group.type,
            "is not available on the platform local",
            "use local_vm, or platform.manual",
        )
    if not group.zones:
        where = " or in platform.gcp.default_zones" if platform == "gcp" else ""
        yield InvalidValue(
            f"{path}.zones", "", "has no zone", f"set one here{where}, such as europe-west4-b"
        )
    for zone in group.zones if "zones" in group.model_fields_set else ():
        if group.type in IN_CLOUD:
            yield from gcp_zone(f"{path}.zones", zone)
        elif _ANY_ZONE.fullmatch(zone) is None:
            yield InvalidValue(
                f"{path}.zones",
                zone,
                "is not a zone",
                "use lower-case letters, digits and dashes, such as lab-a",
            )
    yield from repeated(f"{path}.zones", group.zones)
    if group.type is SliceType.MANUAL_VM and not group.hosts:
        yield InvalidValue(
            f"{path}.hosts", "", "has no machines", "list the addresses of the machines"
        )


def _accelerator(path: str, group: ScaleGroupConfig) -> Iterator[InvalidValue]:
    """Yields the first contradiction among accelerator type, variant, topology and device."""
    variant, written = group.accelerator_variant, group.accelerator_type
    kind, gpus = tpu_of(group), gpu_of(group)
    field = f"{path}.accelerator_variant"
    if group.type is SliceType.TPU_VM and written is not Accelerator.TPU:
        yield InvalidValue(
            f"{path}.accelerator_type", written, "is not possible for a tpu_vm", "remove it"
        )
    elif group.type is SliceType.GCE_VM and written is Accelerator.TPU:
        yield InvalidValue(
            field, variant, "is a TPU; a gce_vm group cannot have one", "use the type tpu_vm"
        )
    elif (variant or group.type is SliceType.TPU_VM) and kind is None and gpus is None:
        likely_gpu = written is Accelerator.GPU or (
            written is Accelerator.CPU and "-" not in variant
        )
        check = accelerators.parse_gpu if likely_gpu else accelerators.tpu
        unknown = list(raised_by(lambda at, value: check(value, at), field, variant))
        yield from unknown or [
            InvalidValue(
                field, variant, f"is not of accelerator_type {written}", "remove accelerator_type"
            )
        ]
    elif gpus is not None and (gpus.variant == ANY_VARIANT or "," in gpus.variant):
        yield InvalidValue(
            field, variant, "is not one variant", "set the variant of the machines, such as H100x8"
        )
    elif kind is not None and kind.hosts > 1 and group.type is SliceType.MANUAL_VM:
        problem = f"is a slice of {kind.hosts} hosts; a slice of a manual_vm group is one machine"
        yield InvalidValue(field, variant, problem, "use a variant with one host")
    else:
        yield from _device(path, group, kind)
        yield from _topology(path, group, kind)


def _device(
    path: str, group: ScaleGroupConfig, kind: accelerators.Tpu | None
) -> Iterator[InvalidValue]:
    """Yields an error if `resources.device` differs from the group's accelerator."""
    device = parse_device(group.resources.device)
    field, shown, remedy = (
        f"{path}.resources.device",
        group.resources.device,
        "remove it: it follows from accelerator_variant",
    )
    found = device.kind.value if device else "cpu"
    if found != group.accelerator_type:
        if "device" in group.resources.model_fields_set:
            yield InvalidValue(
                field,
                shown,
                f"does not match the group's accelerator_type ({group.accelerator_type})",
                remedy,
            )
        else:
            fix = "add accelerator_variant, such as H100x8"
            yield InvalidValue(
                f"{path}.accelerator_type", group.accelerator_type, "gives no variant or count", fix
            )
        return
    if device is None or "device" not in group.resources.model_fields_set:
        return
    follows = parse_device(f"tpu:{kind.variant}:{kind.chips_per_host}") if kind else gpu_of(group)
    if follows is not None and (device.variant.lower(), device.count) != (
        follows.variant.lower(),
        follows.count,
    ):
        yield InvalidValue(field, shown, f"does not match accelerator_variant ({follows})", remedy)


def _topology(
    path: str, group: ScaleGroupConfig, kind: accelerators.Tpu | None
) -> Iterator[InvalidValue]:
    if not group.topology or group.topology == (kind.topology if kind else ""):
        return
    field = f"{path}.topology"
    if kind is None:
        yield InvalidValue(
            field,
            group.topology,
            "is set without a TPU variant",
            "add accelerator_variant, or remove it",
        )
    elif re.fullmatch("[1-9][0-9]{0,3}(x[1-9][0-9]{0,3}){1,2}", group.topology) is None:
        yield InvalidValue(
            field, group.topology, "is not a topology", f"use one such as {kind.topology}"
        )
    elif prod(map(int, group.topology.split("x"))) != kind.chips or group.topology.count(
        "x"
    ) != kind.topology.count("x"):
        problem = f"is not a topology of {kind.variant}, which has {kind.chips} chips"
        yield InvalidValue(field, group.topology, problem, f"use {kind.topology}, or remove it")


def _machine(path: str, group: ScaleGroupConfig) -> Iterator[InvalidValue]:
    """Checks the size of the machines. A gce_vm group needs a machine type or resources, because
    each determines the other.
    """
    resources = group.resources
    for name in ("cpu", "memory"):
        if not getattr(resources, name):
            yield InvalidValue(
                f"{path}.resources.{name}", 0, "is zero", "set the amount of each machine"
            )
    for key, there in (("reserved_memory", resources.memory), ("reserved_disk", resources.disk)):
        if (reserved := getattr(group, key)) >= there and key in group.model_fields_set:
            problem = f"leaves nothing of {format_bytes(there)} for tasks"
            yield InvalidValue(f"{path}.{key}", format_bytes(reserved), problem, "use less")
    if group.type is not SliceType.GCE_VM:
        return
    known = machine_type(group.machine_type)
    lacking = [name for name in ("cpu", "memory") if name not in resources.model_fields_set]
    if group.machine_type and known is None and lacking:
        remedy = f"add resources with {' and '.join(lacking)}"
        yield InvalidValue(
            f"{path}.machine_type", group.machine_type, "has an unknown size", remedy
        )
    elif not group.machine_type and lacking:
        yield InvalidValue(
            f"{path}.machine_type",
            "",
            "is required for a gce_vm",
            "set one, such as n2-standard-8, or add resources",
        )
    elif not group.machine_type:
        shown = (
            f"{format_cpu(round(resources.cpu * 1000))} cpu, {format_bytes(resources.memory)}"
            " memory"
        )
        yield InvalidValue(
            f"{path}.resources", shown, "is more than any n2 machine has", "set a machine_type"
        )
    elif known is not None:
        yield from _beyond(path, group, known)


def _beyond(path: str, group: ScaleGroupConfig, known: MachineType) -> Iterator[InvalidValue]:
    """Yields an error for each resource that exceeds the group's machine type."""
    if round(group.resources.cpu * 1000) > known.cpu_millis:
        problem = f"is more than a {known.name} has ({format_cpu(known.cpu_millis)})"
        yield InvalidValue(
            f"{path}.resources.cpu",
            f"{group.resources.cpu:g}",
            problem,
            "remove it, or set a larger machine_type",
        )
    if group.resources.memory > known.memory_bytes:
        problem = f"is more than a {known.name} has ({format_bytes(known.memory_bytes)})"
        shown = format_bytes(group.resources.memory)
        yield InvalidValue(
            f"{path}.resources.memory", shown, problem, "remove it, or set a larger machine_type"
        )


def _reservation(path: str, group: ScaleGroupConfig) -> Iterator[InvalidValue]:
    """Yields the first reason why the group cannot use the capacity of its reservation."""
    name, field = group.reservation, f"{path}.reservation"
    if not name or group.type not in IN_CLOUD:
        return
    if _RESERVATION.fullmatch(name) is None:
        remedy = (
            "use NAME, or projects/OWNER/reservations/NAME for a reservation that another project"
            " shares"
        )
        yield InvalidValue(field, name, "is not a valid name of a reservation", remedy)
    elif group.preemptible:
        yield InvalidValue(
            field, name, "has no preemptible capacity", "remove preemptible or the reservation"
        )
    elif group.type is SliceType.TPU_VM and not group.queued:
        problem = "is possible only for queued slices"
        yield InvalidValue(field, name, problem, "add queued: true")


def _keys(path: str, group: ScaleGroupConfig) -> Iterator[InvalidValue]:
    """Yields errors for keys that have no effect in the group, and for attributes that its hosts
    cannot share.
    """
    for name in sorted(meaningless_keys(group) & group.model_fields_set):
        remedy = f"remove it: only {' or '.join(sorted(ONLY_FOR[name]))} groups have it"
        yield InvalidValue(
            f"{path}.{name}", getattr(group, name), f"does not apply to a {group.type}", remedy
        )
    for key, value in group.attributes.items():
        yield from raised_by(
            lambda at, name: constraints.check_key(name, at), f"{path}.attributes.{key}", key
        )
        if key in (constraints.TPU_NAME, constraints.TPU_WORKER_ID):
            yield InvalidValue(
                f"{path}.attributes.{key}",
                value,
                "differs from host to host",
                "remove it: Iris sets it",
            )
        if isinstance(value, float) and not isfinite(value):
            yield InvalidValue(
                f"{path}.attributes.{key}",
                value,
                "is not a finite number",
                "use a finite number, or text in quotes",
            )
