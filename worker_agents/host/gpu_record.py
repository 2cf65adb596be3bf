"""Keeps the GPUs with which an incarnation began on the host's disk. An agent that continues it
knows which are missing.
"""

import contextlib
from pathlib import Path

from pydantic import ValidationError

from iris.activities.host.machine.accelerators import Accelerators
from iris.activities.host.machine.gpu_health import GpuHealth
from iris.model.frozen import Frozen
from iris.model.host.gpus import Gpu, device_of, offered, start_fault
from iris.model.host.resources import Device, DeviceKind
from iris.storage.files import write_whole

FILE = "gpus.json"


class GpuRecord(Frozen):
    """The record of the GPUs that a host has during one incarnation."""

    incarnation: str
    gpus: tuple[Gpu, ...] = ()
    #: A fault of the GPUs that lasts until the incarnation ends; empty if there is none.
    lasting: str = ""
    #: The reason why the incarnation began without some GPUs that the machine should have; empty if
    #: it has all.
    incomplete: str = ""


def gpus_of(
    directory: Path, incarnation: str, found: Accelerators, configured: Device | None
) -> GpuRecord:
    """Returns the GPUs of the incarnation: those with which it began, whatever the machine has now.

    Args:
        found: what the machine has now.
        configured: what the operator says that it has; None: what is found.
    """
    with contextlib.suppress(OSError, ValidationError):
        record = GpuRecord.model_validate_json((directory / FILE).read_bytes())
        if record.incarnation == incarnation:
            return record
    fault = start_fault(found.reading, configured) if found.reading is not None else ""
    record = GpuRecord(incarnation=incarnation, gpus=found.gpus, incomplete=fault)
    if found.reading is not None:
        _write(directory, record)
    return record


def with_gpus(found: Accelerators, record: GpuRecord) -> Accelerators:
    """Returns the machine's accelerators with the GPUs of the incarnation."""
    if found.device is not None and found.device.kind is not DeviceKind.GPU:
        return found
    return found.model_copy(update={"gpus": record.gpus, "device": device_of(record.gpus)})


def health_of(directory: Path, record: GpuRecord, configured: Device | None) -> GpuHealth:
    """Returns the watch over the GPUs that the host offers.

    Args:
        configured: as in `gpus_of`.
    """

    def keep(fault: str) -> None:
        # If the disk is full, the next agent of the incarnation will not know the fault.
        with contextlib.suppress(OSError):
            _write(directory, record.model_copy(update={"lasting": fault}))

    return GpuHealth(
        offered(record.gpus, configured or device_of(record.gpus)),
        lasting=record.lasting,
        incomplete=(record.incomplete, configured) if record.incomplete else None,
        on_lasting=keep,
    )


def _write(directory: Path, record: GpuRecord) -> None:
    write_whole(directory / FILE, record.model_dump_json())
