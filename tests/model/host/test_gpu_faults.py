"""When the GPUs of a host count as broken."""

import pytest

from iris.model.host.gpus import Reading, missing_fault, parse_gpus, read, start_fault, xid_fault
from iris.model.host.resources import parse_device

FOUR = parse_gpus(
    "".join(
        f"{n}, GPU-{n}, NVIDIA H100 80GB HBM3, 81559, 00000000:{n}B:00.0, Disabled\n"
        for n in range(4)
    )
)
LOST = Reading(problem="nvidia-smi reports: GPU is lost", lost=True)
FELL = (
    "6,1234,5678,-;NVRM: Xid (PCI:0000:2b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen"
    " off the bus."
)


@pytest.mark.parametrize(
    ("reading", "fault"),
    [
        (Reading(FOUR), ""),
        (Reading(FOUR[::-1]), ""),
        (Reading(FOUR[:3]), "has 3 of 4 GPUs: GPU 3 (GPU-3) missing"),
        (
            Reading(FOUR[:3], *LOST[1:]),
            "has 3 of 4 GPUs: GPU 3 (GPU-3) missing; nvidia-smi reports: GPU is lost",
        ),
        (LOST, "nvidia-smi reports: GPU is lost"),
        (Reading(), "nvidia-smi lists none of its GPUs"),
        (Reading(FOUR, problem="nvidia-smi fails"), "nvidia-smi fails"),
        (None, "there is no nvidia-smi any more"),
    ],
)
def test_a_host_is_compared_with_what_it_had(reading: Reading | None, fault: str) -> None:
    """By UUID: another order is none of the faults, and the GPU that is missing is named."""
    assert missing_fault(FOUR, reading) == fault


def test_the_reason_has_a_limit() -> None:
    """Every list of hosts shows it, and the scheduler keeps it."""
    assert len(missing_fault(FOUR, Reading(problem="x" * 10_000))) == 300


@pytest.mark.parametrize(
    ("reading", "device", "fault"),
    [
        (Reading(FOUR), None, ""),
        (Reading(FOUR), "gpu:H100:4", ""),
        (Reading(FOUR), "gpu:H100:2", ""),
        (Reading(FOUR), "gpu:our-own-name:4", ""),
        (Reading(FOUR), "gpu:H100:8", "has 4 of 8 H100"),
        (Reading(FOUR), "gpu:A100:4", "has 0 of 4 A100, and H100"),
        (read(9, "no driver"), None, ""),
        (
            read(9, "no driver"),
            "gpu:H100:8",
            "has 0 of 8 H100; nvidia-smi fails with exit code 9: no driver",
        ),
        (LOST, None, "nvidia-smi reports: GPU is lost"),
        (read(9, "no driver"), "tpu:v5litepod-4:4", ""),
    ],
)
def test_a_machine_must_have_the_gpus_that_its_operator_names(
    reading: Reading, device: str | None, fault: str
) -> None:
    """A failing driver proves nothing about a machine for which no GPUs are configured."""
    assert start_fault(reading, device and parse_device(device)) == fault


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (FELL, "Xid 79 of the GPU at 0000:2b:00: the GPU has fallen off the bus"),
        (
            (
                "NVRM: Xid (PCI:0000:03:00): 48, An uncorrectable double bit error (DBE) has been"
                " detected"
            ),
            "an uncorrectable memory",
        ),
        (
            "NVRM: Xid (PCI:0000:03:00): 119, pid=7, Timeout waiting for RPC from GSP!",
            "its system processor does not answer",
        ),
        (
            (
                "NVRM: Xid (PCI:0000:03:00): 154, GPU recovery action changed from 0x0 (None) to"
                " 0x2 (Node Reboot Required)"
            ),
            "node reboot",
        ),
        (
            (
                "NVRM: Xid (PCI:0000:03:00): 154, GPU recovery action changed from 0x1 (GPU Reset"
                " Required) to 0x0 (None)"
            ),
            "",
        ),
        ("NVRM: Xid (PCI:0000:03:00): 31, pid=7, name=python, Ch 00000008, MMU Fault", ""),
        ("NVRM: Xid (PCI:0000:03:00): 13, pid=7, Graphics SM Warp Exception", ""),
        ("NVRM: Xid (PCI:0000:03:00): 43, pid=7, name=python, Ch 00000010", ""),
        (
            (
                "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for"
                " remapping, reset gpu to activate."
            ),
            "",
        ),
        ("NVRM: Xid (PCI:0000:03:00): 94, pid=7, Contained: CE User Channel", ""),
        ("usb 1-1: new device 79", ""),
    ],
)
def test_only_messages_of_a_broken_gpu_count(line: str, fault: str) -> None:
    """A program that accesses the wrong address makes the driver write a message, too: it must not
    take the host away.
    """
    found = xid_fault([line])

    assert (fault in found) if fault else not found
