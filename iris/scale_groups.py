"""Scale groups: kinds of slice, how many of each there may be, and at what pace they come and go. Everything is decided here:
defaults have been applied, durations are durations."""

from datetime import timedelta
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from iris import constraints, names
from iris.constraints import Attribute
from iris.hosts import Host
from iris.resources import DeviceKind, Resources


class SliceType(StrEnum):
    """What a slice is made of."""

    TPU_VM = "tpu_vm"  # one TPU slice, with as many VMs as it has hosts
    GCE_VM = "gce_vm"  # one virtual machine
    MANUAL_VM = "manual_vm"  # machines that are there anyway
    LOCAL_VM = "local_vm"  # processes on this machine, which claim to be any of the others


class Pace(BaseModel):
    """How fast a group grows and shrinks, and for how long it keeps away from what has just failed."""

    model_config = ConfigDict(frozen=True)

    #: After a scale-up the group waits so long before the next.
    scale_up_delay: timedelta = timedelta(seconds=60)
    #: A slice whose hosts have all been free for so long is given back.
    scale_down_delay: timedelta = timedelta(minutes=5)
    #: A request that the platform has not answered for so long no longer holds up others.
    requesting_timeout: timedelta = timedelta(seconds=120)
    #: After the platform has said that a quota is used up, nothing is asked of the group for so long.
    quota_timeout: timedelta = timedelta(minutes=5)
    #: After a failure: doubled with each in a row, up to the most; one slice that becomes ready ends it.
    backoff: timedelta = timedelta(seconds=5)
    max_backoff: timedelta = timedelta(minutes=5)
    #: After a zone had no capacity: doubled with each time in a row, up to the most.
    stockout_delay: timedelta = timedelta(seconds=30)
    max_stockout_delay: timedelta = timedelta(minutes=10)
    #: At most so many slices asked for and given back in a minute.
    scale_ups_per_minute: int = 16
    scale_downs_per_minute: int = 32
    #: From the platform's yes until the machines exist.
    boot_timeout: timedelta = timedelta(minutes=5)
    #: From then until every agent has reported.
    init_timeout: timedelta = timedelta(minutes=10)


class ScaleGroup(BaseModel):
    """A kind of slice, as the autoscaler and the platforms need to know it."""

    model_config = ConfigDict(frozen=True)

    name: str
    type: SliceType
    #: Where its slices may be, the preferred zone first; at least one.
    zones: tuple[str, ...]
    #: Machines in one slice.
    hosts: int = 1
    #: What each of them offers.
    resources: Resources
    #: What else is true of each of them, beside what follows from the group.
    attributes: dict[str, Attribute] = Field(default_factory=dict)
    topology: str = ""
    #: As the platform calls it; empty for machines without accelerators.
    accelerator_variant: str = ""
    runtime_version: str = ""
    machine_type: str = ""
    preemptible: bool = False
    #: The reservation that pays for its slices; empty: none.
    reservation: str = ""
    #: Asked for as queued resources, which may wait for hours until there is capacity.
    queued: bool = False
    #: Whether a host with accelerators also takes tasks that want none.
    accept_cpu_jobs: bool = False
    #: The container image of tasks that name none; empty: they are processes.
    task_image: str = ""
    #: Groups with a lower number are asked first.
    priority: int = 100
    min_slices: int = 0
    max_slices: int
    #: So many slices beyond what is wanted now.
    buffer_slices: int = 0
    pace: Pace = Pace()

    def slice_hosts(self, slice_id: str, zone: str, incarnation: str = "", address: str = "") -> tuple[Host, ...]:
        """The hosts that a slice of the group has, by worker id."""
        return tuple(
            Host(
                id=names.host_of_slice(slice_id, worker, self.hosts),
                slice_id=slice_id,
                incarnation=incarnation,
                address=address,
                resources=self.resources,
                attributes=self.host_attributes(slice_id, zone, worker),
                accept_cpu_jobs=self.accept_cpu_jobs,
            )
            for worker in range(self.hosts)
        )

    def host_attributes(self, slice_id: str, zone: str, worker: int) -> dict[str, Attribute]:
        """What is true of a slice's host with this worker id; what the group says itself goes before what follows."""
        follows: dict[str, Attribute] = {
            constraints.SCALE_GROUP: self.name,
            constraints.ZONE: zone,
            constraints.REGION: region_of(zone),
            constraints.PREEMPTIBLE: self.preemptible,
        }
        device = self.resources.device
        if device is not None and device.kind is DeviceKind.TPU:
            follows[constraints.TPU_NAME] = slice_id
            follows[constraints.TPU_WORKER_ID] = worker
            follows[constraints.TPU_VM_COUNT] = self.hosts
            if self.topology:
                follows[constraints.TPU_TOPOLOGY] = self.topology
        return {**follows, **self.attributes}


def unknown_group(name: str, zone: str, hosts: int = 1) -> ScaleGroup:
    """In the place of a group that the configuration no longer has: enough to give its slices back."""
    kind = SliceType.LOCAL_VM
    return ScaleGroup(name=name or "unknown", type=kind, zones=(zone,), hosts=hosts, resources=Resources(), max_slices=0)


def region_of(zone: str) -> str:
    """`europe-west4` of `europe-west4-b`."""
    return zone.rpartition("-")[0] or zone
