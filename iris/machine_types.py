"""Google's predefined machine types: what `n2-standard-4` offers, which is the smallest that offers enough, and on which kind of
disk a machine of a type can start.

Sources: cloud.google.com/compute/docs/general-purpose-machines and .../compute-optimized-machines; of disks the tables of
.../compute/docs/disks/persistent-disks#machine_series_support and .../compute/docs/disks/hyperdisks#machine-type-support.
"""

import re

from pydantic import BaseModel, ConfigDict

from iris.units import GIB

#: Memory per vCPU in GiB, by family and kind.
_GIB_PER_CPU = {
    "n1": {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9},
    "n2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "n2d": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "e2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "c2": {"standard": 4.0},
    "c2d": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
    "c3": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
}
#: What is offered when only an amount is asked for: every size of n2 up to 32 comes in all three kinds.
_SIZES = (2, 4, 8, 16, 32)
#: Which take no Persistent Disk at all: series, of a3 its newest kind only, and whatever has no hypervisor.
_HYPERDISK_ONLY = re.compile(r"(?:n4[ad]?|c4[ad]?|m4|x4|h4d|a4x?|g4)-.*|a3-ultragpu-.*|.*-metal")
_NAME = re.compile(r"([a-z0-9]+)-([a-z]+)-([1-9][0-9]{0,2})")


class MachineType(BaseModel):
    """What a virtual machine of this type has."""

    model_config = ConfigDict(frozen=True)

    name: str
    cpu_millis: int
    memory_bytes: int


def machine_type(name: str) -> MachineType | None:
    """The machine type of this name; None: not one that is known here, which says nothing about whether it exists."""
    match = _NAME.fullmatch(name)
    per_cpu = _GIB_PER_CPU.get(match[1], {}).get(match[2]) if match else None
    if match is None or per_cpu is None:
        return None
    cpus = int(match[3])
    return MachineType(name=name, cpu_millis=cpus * 1000, memory_bytes=int(cpus * per_cpu * GIB))


def smallest_machine_type(cpu_millis: int, memory_bytes: int) -> MachineType | None:
    """The smallest n2 with so many cores and so much memory, the one with less memory first; None: there is none."""
    for cpus in _SIZES:
        for kind in ("highcpu", "standard", "highmem"):
            found = machine_type(f"n2-{kind}-{cpus}")
            if found and found.cpu_millis >= cpu_millis and found.memory_bytes >= memory_bytes:
                return found
    return None


def boot_disk_kind(name: str) -> str:
    """The kind of disk that a machine of this type starts from.

    One that is not asked for is `pd-standard`, which many types refuse, c3, g2 and a3 among them.
    """
    return "hyperdisk-balanced" if _HYPERDISK_ONLY.fullmatch(name) else "pd-balanced"
