"""What is free and used, by kind of machine and by scale group, for meters."""

from collections.abc import Iterable
from typing import NamedTuple

from iris.messages.fleet_views import Amounts, GroupHoldings, UserHoldings


class Meter(NamedTuple):
    """How much of one resource is used and how much is free. Free amounts on hosts that accept no
    new work count as closed.
    """

    used: int
    #: The free amount on hosts that accept no new work.
    closed: int
    total: int
    #: The noun after an amount: "chips", "GPUs" or "cores". With "cores", all amounts of the meter
    #: are in thousandths of a core.
    unit: str

    @property
    def free(self) -> int:
        return max(0, self.total - self.used - self.closed)

    def number(self, amount: int) -> str:
        """Formats an amount of this meter without its unit."""
        if self.unit == "cores":
            return f"{amount / 1000:,.1f}".removesuffix(".0")
        return f"{amount:,}"

    @property
    def text(self) -> str:
        """The whole meter as a text."""
        closed = f", {self.number(self.closed)} closed" if self.closed else ""
        return (
            f"{self.number(self.used)} of {self.number(self.total)} {self.unit} used,"
            f" {self.number(self.free)} free{closed}"
        )


class Capacity(NamedTuple):
    """The capacity of the hosts of one kind, in one scale group or in all."""

    #: The accelerators of each host, such as `tpu:v5litepod-16`; empty for hosts without
    #: accelerators.
    device: str
    #: The scale group; empty for hosts that joined by themselves, and for the sum over all groups.
    group: str
    hosts: int
    busy: int
    closed: int
    #: The use of the accelerators; for hosts without accelerators, the use of the cores.
    main: Meter
    cores: Meter

    @property
    def free_hosts(self) -> int:
        return self.hosts - self.busy - self.closed


def by_group(holdings: Iterable[GroupHoldings]) -> list[Capacity]:
    """Returns the capacity of each scale group."""
    return [_capacity(each, each.group) for each in holdings]


def by_kind(holdings: Iterable[GroupHoldings]) -> list[Capacity]:
    """Returns the capacity of each kind of machine, machines with accelerators first."""
    sums: dict[str, GroupHoldings] = {}
    for each in holdings:
        before = sums.get(each.device)
        sums[each.device] = each if before is None else _sum(before, each)
    return [_capacity(sums[device], "") for device in sorted(sums, key=lambda it: (not it, it))]


def _capacity(held: GroupHoldings, group: str) -> Capacity:
    cores = Meter(held.used.cpu_millis, held.closed_off.cpu_millis, held.offers.cpu_millis, "cores")
    unit = "GPUs" if held.device.startswith("gpu") else "chips"
    devices = Meter(held.used.devices, held.closed_off.devices, held.offers.devices, unit)
    return Capacity(
        held.device,
        group,
        held.hosts,
        held.busy,
        held.closed,
        devices if held.device else cores,
        cores,
    )


def _sum(one: GroupHoldings, other: GroupHoldings) -> GroupHoldings:
    return GroupHoldings(
        group="",
        device=one.device,
        hosts=one.hosts + other.hosts,
        busy=one.busy + other.busy,
        closed=one.closed + other.closed,
        offers=_plus(one.offers, other.offers),
        used=_plus(one.used, other.used),
        closed_off=_plus(one.closed_off, other.closed_off),
    )


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return Amounts(
        devices=one.devices + other.devices,
        cpu_millis=one.cpu_millis + other.cpu_millis,
        memory_bytes=one.memory_bytes + other.memory_bytes,
    )


def devices_of(user: UserHoldings, kind: str) -> int:
    """Returns the number of a user's accelerators of a kind: "tpu" or "gpu"."""
    return sum(count for name, count in user.devices.items() if name.startswith(f"{kind}:"))
