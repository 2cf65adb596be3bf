"""The zones, machine types, runtimes and images of the fake. Others do not exist."""

import re

from iris.model.host.accelerators import TPUS, tpu

ZONES = frozenset(
    f"{region}-{letter}"
    for region, letters in {
        "asia-east1": "abc",
        "asia-northeast1": "abc",
        "asia-southeast1": "abc",
        "europe-west1": "bcd",
        "europe-west2": "abc",
        "europe-west4": "abc",
        "us-central1": "abcf",
        "us-central2": "b",
        "us-east1": "bcd",
        "us-east4": "abc",
        "us-east5": "abc",
        "us-south1": "abc",
        "us-west1": "abc",
        "us-west4": "abc",
    }.items()
    for letter in letters
)

#: By family: its own runtimes; those at "" go with any. cloud.google.com/tpu/docs/runtimes
RUNTIMES = {
    "": {"tpu-ubuntu2204-base", "tpu-vm-base", "tpu-vm-cos-stable"},
    "v4": {"tpu-vm-v4-base"},
    "v5litepod": {"v2-alpha-tpuv5-lite"},
    "v5p": {"v2-alpha-tpuv5"},
    "v6e": {"v2-alpha-tpuv6e"},
}

ACCELERATORS = frozenset(TPUS)

IMAGES = re.compile(
    r"(?:https://www\.googleapis\.com/compute/v1/)?projects/"
    r"(debian-cloud|ubuntu-os-cloud|cos-cloud|deeplearning-platform-release|ml-images)/global/images/(family/)?[a-z][-a-z0-9]*"
)

_STANDARD = r"(?:2|4|8|16|32|48|64|80|96|128)"
#: Machine types, and which group of their name is the number of vCPUs; with GPUs the number of
#: GPUs, and vCPUs per GPU.
_MACHINES = (
    (
        re.compile(
            rf"(n1|n2d?|e2|c2d?|c3d?|t2d|n4|c4[ad]?)-(?:standard|highmem|highcpu)-({_STANDARD}|1|22|44|88|176|224|360)"
        ),
        1,
    ),
    (re.compile(r"(e2)-(?:micro|small|medium)(.{0})"), 0),
    (re.compile(r"(a2)-(?:high|ultra)gpu-(1|2|4|8)g"), 12),
    (re.compile(r"(a2)-megagpu-(16)g"), 6),
    (re.compile(r"(a3)-(?:high|mega|ultra)gpu-(1|2|4|8)g"), 26),
    (re.compile(r"(a4)-highgpu-(8)g"), 28),
    (re.compile(r"(g2)-standard-(4|8|12|16|24|32|48|96)"), 1),
)
#: Kinds of disks, each with the machine types that do not take it.
#: cloud.google.com/compute/docs/disks/persistent-disks#machine_series_support,
#: .../hyperdisks#machine-type-support
_NO_PD = r"n4-.*|c4[ad]?-.*|a3-ultragpu-.*|a4-.*"
DISKS = {
    "pd-standard": re.compile(rf"{_NO_PD}|c3d?-.*|g2-.*|a3-.*"),
    "pd-balanced": re.compile(_NO_PD),
    "pd-ssd": re.compile(_NO_PD),
    "hyperdisk-balanced": re.compile(r"(?:n1|n2d?|e2|c2d?|t2d|a2|g2)-.*"),
}
GPU_FAMILIES = frozenset({"a2", "a3", "a4", "g2"})


def machine(name: str) -> tuple[str, int] | None:
    """(family, vCPUs) of a machine type; None: there is none of this name."""
    for pattern, cores in _MACHINES:
        if match := pattern.fullmatch(name):
            return match[1], max(2, int(match[2] or 0) * cores)
    return None


def takes_disk(machine_type: str, disk: str) -> bool:
    """Whether machines of the type can start from such a disk."""
    return DISKS[disk].fullmatch(machine_type) is None


def tpu_family(variant: str) -> str:
    """`v5litepod` of `v5litepod-16`."""
    return variant.rpartition("-")[0]


def runs(runtime: str, variant: str) -> bool:
    """Whether there is such a runtime for the type."""
    return runtime in RUNTIMES[""] | RUNTIMES[tpu_family(variant)]


def variant_of(kind: str, topology: str) -> str | None:
    """The accelerator type of a configuration; None: there is none."""
    family = {"V4": "v4", "V5LITE_POD": "v5litepod", "V5P": "v5p", "V6E": "v6e"}.get(kind)
    found = (each for each in TPUS if tpu_family(each) == family and tpu(each).topology == topology)
    return next(found, None)
