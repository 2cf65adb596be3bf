"""A host: one machine with an agent, belonging to exactly one slice, and what is free on it."""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field

from iris.resources import Resources

Attribute = str | int | float | bool


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


def headroom(host: Host, running: Iterable[Resources]) -> dict[str, int]:
    """What is free on the host: derived from what runs there, never counted along."""
    free = host.resources.amounts()
    for resources in running:
        for name, amount in resources.amounts().items():
            free[name] -= amount
    return free
