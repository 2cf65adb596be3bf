"""Learns how large the slices of a group really are. The autoscaler plans with these sizes instead
of the sizes in the configuration.

A new slice is requested for a gang only if the gang fits on a slice of the learned size. Otherwise
a gang that fits only the size in the configuration would request slice after slice: each becomes
ready, stays idle and is deleted.

The largest of the last sizes counts, because one machine may be broken. After a pause, one more
slice is requested from a group whose slices lack devices, because the driver may work again. The
sizes of a group are forgotten when its configuration changes.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from iris.model.host.resources import AMOUNTS, Resources, format_amounts
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import GroupMemory, SizeFound
from iris.model.slice.status import SliceFacts

#: The sizes (the resources of the hosts) of this many latest slices of a group are remembered.
MOST_SIZES = 3
#: If all remembered slices of a group lacked devices, the group tries another slice after this
#: time.
RETRY_DEVICES_AFTER = timedelta(hours=1)


def record(remembered: GroupMemory, facts: SliceFacts) -> GroupMemory:
    """Returns the memory with the size of a slice that became ready."""
    if facts.offers is None:
        return remembered
    found = SizeFound(slice_id=facts.id, at=facts.changed_at, offers=facts.offers)
    return remembered.model_copy(update={"sizes": (*remembered.sizes, found)[-MOST_SIZES:]})


def planned(group: ScaleGroup, remembered: GroupMemory, now: datetime) -> ScaleGroup:
    """Returns the group with the resources to plan with: the largest learned amount of each
    resource, or the promised amounts if no size is known.
    """
    sizes = [each.offers for each in remembered.sizes if not _is_outdated(each, group, now)]
    if not sizes:
        return group
    largest = Resources(
        cpu_millis=max(each.cpu_millis for each in sizes),
        memory_bytes=max(each.memory_bytes for each in sizes),
        disk_bytes=max(each.disk_bytes for each in sizes),
        device=max(
            (each.device for each in reversed(sizes)),
            key=lambda device: device.count if device else 0,
        ),
    )
    if largest == group.offers:
        return group
    return group.model_copy(update={"resources": largest, "reserved_memory": 0, "reserved_disk": 0})


def on_trial(group: ScaleGroup, remembered: GroupMemory, now: datetime) -> bool:
    """Returns whether all remembered slices lacked devices and `RETRY_DEVICES_AFTER` is over, so
    that one slice is tried.
    """
    return bool(remembered.sizes) and all(
        _is_outdated(each, group, now) for each in remembered.sizes
    )


def retried_at(group: ScaleGroup, remembered: GroupMemory, now: datetime) -> datetime | None:
    """Returns when a group whose slices lacked devices is tried again; None if no such try is
    due.
    """
    if not remembered.sizes or not all(_lacks_devices(each, group) for each in remembered.sizes):
        return None
    until = max(each.at for each in remembered.sizes) + RETRY_DEVICES_AFTER
    return until if until > now else None


def without_missing_devices(remembered: GroupMemory, group: ScaleGroup) -> GroupMemory:
    """Returns the memory without the sizes that lack devices: a new image of the machines may have
    changed them.
    """
    sizes = tuple(each for each in remembered.sizes if not _lacks_devices(each, group))
    return (
        remembered.model_copy(update={"sizes": sizes}) if sizes != remembered.sizes else remembered
    )


def shortfall(promised: ScaleGroup, remembered: GroupMemory, now: datetime) -> str:
    """Describes the resources that the group's slices lack compared with the promised ones; empty
    if they lack none.
    """
    found = planned(promised, remembered, now).offers
    pairs = zip(AMOUNTS, found.vector, promised.offers.vector, strict=True)
    less = {name: (has, should) for name, has, should in pairs if has < should}
    if not less:
        return ""
    has = format_amounts({name: amounts[0] for name, amounts in less.items()}, found.device)
    should = format_amounts(
        {name: amounts[1] for name, amounts in less.items()}, promised.offers.device
    )
    return (
        f"slice {remembered.sizes[-1].slice_id} of scale group {promised.name} offers {has} of the"
        f" promised {should}"
    )


def _is_outdated(size: SizeFound, group: ScaleGroup, now: datetime) -> bool:
    return _lacks_devices(size, group) and size.at + RETRY_DEVICES_AFTER <= now


def _lacks_devices(size: SizeFound, group: ScaleGroup) -> bool:
    return size.offers.device_count < group.offers.device_count


def planned_groups(
    groups: Iterable[ScaleGroup], remembered: dict[str, GroupMemory], now: datetime
) -> list[ScaleGroup]:
    """Returns the groups with the resources to plan with, in their order."""
    return [
        planned(group, remembered[group.name], now) if group.name in remembered else group
        for group in groups
    ]
