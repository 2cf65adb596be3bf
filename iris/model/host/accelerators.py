"""The accelerators that a user can request by name: all TPU slices of the TPU API and all GPU
variants, with their text forms.

A *host* is one VM of a slice. In Google's pages on v5e and v6e, a host is the physical machine of
eight chips. In slices of 16 chips and more, that machine is two VMs of four chips. Only a slice of
exactly eight chips is a single VM of eight.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.host.resources import ANY_VARIANT, Device, DeviceKind, is_partition

_GB = 1000**3

#: The slice sizes of v4 and v5p. The number in a size's name counts TensorCores, two for each chip.
#: Every VM has four chips. If a size has several topologies, the table contains the API's default.
#: Sources: cloud.google.com/tpu/docs/v4 and .../v5p.
_CUBES = (
    # TensorCores, topology, VMs, chips per VM
    (8, "2x2x1", 1, 4),
    (16, "2x2x2", 2, 4),
    (32, "2x2x4", 4, 4),
    (64, "2x4x4", 8, 4),
    (128, "4x4x4", 16, 4),
    (256, "4x4x8", 32, 4),
    (512, "4x8x8", 64, 4),
    (1024, "8x8x8", 128, 4),
    (2048, "8x8x16", 256, 4),
    (4096, "8x16x16", 512, 4),
)
#: The slice sizes that only v5p has. Source: cloud.google.com/tpu/docs/v5p.
_LARGER_CUBES = (
    (8192, "16x16x16", 1024, 4),
    (12288, "16x16x24", 1536, 4),
)
#: The slice sizes of v5e and v6e. The number in a size's name counts chips. Sources:
#: cloud.google.com/tpu/docs/v5e and .../v6e. The numbers of VMs agree with the table of xpk
#: (github.com/AI-Hypercomputer/xpk, system_characteristics.py).
_SQUARES = (
    # chips, topology, VMs, chips per VM
    (1, "1x1", 1, 1),
    (4, "2x2", 1, 4),
    (8, "2x4", 1, 8),
    (16, "4x4", 4, 4),
    (32, "4x8", 8, 4),
    (64, "8x8", 16, 4),
    (128, "8x16", 32, 4),
    (256, "16x16", 64, 4),
)

#: For each TPU family: the slice sizes, the default runtime (cloud.google.com/tpu/docs/runtimes),
#: and the vCPUs and the memory in GB of a VM, by the VM's number of chips. A GB counts as 10^9
#: bytes, so that Iris never expects more memory than a VM has.
_FAMILIES = {
    # the vCPUs are not confirmed by a source; the memory is from axlearn (github.com/apple/axlearn)
    "v4": (_CUBES, "tpu-ubuntu2204-base", {4: (240, 407)}),
    # cloud.google.com/tpu/docs/v5e
    "v5litepod": (_SQUARES, "v2-alpha-tpuv5-lite", {1: (24, 48), 4: (112, 192), 8: (224, 384)}),
    # cloud.google.com/tpu/docs/v5p
    "v5p": (_CUBES + _LARGER_CUBES, "v2-alpha-tpuv5", {4: (208, 448)}),
    # cloud.google.com/tpu/docs/v6e for VMs of four chips; VMs of one and eight chips are not
    # confirmed by a source
    "v6e": (_SQUARES, "v2-alpha-tpuv6e", {1: (44, 176), 4: (180, 720), 8: (180, 1440)}),
}

#: The API's name of a TPU family, by the name that users and newer pages of Google write.
_FAMILY_ALIASES = {"v5e": "v5litepod"}

GPU_VARIANTS = (
    "A100",
    "A10G",
    "B100",
    "B200",
    "GB200",
    "H100",
    "H200",
    "L4",
    "L40",
    "L40S",
    "RTX4090",
    "T4",
    "V100",
)


_GPU_REMEDY = (
    'write a variant and its count, such as "H100x8", "H100:8", "H100", "8" for any variant, or'
    ' "A100,H100x8"'
)
_GPU_COUNT = r"[1-9][0-9]{0,3}"


class Tpu(Frozen):
    """A kind of TPU slice."""

    variant: str
    #: How the chips are connected: `4x4`, or `2x2x4` for a cube.
    topology: str
    #: The number of chips of the whole slice.
    chips: int
    hosts: int
    chips_per_host: int
    runtime_version: str
    host_cpu_millis: int
    host_memory_bytes: int


class TpuRequest(Frozen):
    """A slice that a user requests by its name: the device of each host, and the number of
    hosts.
    """

    device: Device
    hosts: int


def _table() -> dict[str, Tpu]:
    return {
        f"{family}-{size}": Tpu(
            variant=f"{family}-{size}",
            topology=topology,
            chips=hosts * chips_per_host,
            hosts=hosts,
            chips_per_host=chips_per_host,
            runtime_version=runtime,
            host_cpu_millis=machines[chips_per_host][0] * 1000,
            host_memory_bytes=machines[chips_per_host][1] * _GB,
        )
        for family, (sizes, runtime, machines) in _FAMILIES.items()
        for size, topology, hosts, chips_per_host in sizes
    }


#: All TPU variants by name, ordered by family and then by size.
TPUS = _table()


def tpu(variant: str, field: str = "tpu") -> Tpu:
    """Returns the TPU slice variant of this name, in upper or lower case. `v5e-16` is an alias of
    `v5litepod-16`.

    Raises:
        InvalidValue: the variant does not exist.
    """
    family, dash, size = variant.strip().lower().partition("-")
    name = _FAMILY_ALIASES.get(family, family) + dash + size
    if name not in TPUS:
        raise InvalidValue(field, variant, "is not a TPU variant", _nearest_tpus(name))
    return TPUS[name]


def parse_tpu(text: str) -> TpuRequest:
    """Parses `v5litepod-16`, or alternatives such as `v5litepod-16,v6e-16`.

    Raises:
        InvalidValue: a variant does not exist, or the alternatives differ in the number of hosts or
            of chips per host.
    """
    tpus = list(dict.fromkeys(tpu(part) for part in text.split(",")))
    first = tpus[0]
    for other in tpus[1:]:
        if (other.hosts, other.chips_per_host) != (first.hosts, first.chips_per_host):
            raise InvalidValue(
                "tpu",
                text,
                f"has alternatives of different shape: {_shape(first)}, {_shape(other)}",
                "use only variants with the same number of hosts and of chips per host",
            )
    variants = ",".join(each.variant for each in tpus)
    return TpuRequest(
        device=Device(kind=DeviceKind.TPU, variant=variants, count=first.chips_per_host),
        hosts=first.hosts,
    )


def parse_gpu(text: str, field: str = "gpu") -> Device:
    """Parses `H100x8`, `H100:8`, `H100` (one), `8` (of any variant) or `A100,H100x8` (eight, of
    either variant).

    A MIG instance is a variant of its own: `A100-1g.10gb`, `A100-1g.10gbx2`.

    Raises:
        InvalidValue: a variant does not exist, or the alternatives have different counts.
    """
    if re.fullmatch(_GPU_COUNT, text.strip()):
        return Device(kind=DeviceKind.GPU, variant=ANY_VARIANT, count=int(text))
    parts = [_gpu(part.strip(), text, field) for part in text.split(",")]
    counts = [count for _, count in parts if count is not None]
    if len(set(counts)) > 1:
        listed = ", ".join(f"{count or 1} {variant}" for variant, count in parts)
        raise InvalidValue(
            field,
            text,
            f"has alternatives with different counts: {listed}",
            "give one count, after the last alternative",
        )
    if counts and (parts[-1][1] is None or len(counts) not in (1, len(parts))):
        raise InvalidValue(
            field,
            text,
            "gives a count to only some of the alternatives",
            "give one count, after the last alternative",
        )
    variants = ",".join(dict.fromkeys(variant for variant, _ in parts))
    return Device(kind=DeviceKind.GPU, variant=variants, count=counts[0] if counts else 1)


def format_gpu(device: Device) -> str:
    """Formats GPUs as users write them for `parse_gpu`: `H100x8`, or `8` of any variant."""
    any_variant = device.variant == ANY_VARIANT
    return str(device.count) if any_variant else f"{device.variant}x{device.count}"


def _nearest_tpus(name: str) -> str:
    """Suggests the next smaller and larger size of a known family, otherwise the names with the
    most similar spelling.
    """
    family, _, size = name.partition("-")
    if family in _FAMILIES and re.fullmatch("[1-9][0-9]{0,8}", size):
        sizes = [each[0] for each in _FAMILIES[family][0]]
        near = [
            max((each for each in sizes if each < int(size)), default=0),
            min((e for e in sizes if e > int(size)), default=0),
        ]
        return f"did you mean {' or '.join(f'{family}-{each}' for each in near if each)}?"
    families = ", ".join(
        f"{each}-{sizes[0][0]} to {each}-{sizes[-1][0]}"
        for each, (sizes, _, _) in _FAMILIES.items()
    )
    return _suggestion(name, TPUS, families)


def _shape(of: Tpu) -> str:
    hosts = "1 host" if of.hosts == 1 else f"{of.hosts} hosts"
    return (
        f"{of.variant} has {hosts} with {of.chips_per_host}"
        f" chip{'s' if of.chips_per_host > 1 else ''} each"
    )


def _gpu(part: str, text: str, field: str) -> tuple[str, int | None]:
    """Returns the variant and its count, or None without a count. Tries whole names first, because
    the x in RTX4090 does not precede a count.
    """
    if (variant := _known_gpu(part)) is not None:
        return variant, None
    match = re.fullmatch(rf"(.+)[xX:]\s*({_GPU_COUNT})", part)
    if match and (variant := _known_gpu(match[1].strip())) is not None:
        return variant, int(match[2])
    name = re.split(r"(?<!RT)X|:", part.upper())[0].strip()
    if not name or name.isdecimal():
        raise InvalidValue(
            field, text, "names no variant" + (f" in {part!r}" if part != text else ""), _GPU_REMEDY
        )
    if re.fullmatch(r"-\d+", name):
        raise InvalidValue(field, text, "is a count that is not from 1 to 9999", _GPU_REMEDY)
    if name in GPU_VARIANTS:
        raise InvalidValue(
            field, text, f"gives {name} a count that is not from 1 to 9999", _GPU_REMEDY
        )
    raise InvalidValue(
        field,
        text,
        f"has the unknown variant {name!r}",
        _suggestion(name, GPU_VARIANTS, ", ".join(GPU_VARIANTS)),
    )


def _known_gpu(name: str) -> str | None:
    """Returns the variant of this name, in upper or lower case: a whole GPU, or a MIG instance such
    as `A100-1g.10gb`.
    """
    gpu, dash, profile = name.partition("-")
    if gpu.upper() not in GPU_VARIANTS or (dash and not is_partition(name)):
        return None
    return gpu.upper() + dash + profile.lower()


def _suggestion(name: str, known: Iterable[str], summary: str) -> str:
    near = get_close_matches(name, list(known))
    return f"did you mean {' or '.join(near)}?" if near else f"use one of {summary}"
