"""A host: one machine with an agent, belonging to exactly one slice, and what is free on it."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from iris.constraints import DEVICE_TYPE, DEVICE_VARIANT, Attribute
from iris.resources import Resources


class Host(BaseModel):
    """What a machine offers. The incarnation is one life of its agent: work given to an earlier one is gone with it."""

    model_config = ConfigDict(frozen=True)

    id: str
    slice_id: str
    incarnation: str
    #: Where other hosts of the cluster reach it: an IP address or a name that they can resolve.
    address: str = ""
    resources: Resources
    attributes: dict[str, Attribute] = Field(default_factory=dict)
    #: Whether a host with accelerators also takes tasks that want none.
    accept_cpu_jobs: bool = False

    def may_run(self, wanted: Resources) -> bool:
        """Whether the host is of the right kind for the task; whether there is room is a matter of headroom."""
        if wanted.device is not None:
            return wanted.device.accepts(self.resources.device)
        return self.resources.device is None or self.accept_cpu_jobs

    @property
    def facts(self) -> Mapping[str, Attribute]:
        """Its attributes, and those that follow from what it offers."""
        device = self.resources.device
        derived: dict[str, Attribute] = {DEVICE_TYPE: device.kind.value if device else "cpu"}
        if device is not None:
            derived[DEVICE_VARIANT] = device.variant
        return {**derived, **self.attributes}


class ClosedBy(StrEnum):
    """Why a host takes nothing new."""

    CORDON = "cordoned"  # an operator said so; what runs there runs on
    DRAIN = "drained"  # an operator said so; what ran there was evicted
    QUARANTINE = "quarantined"  # attempts failed there in a row through no fault of theirs


class Closure(BaseModel):
    """A host that takes nothing new until an operator says otherwise."""

    model_config = ConfigDict(frozen=True)

    by: ClosedBy
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.by}: {self.reason}" if self.reason else str(self.by)


def headroom(host: Host, running: Iterable[Resources]) -> dict[str, int]:
    """What is free on the host: derived from what runs there, never counted along."""
    free = host.resources.amounts()
    for resources in running:
        for name, amount in resources.amounts().items():
            free[name] -= amount
    return free
