"""Decides whether the GPUs of a host are broken, from what the driver lists and from the kernel's log. Pure functions."""

import re
from collections.abc import Iterable, Mapping, Sequence

from iris.model.gpus import Gpu, Reading, offered
from iris.model.resources import Device, DeviceKind

#: The name of the fault of an attempt that fails on a host with a broken GPU, or is not started there.
GPU_FAULT = "gpu-broken"
#: The most characters of a fault: all pages of the host show it.
MOST = 300

#: The Xid messages of the driver after which a GPU has to be reset or its machine restarted. Left out are those that a program
#: can cause (13, 31, 43, 45), those that concern one program only (94), those of links, which the other end can cause (74, 136,
#: 144 to 150, 155), and a repair that waits for the next reset (156).
#: Source: docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, immediate actions RESET_GPU and RESTART_BM, and Xid 48
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
#: The driver's own summary: `154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)`.
_RECOVERY, _ACTION = 154, re.compile(r"to 0x[0-9a-f]+ \(((?:GPU Reset|Node Reboot) Required|Drain and Reset)\)", re.IGNORECASE)
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),?(.*)")


def xid_fault(lines: Iterable[str]) -> str:
    """Returns the fault that the first Xid message of a broken GPU reports; empty: there is none."""
    for match in filter(None, map(_XID.search, lines)):
        bus, xid, text = match[1], int(match[2]), match[3]
        why = BROKEN_XIDS.get(xid, "")
        if xid == _RECOVERY and (action := _ACTION.search(text)):
            why = action[1].lower()
        if why:
            return f"Xid {xid} of the GPU at {bus}: {why}"
    return ""


def missing_fault(expected: Sequence[Gpu], reading: Reading | None) -> str:
    """Returns why the host does not have all the GPUs that it had before; empty: it has them.

    Args:
        reading: None: the driver's program is gone.
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
    """Returns why the GPUs that a machine has when its agent starts cannot be used; empty: they can.

    A machine whose driver does not work may be one without GPUs, unless its operator says otherwise.

    Args:
        device: what the operator says that the machine has; None: what the driver lists.
    """
    if reading.lost:
        return reading.problem[:MOST]
    if device is None or device.kind is not DeviceKind.GPU:
        return ""
    alike = len(offered(reading.gpus, device))
    if alike >= device.count:
        return ""
    others = sorted({gpu.variant for gpu in reading.gpus if gpu.variant.lower() != device.variant.lower()})
    has = f"has {alike} of {device.count} {device.variant}" + (f", and {', '.join(others)}" if others else "")
    return (f"{has}; {reading.problem}" if reading.problem else has)[:MOST]
