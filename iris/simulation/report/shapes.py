"""Names the shape of a gang in a few characters."""

from iris.model.host.resources import DeviceKind
from iris.model.units import format_bytes, format_cpu
from iris.simulation.trace import GangTrace


def shape_of(gang: GangTrace) -> str:
    """Returns what a gang requests: `4 x tpu:v5litepod-16`, `gpu:H100:8` or `8 cpu, 32 GiB`.

    Constraints, and the cores and the memory beside a device, are left out.
    """
    asked, device = gang.resources, gang.resources.device
    if device is None:
        parts = [f"{format_cpu(asked.cpu_millis)} cpu"] if asked.cpu_millis else []
        parts += [format_bytes(asked.memory_bytes)] if asked.memory_bytes else []
        each = ", ".join(parts) or "nothing"
    elif device.kind is DeviceKind.TPU:
        each = f"{device.kind}:{device.variant}"  # a TPU host is never divided
    else:
        each = str(device)
    return each if gang.tasks == 1 else f"{gang.tasks:,} x {each}"
