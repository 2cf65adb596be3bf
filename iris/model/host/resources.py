"""Resources that a task requests or a host offers, as integers: millicores, bytes, devices."""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property

from pydantic import Field

from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.units import format_bytes, format_cpu

#: The names of the resources, in the order in which shortfalls are reported.
AMOUNTS = ("device", "cpu", "memory", "disk")
#: The variant in a request that accepts every device of the kind.
ANY_VARIANT = "auto"
#: The largest amount of a resource. The scheduler divides amounts, and Python cannot divide
#: integers that are too large for a float.
MAX_AMOUNT = 2**63 - 1
#: Matches NVIDIA's names of MIG instances, which are parts of a GPU: `A100-1g.10gb`,
#: `H100-1g.12gb+me`, `A100-1c.3g.20gb`. Source: docs.nvidia.com/datacenter/tesla/mig-user-guide,
#: "MIG Device Names"
_PARTITION = re.compile(r".+-(?:\d+c\.)?\d+g\.\d+gb(?:[+-]\w+(?:\.\w+)?)*", re.IGNORECASE)


class DeviceKind(StrEnum):
    GPU = "gpu"
    TPU = "tpu"


def is_partition(variant: str) -> bool:
    """Returns whether the variant is a part of a GPU (a MIG instance)."""
    return _PARTITION.fullmatch(variant) is not None


class Device(Frozen):
    """Accelerators of one kind: those of a host, or those that a request needs.

    In a request `variant` may be `"auto"` (any) or several variants, comma-separated (any of
    these).
    """

    kind: DeviceKind
    variant: str = ANY_VARIANT
    count: int = Field(default=1, ge=1, le=MAX_AMOUNT)

    def accepts(self, offered: "Device | None") -> bool:
        """Returns whether a host's device is of the requested kind and variant. It does not compare
        the counts.

        A MIG instance must be requested by its name, because a program for a whole GPU would not
        fit.
        """
        if offered is None or offered.kind != self.kind:
            return False
        wanted = [variant.strip() for variant in self.variant.lower().split(",")]
        return offered.variant.lower() in wanted or (
            ANY_VARIANT in wanted and not is_partition(offered.variant)
        )

    @property
    def several(self) -> bool:
        """Returns whether the request accepts devices of different variants."""
        return self.variant == ANY_VARIANT or "," in self.variant

    def __str__(self) -> str:
        return f"{self.kind}:{self.variant}:{self.count}"


class Resources(Frozen):
    """Amounts of cores, memory, disk and devices."""

    cpu_millis: int = Field(default=1000, ge=0, le=MAX_AMOUNT)
    memory_bytes: int = Field(default=0, ge=0, le=MAX_AMOUNT)
    disk_bytes: int = Field(default=0, ge=0, le=MAX_AMOUNT)
    device: Device | None = None

    @property
    def device_count(self) -> int:
        return self.device.count if self.device else 0

    @cached_property
    def vector(self) -> tuple[int, int, int, int]:
        """The amounts in the order of `AMOUNTS`, computed once for fast comparison. `model_copy`
        copies the cached value, so it must not change an amount.
        """
        return (self.device_count, self.cpu_millis, self.memory_bytes, self.disk_bytes)

    @property
    def kind(self) -> tuple[str, str] | None:
        """The kind and the variant of the device, to group equal resources; None without a
        device.
        """
        return (self.device.kind, self.device.variant) if self.device else None

    def times(self, tasks: int) -> "Resources":
        """Returns the resources of this many tasks on one host.

        Raises:
            pydantic.ValidationError: an amount is larger than `MAX_AMOUNT`.
        """
        if tasks == 1:
            return self
        device = self.device and Device(
            kind=self.device.kind, variant=self.device.variant, count=tasks * self.device.count
        )
        _, cpu, memory, disk = (tasks * amount for amount in self.vector)
        return Resources(cpu_millis=cpu, memory_bytes=memory, disk_bytes=disk, device=device)

    def share_of(self, offers: "Resources") -> float:
        """Returns the part of a host that these resources take: the largest part of any of its
        resources, at most 1.
        """
        amounts = zip(self.vector, offers.vector, strict=True)
        parts = [amount / offered if offered else 1.0 for amount, offered in amounts if amount]
        return min(1.0, max(parts, default=0.0))

    def amounts(self) -> dict[str, int]:
        """Returns the amounts by name, in the order in which shortfalls are reported."""
        return dict(zip(AMOUNTS, self.vector, strict=True))

    def __str__(self) -> str:
        return format_amounts(self.amounts(), self.device)


def least(offers: Iterable[Resources]) -> Resources:
    """Returns the least amount of each resource among these offers. `offers` must not be empty."""
    offers = list(offers)
    return Resources(
        cpu_millis=min(each.cpu_millis for each in offers),
        memory_bytes=min(each.memory_bytes for each in offers),
        disk_bytes=min(each.disk_bytes for each in offers),
        device=min(
            (each.device for each in offers), key=lambda device: device.count if device else 0
        ),
    )


def format_amount(name: str, amount: int) -> str:
    """Formats one number of `Resources.amounts` for display."""
    if name == "cpu":
        return format_cpu(amount)
    if name == "device":
        return str(amount)
    return format_bytes(amount)


def format_amounts(amounts: dict[str, int], device: Device | None = None) -> str:
    """Formats the amounts that are not zero: `4 cpu, 8 GiB memory, tpu:v5litepod-16:4`.

    Args:
        device: the device with its full name, if it is known.
    """
    shown = [
        f"{format_amount(name, amount)} {name}"
        for name, amount in amounts.items()
        if amount and name != "device"
    ]
    if amounts.get("device"):
        count = amounts["device"]
        shown.append(
            str(device.model_copy(update={"count": count})) if device else f"{count} devices"
        )
    return ", ".join(shown) or "nothing"


def parse_device(text: str) -> Device | None:
    """Parses `KIND[:VARIANT[:COUNT]]` to a device; `"cpu"` gives None.

    Raises:
        InvalidValue: an unknown kind, or a count that is not a positive number.
    """
    kind, _, rest = text.strip().partition(":")
    variant, _, count = rest.partition(":")
    remedy = 'write KIND[:VARIANT[:COUNT]], such as "cpu", "gpu:H100:8" or "tpu:v5litepod-16:4"'
    if kind.lower() == "cpu":
        if rest:
            raise InvalidValue(
                "device",
                text,
                "gives a variant or count to the kind cpu",
                "request cores with cpu instead",
            )
        return None
    try:
        parsed_kind = DeviceKind(kind.lower())
    except ValueError:
        raise InvalidValue("device", text, f"has the unknown kind {kind!r}", remedy) from None
    if count and not (count.isdecimal() and int(count) > 0):
        problem = f"has the count {count!r}, which is not a whole number above 0"
        raise InvalidValue("device", text, problem, remedy)
    return Device(kind=parsed_kind, variant=variant or ANY_VARIANT, count=int(count or 1))
