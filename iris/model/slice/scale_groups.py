"""Scale groups: kinds of slice, with their limits and the timing of scaling.

Defaults are applied already, and durations are `timedelta`.
"""

import re
from datetime import timedelta
from enum import StrEnum

from pydantic import Field

from iris.model import names
from iris.model.frozen import Frozen
from iris.model.host import constraints
from iris.model.host.constraints import Attribute, same_attributes
from iris.model.host.hosts import Host
from iris.model.host.resources import DeviceKind, Resources

_GCP_ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]+-([a-z]|ai[0-9]+[a-z])")


class SliceType(StrEnum):
    """The kind of machines of a slice."""

    TPU_VM = "tpu_vm"  # one TPU slice, with as many VMs as it has hosts
    GCE_VM = "gce_vm"  # one VM of Compute Engine
    MANUAL_VM = "manual_vm"  # machines that exist already
    LOCAL_VM = "local_vm"  # processes on this machine, which simulate machines of the other types


class Pace(Frozen):
    """The timing of a group's scaling, and how long the group avoids a failed zone or quota."""

    #: The shortest time between two scale-ups of the group.
    scale_up_delay: timedelta = timedelta(seconds=60)
    #: A slice is deleted after all its hosts have been free for this long.
    scale_down_delay: timedelta = timedelta(minutes=5)
    #: How long the group makes no further request for a slice while the platform has not answered
    #: one. Also how long gangs wait for the capacity of a slice that is being deleted, instead of
    #: using another group.
    requesting_timeout: timedelta = timedelta(seconds=120)
    #: How long the group requests no slices after the platform has reported a used-up quota.
    quota_timeout: timedelta = timedelta(minutes=5)
    #: The delay of the group's next request after a failure to get a slice. The delay doubles with
    #: each failure in a row, up to `max_backoff`. When a slice becomes ready, the next delay is
    #: short again.
    backoff: timedelta = timedelta(seconds=5)
    #: The longest delay after failures in a row to get a slice (`backoff`).
    max_backoff: timedelta = timedelta(minutes=5)
    #: How long the group avoids a zone that had no capacity. The time doubles with each stock-out
    #: of the zone in a row, up to `max_stockout_delay`.
    stockout_delay: timedelta = timedelta(seconds=30)
    #: The longest time that the group avoids a zone that had no capacity (`stockout_delay`).
    max_stockout_delay: timedelta = timedelta(minutes=10)
    #: The limit on slices that the group requests in a minute.
    scale_ups_per_minute: int = 16
    #: The limit on slices of the group that are deleted in a minute.
    scale_downs_per_minute: int = 32
    #: The time limit from the platform's acceptance of the request for a slice until the slice's
    #: machines exist.
    boot_timeout: timedelta = timedelta(minutes=5)
    #: The time limit from the existence of a slice's machines until all their agents have reported
    #: that they are ready.
    init_timeout: timedelta = timedelta(minutes=10)


class ScaleGroup(Frozen):
    """A group of slices of one kind, with the settings that the autoscaler and the platforms
    need.
    """

    name: str
    type: SliceType
    #: The zones in which the group may create slices, the preferred zone first. There is at least
    #: one.
    zones: tuple[str, ...]
    #: The number of machines in one slice.
    hosts: int = 1
    #: The resources of each machine.
    resources: Resources
    #: The memory of a machine, in bytes, that the system and Iris use. Hosts do not offer it to
    #: tasks.
    reserved_memory: int = 0
    #: The disk space of a machine, in bytes, that the system and Iris use. Hosts do not offer it to
    #: tasks.
    reserved_disk: int = 0
    #: More attributes of each machine, in addition to those that follow from the group's other
    #: settings.
    attributes: dict[str, Attribute] = Field(default_factory=dict)
    topology: str = ""
    #: The platform's name for the accelerator; empty for machines without accelerators.
    accelerator_variant: str = ""
    runtime_version: str = ""
    machine_type: str = ""
    preemptible: bool = False
    #: The reservation from which the platform creates the slices; empty for none.
    reservation: str = ""
    #: Whether slices are requested as queued resources, which may wait for hours for capacity.
    queued: bool = False
    #: Whether a host with accelerators also accepts tasks that request no accelerator.
    accept_cpu_jobs: bool = False
    #: The container image of tasks that do not name an image. If it is empty, these tasks run as
    #: processes.
    task_image: str = ""
    #: The priority of the group. Groups with a lower number are used first.
    priority: int = 100
    min_slices: int = 0
    max_slices: int
    #: The number of existing machines from which the slices are made; 0 if the platform creates
    #: machines.
    machines: int = 0
    #: The number of free slices to keep in addition to the current demand.
    buffer_slices: int = 0
    pace: Pace = Pace()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScaleGroup):
            return NotImplemented
        return super().__eq__(other) and same_attributes(self.attributes, other.attributes)

    @property
    def is_pool(self) -> bool:
        """Whether the group is a pool whose machines limit its slices, not `max_slices`."""
        return 0 < self.machines <= self.max_slices

    @property
    def limit_reached(self) -> str:
        """Why the group can have no more slices. The text ends a sentence about the group."""
        if not self.is_pool:
            return f"at max_slices {self.max_slices}"
        return (
            "uses the only machine of its pool"
            if self.machines == 1
            else f"uses all {self.machines} machines of its pool"
        )

    @property
    def offers(self) -> Resources:
        """The resources that each host offers to tasks: those of its machine without the reserved
        part.
        """
        if not self.reserved_memory and not self.reserved_disk:
            return self.resources
        return Resources(
            cpu_millis=self.resources.cpu_millis,
            memory_bytes=max(0, self.resources.memory_bytes - self.reserved_memory),
            disk_bytes=max(0, self.resources.disk_bytes - self.reserved_disk),
            device=self.resources.device,
        )

    def with_reserve(self, host: Host) -> Host:
        """Returns the host of an agent's report without the reserved memory. It offers at most the
        memory that the group promises.

        The disk needs no such limit, because an agent reports only free disk space.
        """
        most = self.offers.memory_bytes
        if not self.reserved_memory or host.resources.memory_bytes <= most:
            return host
        found = host.resources
        offers = Resources(
            cpu_millis=found.cpu_millis,
            memory_bytes=most,
            disk_bytes=found.disk_bytes,
            device=found.device,
        )
        return host.model_copy(update={"resources": offers})

    def slice_hosts(
        self, slice_id: str, zone: str, incarnation: str = "", address: str = ""
    ) -> tuple[Host, ...]:
        """Returns the hosts of a slice of the group, by worker id."""
        return tuple(
            Host(
                id=names.host_of_slice(slice_id, worker, self.hosts),
                slice_id=slice_id,
                incarnation=incarnation,
                address=address,
                resources=self.offers,
                attributes=self.host_attributes(slice_id, zone, worker),
                accept_cpu_jobs=self.accept_cpu_jobs,
            )
            for worker in range(self.hosts)
        )

    def host_attributes(self, slice_id: str, zone: str, worker: int) -> dict[str, Attribute]:
        """Returns the attributes of the slice's host with this worker id. The group's own
        attributes override derived ones.
        """
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
    """Returns a substitute for a group that the configuration no longer has. It suffices to delete
    the group's slices.
    """
    kind = SliceType.LOCAL_VM
    return ScaleGroup(
        name=name or "unknown",
        type=kind,
        zones=(zone,),
        hosts=hosts,
        resources=Resources(),
        max_slices=0,
    )


def is_gcp_zone(zone: str) -> bool:
    """Returns whether the text has the form of a zone of Google Cloud."""
    return _GCP_ZONE.fullmatch(zone) is not None


def region_of(zone: str) -> str:
    """Returns `europe-west4` for `europe-west4-b`."""
    return zone.rpartition("-")[0] or zone
