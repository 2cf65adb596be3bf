"""Google's machine types with their CPU and memory, and the kinds of their boot disks."""

import re

from iris.model.frozen import Frozen
from iris.model.units import GIB

#: The memory per vCPU in GiB, by the family and the kind of a machine type.
_GIB_PER_CPU = {
    "n1": {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9},
    "n2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "n2d": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "e2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "c2": {"standard": 4.0},
    "c2d": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
    "c3": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
}
#: The numbers of vCPUs from which Iris chooses if the configuration of a scale group states CPU and
#: memory but no machine type. The family n2 has all these sizes in all three kinds.
_SIZES = (2, 4, 8, 16, 32)
#: Matches the machine types that accept no Persistent Disk: some whole series, the newest kind of
#: a3, and bare metal, which has no hypervisor.
_HYPERDISK_ONLY = re.compile(r"(?:n4[ad]?|c4[ad]?|m4|x4|h4d|a4x?|g4)-.*|a3-ultragpu-.*|.*-metal")
_NAME = re.compile(r"([a-z0-9]+)-([a-z]+)-([1-9][0-9]{0,2})")


class MachineType(Frozen):
    """A VM type with its CPU and memory."""

    name: str
    cpu_millis: int
    memory_bytes: int


def machine_type(name: str) -> MachineType | None:
    """Returns the machine type of this name, or None if the table does not have it. Google may have
    it all the same.
    """
    match = _NAME.fullmatch(name)
    per_cpu = _GIB_PER_CPU.get(match[1], {}).get(match[2]) if match else None
    if match is None or per_cpu is None:
        return None
    cpus = int(match[3])
    return MachineType(name=name, cpu_millis=cpus * 1000, memory_bytes=int(cpus * per_cpu * GIB))


def smallest_machine_type(cpu_millis: int, memory_bytes: int) -> MachineType | None:
    """Returns the smallest n2 with at least this CPU and memory, or None if none is large enough.
    Of several kinds of one size, the kind with the least memory counts as the smallest.
    """
    for cpus in _SIZES:
        for kind in ("highcpu", "standard", "highmem"):
            found = machine_type(f"n2-{kind}-{cpus}")
            if found and found.cpu_millis >= cpu_millis and found.memory_bytes >= memory_bytes:
                return found
    return None


def boot_disk_kind(name: str) -> str:
    """Returns the kind of boot disk for a machine of this type.

    Without an explicit kind, Google uses `pd-standard`, which many machine types refuse, for
    example c3, g2 and a3.
    """
    return "hyperdisk-balanced" if _HYPERDISK_ONLY.fullmatch(name) else "pd-balanced"
