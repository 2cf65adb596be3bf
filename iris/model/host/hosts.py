"""Hosts: machines with an agent, each in exactly one slice; and their free resources."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from pydantic import AwareDatetime, Field

from iris.model.frozen import Frozen
from iris.model.host.constraints import (
    DEVICE_TYPE,
    DEVICE_VARIANT,
    HOST_ID,
    Attribute,
    same_attributes,
)
from iris.model.host.resources import Resources


class Host(Frozen):
    """A machine and the resources that it offers. Each run of the machine's agent is an
    incarnation. When an incarnation ends, all work that was placed on it is lost.
    """

    id: str
    slice_id: str
    incarnation: str
    #: The IP address or the name at which other hosts of the cluster reach this host.
    address: str = ""
    resources: Resources
    attributes: dict[str, Attribute] = Field(default_factory=dict)
    #: Whether a host with accelerators also accepts tasks that request no accelerator.
    accept_cpu_jobs: bool = False
    #: The fault of the machine that its agent reports; empty if there is none. A host with a fault
    #: accepts no new tasks.
    fault: str = ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Host):
            return NotImplemented
        return super().__eq__(other) and same_attributes(self.attributes, other.attributes)

    def may_run(self, wanted: Resources) -> bool:
        """Returns whether the host is of the right kind for the task. It does not check the free
        capacity.
        """
        if wanted.device is not None:
            return wanted.device.accepts(self.resources.device)
        return self.resources.device is None or self.accept_cpu_jobs

    @property
    def facts(self) -> Mapping[str, Attribute]:
        """The host's own attributes, and those that follow from its device and its id."""
        device = self.resources.device
        derived: dict[str, Attribute] = {DEVICE_TYPE: device.kind.value if device else "cpu"}
        if device is not None:
            derived[DEVICE_VARIANT] = device.variant
        return {**derived, **self.attributes, HOST_ID: self.id}


class ClosedBy(StrEnum):
    """The reason why a host accepts no new work."""

    CORDON = "cordoned"  # an operator closed it; running tasks continue
    DRAIN = "drained"  # an operator closed it; running tasks were evicted
    LEAVING = "leaving"  # its slice will be deleted when its tasks have ended
    # several attempts in a row failed there through faults of the host, or its agent found a fault
    QUARANTINE = "quarantined"


class Closure(Frozen):
    """Marks a host as closed to new work, and says why."""

    by: ClosedBy
    reason: str = ""
    #: When the scheduler evicts the tasks that still run on the host; None if they may run to their
    #: end.
    evict_at: AwareDatetime | None = None

    def after(self, earlier: "Closure | None") -> "Closure":
        """Returns this closure for a host that is closed already: only an eviction or another
        deadline ends the earlier deadline.
        """
        if earlier is None or self.evict_at is not None or self.by is ClosedBy.DRAIN:
            return self
        return self.model_copy(update={"evict_at": earlier.evict_at})

    def __str__(self) -> str:
        deadline = f"to be empty by {self.evict_at:%Y-%m-%d %H:%M} UTC" if self.evict_at else ""
        return ": ".join(filter(None, (self.by, deadline, self.reason)))


def fault_of(host: Host) -> Closure | None:
    """Returns the quarantine of a host whose agent reports a fault. It lasts as long as the fault,
    and an operator cannot end it.
    """
    return Closure(by=ClosedBy.QUARANTINE, reason=host.fault) if host.fault else None


def headroom(host: Host, running: Iterable[Resources]) -> dict[str, int]:
    """Returns the host's free resources, computed from the running tasks. A negative amount is a
    shortfall.
    """
    free = host.resources.amounts()
    for resources in running:
        for name, amount in resources.amounts().items():
            free[name] -= amount
    return free
