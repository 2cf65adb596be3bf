"""Makes the record of a slice's life."""

from collections.abc import Sequence
from datetime import datetime

from iris.model.host.hosts import Host
from iris.model.host.resources import DeviceKind, Resources
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.status import SliceFacts
from iris.usage.prices import machine_of
from iris.usage.records import SliceUse


def slice_use(
    facts: SliceFacts,
    gone_at: datetime,
    group: ScaleGroup | None = None,
    hosts: Sequence[Host] = (),
    *,
    run: str = "",
    open: bool = False,
) -> SliceUse:
    """Returns the record of a slice.

    Args:
        gone_at: when its last machine was gone; the present time if it still exists.
        group: the scale group as it was when the slice was requested; None if the slice's machines
            joined by themselves.
        hosts: the hosts of a slice whose machines joined by themselves.
        run: identifies this life of such a slice, which may join again under the same id.
        open: whether the slice still exists.
    """
    machines = [group.resources] * group.hosts if group else [host.resources for host in hosts]
    return SliceUse(
        id=f"{facts.id}/{run}" if run else facts.id,
        group=facts.group,
        zone=facts.zone,
        machine=machine_of(group) if group else "",
        preemptible=group.preemptible if group else False,
        hosts=len(machines),
        tpu_chips=sum(_devices(each, DeviceKind.TPU) for each in machines),
        gpus=sum(_devices(each, DeviceKind.GPU) for each in machines),
        cpu_millis=sum(each.cpu_millis for each in machines),
        requested_at=facts.requested_at,
        ready_at=facts.ready_at,
        gone_at=max(gone_at, facts.requested_at),
        reason=facts.reason,
        fault=facts.fault,
        open=open,
    )


def _devices(resources: Resources, kind: DeviceKind) -> int:
    device = resources.device
    return device.count if device is not None and device.kind is kind else 0
