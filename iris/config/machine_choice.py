"""Decides which machines a user adds to a configuration or removes from it, and whether a machine
fits its scale group.
"""

import difflib
from collections.abc import Sequence

from iris.config.checks.mixed import machine_groups
from iris.config.group_settings import ScaleGroupConfig
from iris.config.host_list import parse_hosts
from iris.config.new_cluster import MachineReport
from iris.config.schema import ClusterConfig
from iris.model.errors import InvalidValue, NotFound, Rejected
from iris.model.host.resources import Device, parse_device
from iris.model.units import format_bytes

#: The limit on machines that an error lists.
SHOWN = 10


def group_to_join(config: ClusterConfig, given: str | None) -> str:
    """Returns the scale group for new machines: the given one, or the only one.

    Raises:
        InvalidValue: the group does not exist, or none is given and there are several.
        Rejected: the configuration has no machines over SSH.
    """
    groups = machine_groups(config)
    if not groups:
        raise Rejected(
            "the configuration has no scale group of machines over SSH; write one with type:"
            " manual_vm"
        )
    choices = ", ".join(
        f"{name} ({_device_text(_device_of(group))})" for name, group in groups.items()
    )
    if given is None and len(groups) > 1:
        raise InvalidValue(
            "--group", "", "is not given", f"name one of the scale groups: {choices}"
        )
    if given is not None and given not in groups:
        raise InvalidValue(
            "--group", given, "is not a scale group of machines over SSH", f"use one of: {choices}"
        )
    return given or next(iter(groups))


def addresses_in(texts: Sequence[str]) -> tuple[str, ...]:
    """Returns the addresses that these texts stand for. A text is an address or has a range.

    Raises:
        InvalidValue: a text is not an address, or has a login.
    """
    for text in texts:
        if "@" in text or ":" in text:
            raise InvalidValue(
                "MACHINE",
                text,
                "has a login",
                "write the address only: the login is that of the scale group",
            )
    return tuple(each.address for each in parse_hosts(texts, ""))


def machines_to_add(config: ClusterConfig, group: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Returns the addresses of the machines to add. The group may have some of them already.

    Args:
        texts: addresses, also with ranges.

    Raises:
        InvalidValue: a text is not an address, or another group has the machine.
    """
    addresses = addresses_in(texts)
    owners = _owners(config)
    for address in addresses:
        if owners.get(address, group) != group:
            remedy = "remove it there first, with: iris host remove"
            raise InvalidValue(
                "MACHINE", address, f"is a machine of scale group {owners[address]}", remedy
            )
    return addresses


def machines_to_remove(
    config: ClusterConfig, applied: ClusterConfig | None, addresses: Sequence[str]
) -> dict[str, list[str]]:
    """Returns the machines to remove, by group. Machines that an interrupted removal has already
    taken out of the configuration are left out.

    Args:
        applied: the configuration of the running cluster; None if it is not known, or no cluster
            runs.

    Raises:
        NotFound: there is no such machine.
        Rejected: the configuration lacks a machine that is in use, or no machine would remain.
    """
    owners, found = _owners(config), dict[str, list[str]]()
    before = _owners(applied) if applied is not None else {}
    for address in addresses:
        if address in owners:
            found.setdefault(owners[address], []).append(address)
        elif applied is None or address not in before:
            near = difflib.get_close_matches(address, owners, n=1)
            few = ", ".join(list(owners)[:SHOWN]) + (", …" if len(owners) > SHOWN else "")
            hint = (
                f"did you mean {near[0]}?"
                if near
                else f"its machines over SSH are: {few or 'none'}"
            )
            raise NotFound(f"the configuration has no machine {address}; {hint}")
        elif address not in applied.scale_groups[before[address]].retiring_hosts:
            raise Rejected(
                f"the configuration does not list {address}, but the running cluster uses it; add"
                f" it to hosts of scale group {before[address]} again, so that it can be given back"
            )
    if found and config.platform.manual is not None and set(owners) <= set(addresses):
        raise Rejected(
            f"no machine would remain; to end the cluster, run: iris cluster stop {config.name}"
        )
    return found


def misfit(report: MachineReport, group: ScaleGroupConfig) -> str:
    """Returns how the accelerators of a machine differ from those of its group; empty if they do
    not.
    """
    has, wanted = report.device, _device_of(group)
    same = has is None and wanted is None
    if has is not None and wanted is not None:
        same = (has.kind, has.variant.lower(), has.count) == (
            wanted.kind,
            wanted.variant.lower(),
            wanted.count,
        )
    return "" if same else f"has {_device_text(has)}, and the scale group {_device_text(wanted)}"


def lacks(report: MachineReport, group: ScaleGroupConfig) -> list[str]:
    """Returns the resources of its group that a machine lacks. Its host then offers only what it
    has.
    """
    found = []
    if report.cores < group.resources.cpu:
        found.append(
            f"has {report.cores} cores, less than the {group.resources.cpu:g} of its scale group"
        )
    if report.memory_bytes < group.resources.memory:
        has, wanted = format_bytes(report.memory_bytes), format_bytes(group.resources.memory)
        found.append(f"has {has} of memory, less than the {wanted} of its scale group")
    return found


def _owners(config: ClusterConfig) -> dict[str, str]:
    """Returns the scale group of each machine."""
    return {
        address: name for name, group in machine_groups(config).items() for address in group.hosts
    }


def _device_of(group: ScaleGroupConfig) -> Device | None:
    return parse_device(group.resources.device)


def _device_text(device: Device | None) -> str:
    return str(device) if device is not None else "no accelerator"
