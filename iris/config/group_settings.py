"""Defines a group of the section `scale_groups`: its slices, its machines and its pace."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from iris.config.texts import (
    Address,
    AttributeOfHost,
    CloudName,
    Image,
    JumpHost,
    LoginUser,
    SshFile,
)
from iris.config.values import (
    Cores,
    Count,
    DeviceText,
    Duration,
    Flag,
    LastingDuration,
    Port,
    Rate,
    Section,
    Size,
    Whole,
)
from iris.model.slice.scale_groups import Pace, SliceType
from iris.model.units import GIB

#: The default number of cores of a local host. The default resources of a local host exceed every
#: request, so that a laptop can run the jobs of any fleet.
LOCAL_CORES = 1000.0
#: The default memory of a local host, in bytes.
LOCAL_MEMORY = 1000 * GIB
#: The default disk space of a local host, in bytes.
LOCAL_DISK = 1000 * GIB

_PACE = Pace()


class Accelerator(StrEnum):
    """The kind of processor that a group's machines offer."""

    CPU = "cpu"
    GPU = "gpu"
    TPU = "tpu"


class PaceSettings(Section):
    """A group's pace: how fast it grows and shrinks, and how long it waits after a failure."""

    requesting_timeout: LastingDuration = Field(
        _PACE.requesting_timeout,
        description=(
            "A request that the platform has not answered for this long no longer delays other"
            " requests."
        ),
    )
    scale_up_delay: Duration = Field(
        _PACE.scale_up_delay, description="Delay after a scale-up before the group's next one."
    )
    scale_down_delay: Duration = Field(
        _PACE.scale_down_delay,
        description="A slice whose hosts have all been free for this long is deleted.",
    )
    quota_timeout: Duration = Field(
        _PACE.quota_timeout,
        description=(
            "After the platform reports a used-up quota, nothing is requested for this long."
        ),
    )
    backoff: Duration = Field(
        _PACE.backoff, description="Delay after a failure; doubled with each failure in a row."
    )
    max_backoff: Duration = Field(_PACE.max_backoff, description="Limit of backoff.")
    stockout_delay: Duration = Field(
        _PACE.stockout_delay,
        description="How long a zone without capacity is avoided; doubled each time in a row.",
    )
    max_stockout_delay: Duration = Field(
        _PACE.max_stockout_delay, description="Limit of stockout_delay; unset for a manual_vm: 1m."
    )
    scale_ups_per_minute: Rate = Field(
        _PACE.scale_ups_per_minute, description="Limit on slices requested in a minute."
    )
    scale_downs_per_minute: Rate = Field(
        _PACE.scale_downs_per_minute, description="Limit on slices deleted in a minute."
    )


class DeadlineSettings(Section):
    """Time limits for a machine to start."""

    boot_timeout: LastingDuration = Field(
        _PACE.boot_timeout,
        description="Time limit from the platform's acceptance until the machines exist.",
    )
    init_timeout: LastingDuration = Field(
        _PACE.init_timeout,
        description="Time limit from the existence of the machines until every agent has reported.",
    )


class GroupResources(Section):
    """The resources of each machine of a group. Unset values follow from the accelerator or the
    machine type.
    """

    cpu: Cores = Field(
        LOCAL_CORES, description="Cores; unset: those of the TPU variant or the machine type."
    )
    memory: Size = Field(
        LOCAL_MEMORY, description="Memory; unset: that of the TPU variant or the machine type."
    )
    disk: Size = Field(LOCAL_DISK, description="Disk; unset for a tpu_vm or gce_vm: 50g.")
    device: DeviceText = Field(
        "cpu",
        description=(
            "Accelerators as KIND:VARIANT:COUNT; cpu: none; unset: those of accelerator_variant."
        ),
    )


class GroupShape(Section):
    """The kind and the number of a group's slices."""

    type: SliceType = Field(description="Type of a slice: tpu_vm, gce_vm, manual_vm or local_vm.")
    accelerator_type: Accelerator = Field(
        Accelerator.CPU,
        description="cpu, gpu or tpu; unset: follows from accelerator_variant or resources.device.",
    )
    accelerator_variant: str = Field(
        "",
        description=(
            "A TPU slice such as v5litepod-16, or GPUs such as H100x8; empty: no accelerators."
        ),
    )
    topology: CloudName = Field(
        "",
        description="Topology of a TPU slice's chips, such as 4x4; unset: the variant's usual one.",
    )
    runtime_version: CloudName = Field(
        "", description="Software image of a tpu_vm; unset: the variant's usual one."
    )
    machine_type: CloudName = Field(
        "",
        description=(
            "Machine type of a gce_vm, such as n2-standard-8; unset: the smallest n2 with its"
            " resources."
        ),
    )
    resources: GroupResources = Field(GroupResources(), description="Resources of each machine.")
    reserved_memory: Size = Field(
        0,
        description=(
            "Memory of each machine that its host does not offer; unset for a tpu_vm or gce_vm: 1g"
            " and 2%."
        ),
    )
    reserved_disk: Size = Field(
        0,
        description=(
            "Disk of each machine that its host does not offer; unset for a gce_vm: 10%, at least"
            " 15g."
        ),
    )
    min_slices: Count = Field(0, description="The number of slices to keep without demand.")
    max_slices: Count = Field(
        1, description="Limit on slices; unset for a manual_vm: one for each of its hosts."
    )
    buffer_slices: Count = Field(
        0, description="The number of slices to keep beyond the current demand."
    )
    zones: tuple[str, ...] = Field(
        (),
        description=(
            "Zones of the slices, preferred first; unset: the default zones in a cloud, elsewhere"
            " one placeholder zone."
        ),
    )
    preemptible: Flag = Field(
        False, description="Whether the platform may preempt slices at any time, at a lower price."
    )
    reservation: str = Field(
        "",
        description=(
            "Reservation of a gce_vm or a queued tpu_vm: NAME or projects/OWNER/reservations/NAME;"
            " empty: none."
        ),
    )
    queued: Flag = Field(
        False,
        description=(
            "Whether a tpu_vm is requested as a queued resource, which may wait for hours for"
            " capacity."
        ),
    )
    priority: Whole = Field(100, description="Groups with a lower number are tried first.")
    accept_cpu_jobs: Flag = Field(
        False, description="Whether hosts with accelerators also accept tasks that request none."
    )
    attributes: dict[str, AttributeOfHost] = Field(
        default_factory=dict,
        description="Further attributes of each host, for constraints of jobs.",
    )
    task_image: Image = Field(
        "", description="Container image of its tasks that name none; unset: bootstrap.task_image."
    )
    hosts: tuple[Address, ...] = Field(
        (), description="The machines of a manual_vm group; each is a slice."
    )
    retiring_hosts: tuple[Address, ...] = Field(
        (),
        description=(
            "Machines of hosts that leave the group: their slices continue, and they get no new"
            " ones."
        ),
    )
    ssh_user: Annotated[LoginUser, Field(min_length=1)] = Field(
        "root", description="Overrides defaults.ssh.user."
    )
    ssh_port: Port = Field(22, description="Overrides defaults.ssh.port.")
    ssh_key_file: SshFile = Field("", description="Overrides defaults.ssh.key_file.")
    ssh_jump_host: JumpHost = Field("", description="Overrides defaults.ssh.jump_host.")


class ScaleGroupConfig(DeadlineSettings, PaceSettings, GroupShape):
    """A scale group: slices of one kind, and how many of them the autoscaler may create."""
