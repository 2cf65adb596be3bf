"""What machines cost: the price of one host for an hour, from the rates of the configuration."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from iris.model.frozen import Frozen
from iris.model.host.resources import DeviceKind
from iris.model.slice.scale_groups import ScaleGroup
from iris.usage.records import SliceUse


class Rate(Frozen):
    """The price of one kind of machine for an hour: the sum of the price of the machine and of the
    prices of its chips and GPUs.
    """

    #: The provider's name for the machine, or the beginning of such names up to a hyphen. It is
    #: empty if the rate applies to a scale group instead.
    machine: str = ""
    group: str = ""
    #: The zone or region in which the rate applies; empty if it applies everywhere.
    zone: str = ""
    #: Whether the rate applies to preemptible slices. Otherwise, it applies only to other slices.
    spot: bool = False
    #: The time from which the rate applies; None if it has always applied.
    since: datetime | None = None
    machine_hour: float = 0.0
    chip_hour: float = 0.0
    gpu_hour: float = 0.0


class Machines(NamedTuple):
    """The properties of a slice's machines that determine their price."""

    group: str
    #: The provider's name for the machine: its machine type, or the slice's accelerator type.
    machine: str
    zone: str
    spot: bool
    #: The number of TPU chips of each host.
    chips: float
    #: The number of GPUs of each host.
    gpus: float

    @classmethod
    def of_slice(cls, use: SliceUse) -> "Machines":
        """Returns the facts about the machines of a slice."""
        hosts = max(1, use.hosts)
        chips, gpus = use.tpu_chips / hosts, use.gpus / hosts
        return cls(use.group, use.machine, use.zone, use.preemptible, chips, gpus)

    @classmethod
    def of_group(cls, group: ScaleGroup, zone: str) -> "Machines":
        """Returns the facts about the machines that a group creates in a zone."""
        counts = dict.fromkeys(DeviceKind, 0)
        if (device := group.resources.device) is not None:
            counts[device.kind] = device.count
        chips, gpus = counts[DeviceKind.TPU], counts[DeviceKind.GPU]
        return cls(group.name, machine_of(group), zone, group.preemptible, chips, gpus)

    def __str__(self) -> str:
        what = self.machine or (
            f"machines of group {self.group}"
            if self.group
            else "machines that joined by themselves"
        )
        where = ", ".join(filter(None, ("spot" if self.spot else "", self.zone)))
        return f"{what} ({where})" if where else what


class PriceTable:
    """The prices of hosts. Time is divided into numbered periods; prices change only at the
    beginning of a period.

    Args:
        rates: the prices of the configuration.
    """

    def __init__(self, rates: Iterable[Rate]) -> None:
        self._rates = tuple(rates)
        #: The times at which a rate begins to apply, in seconds since 1970, in ascending order.
        self.changes = sorted(
            {rate.since.timestamp() for rate in self._rates if rate.since is not None}
        )
        self._known: dict[tuple[Machines, int], float | None] = {}

    def __bool__(self) -> bool:
        return bool(self._rates)

    def period(self, at: float) -> int:
        """Returns the number of the period that contains a time, in seconds since 1970."""
        return bisect_right(self.changes, at)

    def host_hour(self, machines: Machines, period: int) -> float | None:
        """Returns the price of one of these hosts for an hour; None if it has none."""
        key = machines, period
        if key not in self._known:
            self._known[key] = self._price(machines, period)
        return self._known[key]

    def _price(self, machines: Machines, period: int) -> float | None:
        found = max(self._candidates(machines, period), default=None)
        if found is None:
            return None
        rate = self._rates[found[-1]]
        of_devices = rate.chip_hour * machines.chips + rate.gpu_hour * machines.gpus
        return rate.machine_hour + of_devices

    def _candidates(
        self, machines: Machines, period: int
    ) -> Iterator[tuple[bool, int, int, float, int]]:
        """Yields how exactly each rate that applies names the machines, with the rate's index. A
        scale group is more exact than a machine, a long name more than its beginning, a zone more
        than its region, and a later rate replaces an earlier one.
        """
        begin = self.changes[period - 1] if period else float("-inf")
        for index, rate in enumerate(self._rates):
            since = rate.since.timestamp() if rate.since is not None else float("-inf")
            if (
                rate.spot is machines.spot
                and since <= begin
                and (rate.group == machines.group if rate.group else True)
                and (_begins(machines.machine, rate.machine) if rate.machine else True)
                and (_begins(machines.zone, rate.zone) if rate.zone else True)
            ):
                yield bool(rate.group), len(rate.machine), len(rate.zone), since, index


def machine_of(group: ScaleGroup) -> str:
    """Returns the provider's name for the machines of a group: the machine type, or the type of the
    accelerator; empty if the group has neither, as groups of machines of one's own.
    """
    return group.machine_type or group.accelerator_variant


def _begins(name: str, beginning: str) -> bool:
    return name == beginning or name.startswith(f"{beginning}-")
