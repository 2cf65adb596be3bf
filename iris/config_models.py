"""What a configuration file may say, section by section. What a section does not say has the default that stands here, unless
`apply_defaults` finds another: a field that was written, be it as zero or false, is one of `model_fields_set`."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from iris.config_values import (
    Address,
    AnyPort,
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
from iris.constraints import Attribute
from iris.errors import InvalidValue
from iris.placement import Rules
from iris.scale_groups import Pace, SliceType
from iris.units import GIB

#: What a machine offers of which nothing is known: more than anybody asks for, so that a laptop runs whatever a fleet would.
LOCAL_CORES = 1000.0
LOCAL_MEMORY = 1000 * GIB
LOCAL_DISK = 1000 * GIB

_PACE = Pace()
_RULES = Rules()


class Accelerator(StrEnum):
    """What a group's machines calculate with."""

    CPU = "cpu"
    GPU = "gpu"
    TPU = "tpu"


def _chosen(section: Section) -> list[str]:
    """Which of the alternatives a section has."""
    return [name for name in ("gcp", "manual", "local") if getattr(section, name) is not None]


class GcpEndpoints(Section):
    """Where Google's APIs are, for those who have others than the public ones. `http://` or `grpc://` means plain and without
    credentials."""

    tpu: str = Field("", description="Of the Cloud TPU API; empty: tpu.googleapis.com.")
    compute: str = Field("", description="Of the Compute Engine API; empty: compute.googleapis.com.")


class GcpPlatform(Section):
    """Google Cloud."""

    project_id: str = Field(min_length=1, description="The project that pays.")
    region: str = Field("", description="Where the cluster is at home; unset: the region of the first default zone.")
    default_zones: tuple[str, ...] = Field((), description="Zones of every tpu_vm and gce_vm group that names none, best first.")
    label_prefix: str = Field("iris", description="First part of the names and labels of everything the cluster makes.")
    network: str = Field("default", min_length=1, description="The VPC network of its machines.")
    subnetwork: str = Field("", description="The subnetwork; empty: the network's own in the region.")
    external_ips: Flag = Field(
        True, description="Whether its machines have public addresses; without, images need Private Google Access or NAT."
    )
    network_tags: tuple[str, ...] = Field((), description="Network tags of its machines, for firewall rules.")
    service_account: str = Field("", description="Which its hosts act as; empty: the project's default one.")
    requests_per_minute: Annotated[int, Field(ge=1)] = Field(
        600, description="At most so many calls of Google's APIs; deletes go first."
    )
    endpoints: GcpEndpoints = Field(GcpEndpoints(), description="Where Google's APIs are.")


class ManualPlatform(Section):
    """Machines that are there anyway, reached over SSH."""


class LocalPlatform(Section):
    """Processes on this machine that claim to be machines."""


class Platform(Section):
    """Where the cluster's machines come from: exactly one of these."""

    gcp: GcpPlatform | None = Field(None, description="Google Cloud.")
    manual: ManualPlatform | None = Field(None, description="Machines that are there anyway.")
    local: LocalPlatform | None = Field(None, description="Processes on this machine.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        chosen = _chosen(self)
        if len(chosen) != 1:
            raise InvalidValue("platform", ", ".join(chosen), "is not one platform", "choose one of gcp, manual and local")
        return self

    @property
    def kind(self) -> str:
        """`gcp`, `manual` or `local`."""
        return _chosen(self)[0]


class PaceSettings(Section):
    """How fast a group grows and shrinks, and for how long it keeps away from what has just failed."""

    requesting_timeout: LastingDuration = Field(
        _PACE.requesting_timeout, description="A request the platform has not answered for so long no longer holds up others."
    )
    scale_up_delay: Duration = Field(_PACE.scale_up_delay, description="After asking for slices a group waits so long.")
    scale_down_delay: Duration = Field(
        _PACE.scale_down_delay, description="A slice whose hosts have all been free for so long is given back."
    )
    quota_timeout: Duration = Field(
        _PACE.quota_timeout,
        description="After the platform has said that a quota is used up, nothing is asked for so long.",
    )
    backoff: Duration = Field(_PACE.backoff, description="Pause after a failure; doubled with each in a row.")
    max_backoff: Duration = Field(_PACE.max_backoff, description="The longest such pause.")
    stockout_delay: Duration = Field(
        _PACE.stockout_delay, description="So long a zone without capacity is left alone; doubled with each time in a row."
    )
    max_stockout_delay: Duration = Field(_PACE.max_stockout_delay, description="The longest such pause.")
    scale_ups_per_minute: Rate = Field(_PACE.scale_ups_per_minute, description="At most so many slices asked for in a minute.")
    scale_downs_per_minute: Rate = Field(
        _PACE.scale_downs_per_minute, description="At most so many slices given back in a minute."
    )


class DeadlineSettings(Section):
    """How long machines may take."""

    boot_timeout: LastingDuration = Field(_PACE.boot_timeout, description="From the platform's yes until the machines exist.")
    init_timeout: LastingDuration = Field(_PACE.init_timeout, description="From then until every agent has reported.")


class Autoscaler(Section):
    """How often the whole cluster is looked at."""

    evaluation_interval: LastingDuration = Field(
        timedelta(seconds=10), description="The most that a change waits until the autoscaler decides again."
    )
    observe_interval: LastingDuration = Field(
        timedelta(seconds=15), description="How often the platform is asked which machines there are."
    )


class Scheduler(Section):
    """Who goes first, and who has to make room."""

    preemption: Flag = Field(_RULES.preemption, description="Whether jobs of stronger bands evict those of weaker ones.")
    patience: Duration = Field(_RULES.patience, description="How long a job is overtaken by smaller ones.")
    owed_after: Duration = Field(
        _RULES.owed_after, description="After how long without being given anything a user's next turn comes in any case."
    )
    min_run_time: Duration = Field(_RULES.min_run_time, description="How long a job has run before it may be evicted.")


class AutoscalerDefaults(PaceSettings, Autoscaler):
    """The pace of every group that does not set its own."""


class Timeouts(DeadlineSettings):
    """How long machines may take, where a group does not say."""

    ssh_poll_interval: LastingDuration = Field(
        timedelta(seconds=5), description="How often a machine that does not answer over SSH yet is tried again."
    )


class Ssh(Section):
    """How machines are reached over SSH, where a group does not say."""

    user: str = Field("root", min_length=1, description="Who logs in.")
    port: Port = Field(22, description="Where sshd listens.")
    connect_timeout: LastingDuration = Field(timedelta(seconds=30), description="How long one try may take.")
    key_file: str = Field("", description="The private key; empty: those of the SSH agent and of ~/.ssh.")


class Bootstrap(Section):
    """How a machine becomes a host."""

    image: str = Field("", description="Container image of the host agent; empty: machines run the agent installed on them.")
    task_image: str = Field("", description="Container image of tasks that name none; empty: they are processes of the host.")
    cache_dir: str = Field("/var/cache/iris", min_length=1, description="Where a host keeps bundles and environments.")
    env_vars: dict[str, str] = Field(default_factory=dict, description="In every task's environment, unless its job sets them.")


class Defaults(Section):
    """What holds wherever a group or section does not say otherwise."""

    autoscaler: AutoscalerDefaults = Field(AutoscalerDefaults(), description="The pace of every group.")
    timeouts: Timeouts = Field(Timeouts(), description="How long machines may take.")
    ssh: Ssh = Field(Ssh(), description="How machines are reached over SSH.")
    bootstrap: Bootstrap = Field(Bootstrap(), description="How a machine becomes a host.")


class GcpController(Section):
    """The control plane on a virtual machine of Google Cloud."""

    machine_type: str = Field("n2-standard-4", min_length=1, description="Of the virtual machine.")
    port: Port = Field(10000, description="Where clients and hosts find the cluster on it.")
    boot_disk: Size = Field(50 * GIB, description="Size of its disk.")
    zone: str = Field("", description="Where it is; unset: the first of platform.gcp.default_zones.")
    service_account: str = Field("", description="Which it acts as; empty: the project's default one.")
    iap: Flag = Field(
        False, description="Whether clients reach it through Identity-Aware Proxy, as they must without external_ips."
    )


class ManualController(Section):
    """The control plane on a machine that is there anyway."""

    host: Address = Field(description="The machine's address.")
    port: Port = Field(10000, description="Where clients and hosts find the cluster on it.")


class LocalController(Section):
    """The control plane as a process on this machine."""

    port: AnyPort = Field(0, description="Where clients find it; 0: any free port.")


class TemporalService(Section):
    """A Temporal service that is there anyway. TLS and API keys come from Temporal's own environment variables."""

    address: str = Field(min_length=1, description="`host:port` of its frontend.")
    namespace: str = Field("default", min_length=1, description="The namespace there.")


class Controller(Section):
    """The control plane: at most one of gcp, manual and local; unset: that of the platform."""

    image: str = Field("", description="Container image of the control plane; needed unless it is local.")
    bundle_prefix: str = Field(
        "", description="URL under which bundles, logs and results are kept; needed unless the control plane is local."
    )
    temporal: TemporalService | None = Field(
        None, description="The Temporal service to use; unset: one of its own, beside it, with its state on its disk."
    )
    gcp: GcpController | None = Field(None, description="On a virtual machine of Google Cloud.")
    manual: ManualController | None = Field(None, description="On a machine that is there anyway.")
    local: LocalController | None = Field(None, description="As a process on this machine.")

    @model_validator(mode="after")
    def _is_one_at_most(self) -> Self:
        chosen = _chosen(self)
        if len(chosen) > 1:
            raise InvalidValue("controller", ", ".join(chosen), "is more than one", "choose one of gcp, manual and local")
        return self

    @property
    def kind(self) -> str:
        """`gcp`, `manual` or `local`; empty: none was chosen, and the platform suggests none."""
        return next(iter(_chosen(self)), "")


class GroupResources(Section):
    """What each machine of a group offers; what is unset follows from the accelerator or the machine type."""

    cpu: Cores = Field(LOCAL_CORES, description="Cores; with a TPU variant or a machine type unset: what that has.")
    memory: Size = Field(LOCAL_MEMORY, description="Memory; with a TPU variant or a machine type unset: what that has.")
    disk: Size = Field(LOCAL_DISK, description="Disk; of a tpu_vm or gce_vm unset: 50g.")
    device: DeviceText = Field(
        "cpu", description="Accelerators, as KIND:VARIANT:COUNT; cpu: none; unset: as accelerator_variant says."
    )


class GroupShape(Section):
    """What a group's slices are, and how many there may be."""

    type: SliceType = Field(description="What a slice is: tpu_vm, gce_vm, manual_vm or local_vm.")
    accelerator_type: Accelerator = Field(
        Accelerator.CPU, description="cpu, gpu or tpu; unset: follows from accelerator_variant or resources.device."
    )
    accelerator_variant: str = Field(
        "", description="A TPU slice such as v5litepod-16, or GPUs such as H100x8; empty: no accelerators."
    )
    topology: str = Field("", description="How a TPU slice's chips are wired, such as 4x4; unset: as is usual for the variant.")
    runtime_version: str = Field("", description="Software image of a tpu_vm; unset: the usual one of the variant.")
    machine_type: str = Field("", description="Of a gce_vm, such as n2-standard-8; unset: the smallest n2 with its resources.")
    resources: GroupResources = Field(GroupResources(), description="What each machine offers.")
    min_slices: Count = Field(0, description="So many slices there are even when nobody wants them.")
    max_slices: Count = Field(1, description="Never more slices than this; of a manual_vm unset: one for each of its hosts.")
    buffer_slices: Count = Field(0, description="So many slices more than are wanted now.")
    zones: tuple[str, ...] = Field(
        (), description="Where slices may be, best first; unset, in a cloud: the default zones, else one zone without meaning."
    )
    preemptible: Flag = Field(False, description="Whether the platform may take slices back at any time; cheaper.")
    reservation: str = Field(
        "", description="Of a gce_vm or a queued tpu_vm: its NAME, or projects/OWNER/reservations/NAME, that pays; empty: none."
    )
    queued: Flag = Field(
        False, description="Of a tpu_vm: asked for as a queued resource, which may wait for hours until there is capacity."
    )
    priority: Whole = Field(100, description="Groups with a lower number are asked first.")
    accept_cpu_jobs: Flag = Field(False, description="Whether hosts with accelerators also take tasks that want none.")
    attributes: dict[str, Attribute] = Field(
        default_factory=dict, description="What else is true of each host, for constraints of jobs."
    )
    task_image: str = Field("", description="Container image of its tasks that name none; unset: bootstrap.task_image.")
    hosts: tuple[Address, ...] = Field((), description="The machines of a manual_vm group; each is a slice.")
    ssh_user: Annotated[str, Field(min_length=1)] = Field("root", description="Instead of defaults.ssh.user.")
    ssh_port: Port = Field(22, description="Instead of defaults.ssh.port.")
    ssh_key_file: str = Field("", description="Instead of defaults.ssh.key_file.")


class ScaleGroupConfig(DeadlineSettings, PaceSettings, GroupShape):
    """A kind of slice."""


class ClusterConfig(Section):
    """Everything about a cluster."""

    name: str = Field("iris", description="The cluster's name, which is part of the id of everything it keeps in Temporal.")
    platform: Platform = Field(description="Where the cluster's machines come from: one of gcp, manual and local.")
    defaults: Defaults = Field(Defaults(), description="What holds wherever a group or section does not say otherwise.")
    controller: Controller = Field(Controller(), description="The control plane.")
    bootstrap: Bootstrap = Field(Bootstrap(), description="How a machine becomes a host; goes before defaults.bootstrap.")
    autoscaler: Autoscaler = Field(
        Autoscaler(), description="How often the whole cluster is looked at; goes before defaults.autoscaler."
    )
    scheduler: Scheduler = Field(Scheduler(), description="Who goes first, and who has to make room.")
    scale_groups: dict[str, ScaleGroupConfig] = Field(default_factory=dict, description="The kinds of slice, by name.")

    @property
    def slice_prefix(self) -> str:
        """What the ids of all slices begin with; empty where nobody else has any."""
        return self.platform.gcp.label_prefix if self.platform.gcp is not None else ""
