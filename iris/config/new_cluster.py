"""Writes the first configuration of a cluster of existing machines: groups the machines, and
renders the file with comments.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from iris.config.host_list import Login
from iris.config.values import write_size
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.host.accelerators import GPU_VARIANTS, tpu
from iris.model.host.resources import Device, DeviceKind, is_partition
from iris.model.units import GIB, MIB

#: The least memory of a machine in a group, as a share of the memory of the group's largest
#: machine. Equal machines differ a little, because firmware and kernels take different amounts.
ALIKE = 0.9
#: The priority of groups with accelerators. Jobs that need no accelerator use groups of priority
#: 100 first.
LATER = 200
#: Matches values that YAML reads as text without quotes.
_PLAIN = re.compile(r"[A-Za-z~/][A-Za-z0-9._~/@-]*")
V = TypeVar("V")
_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "~", "y", "n")


class MachineReport(Frozen):
    """The hardware that a machine reports."""

    login: Login
    cores: int
    memory_bytes: int
    #: The free space of the file system with the home directory.
    disk_bytes: int
    device: Device | None = None


class NewCluster(Frozen):
    """The user's choices for the new cluster."""

    name: str
    #: The URL prefix of bundles, logs and results. If it is empty, the user must write it into the
    #: file.
    store: str = ""
    key_file: str = ""
    jump_host: str = ""
    known_hosts: str = ""


class MachineGroup(Frozen):
    """A group of equal machines. The resources of the group are those of its smallest machine."""

    name: str
    machines: tuple[MachineReport, ...]

    @property
    def first(self) -> MachineReport:
        return self.machines[0]


def group_machines(machines: Sequence[MachineReport]) -> tuple[MachineGroup, ...]:
    """Groups the machines by login, cores, accelerators and about the same memory.

    Each machine is in one group. Groups without accelerators come first. Otherwise groups and
    machines keep the order of the list.
    """
    groups: list[list[MachineReport]] = []
    for machine in machines:
        alike = next((group for group in groups if _alike(group, machine)), None)
        if alike is None:
            groups.append([machine])
        else:
            alike.append(machine)
    groups.sort(key=lambda group: group[0].device is not None)
    names = _names([group[0] for group in groups])
    return tuple(
        MachineGroup(name=name, machines=tuple(group))
        for name, group in zip(names, groups, strict=True)
    )


def render_config(
    new: NewCluster, machines: Sequence[MachineReport], unused: Mapping[str, str]
) -> str:
    """Returns the text of the configuration file. If `new.store` is set, a cluster can be started
    with it unchanged.

    Args:
        unused: the machines that are not in the cluster, each with the reason. A comment lists
            them.
    """
    groups = group_machines(machines)
    user = _most([machine.login.user for machine in machines])
    port = _most([machine.login.port for machine in machines])
    lines = [
        "# Written by iris cluster init. Reference: docs/configuration.md, guide: docs/manual.md.",
        f"name: {as_yaml(new.name)}",
        "",
        "platform:",
        "  manual: {}",
        "",
        "defaults:",
        "  ssh:",
        f"    user: {as_yaml(user)}",
        *([f"    port: {port}"] if port != 22 else []),
        *([f"    key_file: {as_yaml(new.key_file)}"] if new.key_file else []),
        *([f"    jump_host: {as_yaml(new.jump_host)}"] if new.jump_host else []),
        "    # Machines whose key is not in this file are refused.",
        f"    known_hosts: {as_yaml(new.known_hosts or '~/.ssh/known_hosts')}",
        "    connect_timeout: 10s",
        "",
        "controller:",
        (
            "  # Bundles, logs and results: s3://BUCKET/PATH, gs://BUCKET/PATH, or file:///PATH of"
            " a directory that all machines"
        ),
        "  # share with this one, at the same path.",
        f"  bundle_prefix: {as_yaml(new.store)}",
        "  # The control plane runs on the machine that starts the cluster. It needs no open port.",
        "  local: {}",
        "",
        "scale_groups:",
    ]
    plain = any(group.first.device is None for group in groups)
    for group in groups:
        lines += _group(group, user, port, others=plain)
    if unused:
        lines += ["", "# Machines that could not be used when this file was written:"]
        lines += [f"#   {host}: {_comment(reason)}" for host, reason in unused.items()]
    return "\n".join([*lines, ""])


def _alike(group: list[MachineReport], machine: MachineReport) -> bool:
    first, sizes = group[0], [each.memory_bytes for each in (*group, machine)]
    same = (first.login.user, first.login.port, first.cores, first.device)
    return same == (machine.login.user, machine.login.port, machine.cores, machine.device) and min(
        sizes
    ) >= ALIKE * max(sizes)


def _names(firsts: Sequence[MachineReport]) -> list[str]:
    """Returns a name for each group: its accelerators. Groups of the same name get their cores and
    a number, too.
    """

    def kind(machine: MachineReport) -> str:
        device = machine.device
        if device is None:
            return "cpu"
        return (
            device.variant if device.kind is DeviceKind.TPU else f"{device.variant}x{device.count}"
        )

    names = [re.sub(r"[^a-z0-9]+", "-", kind(each).lower()).strip("-") for each in firsts]
    names = _distinct(
        names, lambda position, _: f"{names[position]}-{firsts[position].cores}-cores"
    )
    return _distinct(names, lambda position, number: f"{names[position]}-{number}")


def _distinct(names: list[str], longer: Callable[[int, int], str]) -> list[str]:
    """Returns the names. Names that occur several times are replaced with longer ones.

    Args:
        longer: returns a longer name for a position and a number from 1.
    """
    seen, found = Counter[str](), []
    for position, name in enumerate(names):
        seen[name] += 1
        found.append(longer(position, seen[name]) if names.count(name) > 1 else name)
    return found


def _group(group: MachineGroup, user: str, port: int, *, others: bool) -> list[str]:
    first, count = group.first, len(group.machines)
    addresses = [machine.login.address for machine in group.machines]
    cores, memory, disk = (
        min(machine.cores for machine in group.machines),
        min(machine.memory_bytes for machine in group.machines),
        min(machine.disk_bytes for machine in group.machines),
    )
    lines = [
        f"  {group.name}:",
        "    type: manual_vm",
        "    hosts:",
        *(f"      - {as_yaml(each)}" for each in addresses),
    ]
    if first.login.user != user:
        lines.append(f"    ssh_user: {as_yaml(first.login.user)}")
    if first.login.port != port:
        lines.append(f"    ssh_port: {first.login.port}")
    lines += [
        (
            "    # All machines are hosts at all times. With a lower number, the others become"
            " hosts when jobs need them."
        ),
        f"    min_slices: {count}",
    ]
    device = first.device
    variant = _variant(device) if device is not None else ""
    if variant:
        lines.append(f"    accelerator_variant: {variant}")
    if device is not None:
        lines += [
            (
                "    # Jobs that request no accelerator also run"
                f" here{', after the groups without' if others else ''}; false keeps them away."
            ),
            "    accept_cpu_jobs: true",
            f"    priority: {LATER}",
        ]
    lines += [
        "    # Of each machine. The hosts report the exact amounts when they start.",
        "    resources:",
        f"      cpu: {cores}",
        f"      memory: {_size(memory)}",
        f"      disk: {_size(disk)}",
    ]
    if device is not None and not variant:
        lines.append(f"      device: {as_yaml(f'{device.kind}:{device.variant}:{device.count}')}")
    return lines


def _variant(device: Device) -> str:
    """Returns the device's name for `accelerator_variant`; empty if it has none."""
    if device.kind is DeviceKind.TPU:
        try:
            return tpu(device.variant).variant
        except InvalidValue:
            return ""
    known = device.variant in GPU_VARIANTS or is_partition(device.variant)
    return f"{device.variant}x{device.count}" if known else ""


def _size(size: int) -> str:
    unit = GIB if size >= GIB else MIB
    return str(write_size(size - size % unit))


def as_yaml(value: str) -> str:
    """Returns the value as YAML, without quotes if it needs none."""
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    url = re.fullmatch(r"[a-z0-9]+://[A-Za-z0-9._~/-]+", value)
    number = re.fullmatch(r"[0-9]+(\.[0-9]+){3}", value)
    return value if plain or url or number else json.dumps(value, ensure_ascii=False)


def _comment(text: str) -> str:
    """Returns the text as one line, without characters that YAML forbids even in comments."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _most(values: Sequence[V]) -> V:
    return Counter(values).most_common(1)[0][0]
