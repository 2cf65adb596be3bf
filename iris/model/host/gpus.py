"""The NVIDIA GPUs of one machine and their faults, as `nvidia-smi` and the kernel's log report
them.

The UUID identifies a GPU. The index does not: it changes when a GPU is lost or added, or found in
another order at a boot. A GPU in MIG mode is not a device itself; its instances are.
"""

import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from iris.model.frozen import Frozen
from iris.model.host.accelerators import GPU_VARIANTS
from iris.model.host.resources import Device, DeviceKind, is_partition
from iris.model.units import GIB, MIB

logger = logging.getLogger(__name__)

#: Lists the GPUs, one in each line, in the form that `parse_gpus` reads. It needs driver 450 or
#: later.
NVIDIA_SMI = (
    "nvidia-smi",
    "--query-gpu=index,uuid,name,memory.total,pci.bus_id,mig.mode.current",
    "--format=csv,noheader,nounits",
)
#: Lists the GPUs with their MIG instances.
NVIDIA_SMI_LIST = ("nvidia-smi", "-L")
#: Lists the use of the GPUs, one in each line, in the form that `parse_gpu_use` reads.
NVIDIA_SMI_USE = (
    "nvidia-smi",
    "--query-gpu=uuid,utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)

#: Words in the names of GPUs that do not help to distinguish kinds of GPUs.
_MAKERS = {"NVIDIA", "TESLA", "GEFORCE", "QUADRO", "GRAPHICS", "DEVICE"}
#: Matches a GPU in the output of `nvidia-smi -L`.
_LISTED_GPU = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)")
#: Matches a MIG instance of a GPU in the output of `nvidia-smi -L`. Before driver 470, the UUID of
#: an instance was MIG-GPU-<UUID of the GPU>/<instance>/<compute instance>. Source:
#: docs.nvidia.com/datacenter/tesla/mig-user-guide, "Device Enumeration"
_LISTED_INSTANCE = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")

#: The exit codes with which `nvidia-smi` lists all GPUs. 14 means that the information stored on a
#: GPU (infoROM) is corrupted; the GPU works.
_LISTS_ALL = (0, 14)
#: The exit codes of `nvidia-smi` for a GPU that is lost or needs a reset. Source:
#: docs.nvidia.com/deploy/nvml-api, nvmlReturn_t
_LOST = (15, 16)
#: Matches the message of `nvidia-smi` about a GPU that is lost or needs a reset.
_LOST_TEXT = re.compile(
    r"Unable to determine the device handle for GPU.*|.*\bGPU is lost\b.*|.*has fallen off the"
    r" bus.*|.*\bGPU requires reset\b.*"
)


#: A GPU with less used memory than this has no program on it: a program's CUDA context alone takes
#: several hundred MiB, and the driver takes only a few MiB.
LEAST_MEMORY = 100 * MIB
#: The name of the fault of an attempt that fails or is not started because the host has a broken
#: GPU.
GPU_FAULT = "gpu-broken"
#: The limit on characters of the description of a GPU's fault, because the status and the list of
#: hosts show the description.
MOST = 300

#: The Xid messages of the driver after which a GPU must be reset or its machine restarted. The
#: table does not contain messages that a program can cause (13, 31, 43, 45), that concern one
#: program only (94), that concern a link, because the device at the other end can cause them (74,
#: 136, 144 to 150, 155), or that report a repair which waits for the next reset (156). Source:
#: docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, immediate actions RESET_GPU and
#: RESTART_BM, and Xid 48
BROKEN_XIDS: Mapping[int, str] = {
    46: "the GPU stopped processing",
    48: "an uncorrectable memory error",
    62: "its micro-controller halted",
    64: "a defective row of its memory could not be replaced",
    79: "the GPU has fallen off the bus",
    95: "an uncontained memory error",
    109: "a context switch timed out",
    110: "a security fault",
    119: "its system processor does not answer",
    120: "an error of its system processor",
    140: "an unrecovered memory error",
    143: "the GPU could not be initialised",
    158: "a fatal timeout",
}
#: The number of the Xid message that contains the driver's recommended action, and the pattern that
#: matches the action: `154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot
#: Required)`.
_RECOVERY, _ACTION = (
    154,
    re.compile(
        r"to 0x[0-9a-f]+ \(((?:GPU Reset|Node Reboot) Required|Drain and Reset)\)", re.IGNORECASE
    ),
)
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),?(.*)")


class Gpu(Frozen):
    """A GPU, or a MIG instance, that a task can use."""

    #: The UUID: GPU-… or MIG-…. CUDA and container engines accept it as the device's name.
    uuid: str
    #: The number of the GPU, in the order of the PCI bus.
    index: int
    #: The name that the driver gives: `NVIDIA H100 80GB HBM3`.
    name: str
    #: The name with which users request it: `H100`, or `A100-1g.10gb` for a MIG instance.
    variant: str
    memory_bytes: int = 0

    @property
    def is_instance(self) -> bool:
        return self.uuid.startswith("MIG-")

    def __str__(self) -> str:
        return (
            f"{self.variant} {self.uuid}" if self.is_instance else f"GPU {self.index} ({self.uuid})"
        )


class Reading(NamedTuple):
    """The GPUs that a machine lists at one time."""

    gpus: tuple[Gpu, ...] = ()
    #: Why the list is incomplete; empty if it is complete.
    problem: str = ""
    #: True if `nvidia-smi` reports a lost GPU. If `lost` is False although there is a `problem`,
    #: `nvidia-smi` itself may have failed, and the next reading may succeed.
    lost: bool = False


def read(exit_code: int, queried: str, listed: str = "") -> Reading:
    """Parses the outputs of `NVIDIA_SMI` and `NVIDIA_SMI_LIST`.

    Args:
        exit_code: the exit code of the first command that failed; 0 if none did.
        queried: the output of `NVIDIA_SMI`, with its errors.
        listed: the output of `NVIDIA_SMI_LIST`, with its errors.
    """
    gpus = parse_gpus(queried, listed)
    if found := _LOST_TEXT.search(queried) or _LOST_TEXT.search(listed):
        return Reading(gpus, f"nvidia-smi reports: {found[0].strip()}", lost=True)
    if exit_code in _LOST:
        return Reading(gpus, f"nvidia-smi reports a lost GPU (exit code {exit_code})", lost=True)
    if exit_code not in _LISTS_ALL:
        said = " ".join((queried or listed).split())
        return Reading(
            gpus, f"nvidia-smi fails with exit code {exit_code}{': ' if said else ''}{said[:200]}"
        )
    return Reading(gpus)


def parse_gpus(queried: str, listed: str = "") -> tuple[Gpu, ...]:
    """Parses lines of `index, uuid, name, memory in MiB[, bus[, MIG mode]]`. All other lines are
    messages and are skipped.

    Args:
        queried: the output of `NVIDIA_SMI`.
        listed: the output of `NVIDIA_SMI_LIST`, which has the instances of GPUs in MIG mode.
    """
    instances = _instances(listed)
    gpus: list[Gpu] = []
    for line in queried.splitlines():
        index, uuid, name, memory, _, mig = ([cell.strip() for cell in line.split(",")] + [""] * 6)[
            :6
        ]
        if not index.isdecimal() or not uuid.startswith("GPU-"):
            continue
        size = int(memory) * MIB if memory.isdecimal() else 0
        gpu = Gpu(
            uuid=uuid,
            index=int(index),
            name=name,
            variant=gpu_variant(name),
            memory_bytes=size,
        )
        if mig == "Enabled" or uuid in instances:
            gpus += (_instance(gpu, profile, each) for profile, each in instances.get(uuid, ()))
        else:
            gpus.append(gpu)
    return tuple(gpus)


class GpuUse(NamedTuple):
    """The use of one GPU at one time."""

    #: The percentage of the driver's last sample period, of at most a second, in which the GPU
    #: computed.
    percent: float
    memory_bytes: int
    memory_total: int

    @property
    def in_use(self) -> bool:
        """Whether a program computes on the GPU or holds memory on it."""
        return self.percent > 0 or self.memory_bytes >= LEAST_MEMORY


def parse_gpu_use(queried: str) -> dict[str, GpuUse]:
    """Parses lines of `uuid, percent, used MiB, total MiB`. Returns the use by UUID. Skips GPUs of
    which the driver does not know the use, such as those in MIG mode: `[N/A]`.
    """
    found = {}
    for line in queried.splitlines():
        uuid, *numbers = [cell.strip() for cell in line.split(",")]
        if uuid.startswith("GPU-") and len(numbers) == 3 and all(map(str.isdecimal, numbers)):
            percent, used, total = map(int, numbers)
            found[uuid] = GpuUse(float(percent), used * MIB, total * MIB)
    return found


def gpu_variant(name: str) -> str:
    """Returns `H100` for `NVIDIA H100 80GB HBM3`. Unknown GPUs keep the rest of their name: `A10`,
    `RTX3090`.
    """
    words = [word for word in re.split(r"[^A-Z0-9]+", name.upper()) if word and word not in _MAKERS]
    together = [first + second for first, second in itertools.pairwise(words)]  # such as RTX 4090
    known = next((word for word in words + together if word in GPU_VARIANTS), None)
    return (
        known
        or "".join(word for word in words if not re.fullmatch(r"\d+GB|HBM\d\w*|PCIE|SXM\d*", word))
        or "unknown"
    )


def device_of(gpus: Iterable[Gpu]) -> Device | None:
    """Returns the device that a host with these GPUs offers. If the GPUs are of several kinds, the
    host offers only the most frequent kind.
    """
    kinds = Counter(gpu.variant for gpu in gpus)
    if not kinds:
        return None
    (variant, count), *others = kinds.most_common()
    if others:
        logger.warning(
            "this host has several kinds of GPU, and offers only its %s: %s", variant, dict(kinds)
        )
    return Device(kind=DeviceKind.GPU, variant=variant, count=count)


def offered(gpus: Sequence[Gpu], device: Device | None) -> tuple[Gpu, ...]:
    """Returns the GPUs that belong to the device that a host offers, in the order of the bus.

    If the operator gave the device an unknown variant, all GPUs belong to it.
    """
    if device is None or device.kind is not DeviceKind.GPU:
        return ()
    alike = tuple(gpu for gpu in gpus if gpu.variant.lower() == device.variant.lower())
    known = device.variant.upper() in GPU_VARIANTS or is_partition(device.variant)
    return alike or (() if known else tuple(gpus))


def xid_fault(lines: Iterable[str]) -> str:
    """Returns the fault in the first Xid message of a broken GPU; empty if there is none."""
    for match in filter(None, map(_XID.search, lines)):
        bus, xid, text = match[1], int(match[2]), match[3]
        why = BROKEN_XIDS.get(xid, "")
        if xid == _RECOVERY and (action := _ACTION.search(text)):
            why = action[1].lower()
        if why:
            return f"Xid {xid} of the GPU at {bus}: {why}"
    return ""


def missing_fault(expected: Sequence[Gpu], reading: Reading | None) -> str:
    """Returns why the host lacks GPUs that it had before; empty if it has all of them.

    Args:
        reading: the GPUs that are listed now; None if `nvidia-smi` is missing.
    """
    if reading is None:
        return "there is no nvidia-smi any more"
    there = {gpu.uuid for gpu in reading.gpus}
    gone = [gpu for gpu in expected if gpu.uuid not in there]
    if not gone:
        return reading.problem[:MOST]
    if len(gone) == len(expected):
        return (reading.problem or "nvidia-smi lists none of its GPUs")[:MOST]
    named = ", ".join(map(str, gone[:3])) + (" …" if len(gone) > 3 else "")
    has = f"has {len(expected) - len(gone)} of {len(expected)} GPUs: {named} missing"
    return (f"{has}; {reading.problem}" if reading.problem else has)[:MOST]


def start_fault(reading: Reading, device: Device | None) -> str:
    """Returns why a machine's GPUs cannot be used when its agent starts; empty if they can.

    A machine whose driver does not work may be a machine without GPUs, unless its operator has set
    the device.

    Args:
        device: the device that the operator has set; None if the driver's list counts.
    """
    if reading.lost:
        return reading.problem[:MOST]
    if device is None or device.kind is not DeviceKind.GPU:
        return ""
    alike = len(offered(reading.gpus, device))
    if alike >= device.count:
        return ""
    others = sorted(
        {gpu.variant for gpu in reading.gpus if gpu.variant.lower() != device.variant.lower()}
    )
    has = f"has {alike} of {device.count} {device.variant}" + (
        f", and {', '.join(others)}" if others else ""
    )
    return (f"{has}; {reading.problem}" if reading.problem else has)[:MOST]


def _instances(listed: str) -> dict[str, list[tuple[str, str]]]:
    """Returns the profile and the UUID of each MIG instance, by the UUID of its GPU."""
    found: dict[str, list[tuple[str, str]]] = {}
    gpu = ""
    for line in listed.splitlines():
        if match := _LISTED_GPU.match(line):
            gpu = match[1]
        elif (match := _LISTED_INSTANCE.match(line)) and gpu:
            found.setdefault(gpu, []).append((match[1], match[2]))
    return found


def _instance(gpu: Gpu, profile: str, uuid: str) -> Gpu:
    size = re.search(r"(\d+)gb", profile)
    memory = int(size[1]) * GIB if size else 0
    return gpu.model_copy(
        update={"uuid": uuid, "variant": f"{gpu.variant}-{profile}", "memory_bytes": memory}
    )
