"""Defines the configuration file, section by section, with the built-in defaults.

`apply_defaults` may find another default for a field that was not written. `model_fields_set` holds
the fields that were written, also those set to zero or false.
"""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from iris.config.temporal_service import TemporalService
from iris.config.texts import (
    Address,
    AttributeOfHost,
    CloudName,
    HostPath,
    Image,
    JumpHost,
    LoginUser,
    Mount,
    SshFile,
)
from iris.config.values import (
    AnyPort,
    Cores,
    Count,
    DeviceText,
    Duration,
    Flag,
    LastingDuration,
    Port,
    Rate,
    Scope,
    SecretSource,
    Section,
    Size,
    Whole,
)
from iris.model.errors import InvalidValue
from iris.model.host.store_limits import StoreLimits
from iris.model.rules import Rules
from iris.model.slice.scale_groups import Pace, SliceType
from iris.model.units import GIB, MIB

#: Resources of a local host for which nothing else is known. They exceed every request, so that a
#: laptop runs any fleet's jobs.
LOCAL_CORES = 1000.0
LOCAL_MEMORY = 1000 * GIB
LOCAL_DISK = 1000 * GIB

#: The scope of Google's that covers all APIs. The roles of the account then decide alone.
ALL_APIS = "cloud-platform"
#: The scopes that the agent needs, for the store and for images, and those of Google's own logging
#: and monitoring programs.
AGENT_SCOPES = ("devstorage.read_write", "logging.write", "monitoring.write")

_PACE = Pace()
_RULES = Rules()
_STORE = StoreLimits()


class Accelerator(StrEnum):
    """The kind of processor that a group's machines offer."""

    CPU = "cpu"
    GPU = "gpu"
    TPU = "tpu"


def _chosen(section: Section) -> list[str]:
    """Returns the alternatives that the section sets."""
    return [name for name in ("gcp", "manual", "local") if getattr(section, name) is not None]


class GcpEndpoints(Section):
    """Addresses of Google's APIs, if not the public ones. `http://` or `grpc://` means without TLS
    and without credentials.
    """

    tpu: str = Field("", description="Address of the Cloud TPU API; empty: tpu.googleapis.com.")
    compute: str = Field(
        "", description="Address of the Compute Engine API; empty: compute.googleapis.com."
    )
    secret_manager: str = Field(
        "",
        description=(
            "Address of the Secret Manager API; empty: https://secretmanager.googleapis.com."
        ),
    )


class GcpPlatformConfig(Section):
    """Settings of Google Cloud."""

    project_id: str = Field(min_length=1, description="The project that is billed.")
    region: CloudName = Field(
        "", description="The cluster's home region; unset: the region of the first default zone."
    )
    default_zones: tuple[str, ...] = Field(
        (), description="Zones of tpu_vm and gce_vm groups that set none, preferred first."
    )
    label_prefix: str = Field(
        "iris",
        description="Prefix of the names and labels of all resources that the cluster creates.",
    )
    network: CloudName = Field(
        "default", min_length=1, description="The VPC network of the machines."
    )
    subnetwork: CloudName = Field(
        "", description="The subnetwork; empty: the network's subnetwork in the region."
    )
    external_ips: Flag = Field(
        True,
        description=(
            "Whether machines have public addresses. If false, images need Private Google Access or"
            " NAT."
        ),
    )
    network_tags: tuple[CloudName, ...] = Field(
        (), description="Network tags of the machines, for firewall rules."
    )
    service_account: CloudName = Field(
        "", description="Service account of the hosts; empty: the project's default."
    )
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)] = Field(
        AGENT_SCOPES,
        description=(
            "Scopes of the hosts' credentials, which jobs can use within the account's roles;"
            " cloud-platform: all APIs. Unset, with references to Secret Manager: cloud-platform,"
            " because the agent needs it."
        ),
    )
    requests_per_minute: Annotated[int, Field(ge=1)] = Field(
        600, description="Limit on calls of Google's APIs; deletes go first."
    )
    endpoints: GcpEndpoints = Field(GcpEndpoints(), description="Addresses of Google's APIs.")


class ManualPlatform(Section):
    """Existing machines that Iris reaches over SSH."""


class LocalPlatformConfig(Section):
    """Processes on this machine that stand for machines."""


class PlatformConfig(Section):
    """The source of the cluster's machines: exactly one of these."""

    gcp: GcpPlatformConfig | None = Field(None, description="Google Cloud.")
    manual: ManualPlatform | None = Field(None, description="Existing machines.")
    local: LocalPlatformConfig | None = Field(None, description="Processes on this machine.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        chosen = _chosen(self)
        if len(chosen) != 1:
            raise InvalidValue(
                "platform",
                ", ".join(chosen),
                "is not exactly one platform",
                "use one of gcp, manual and local",
            )
        return self

    @property
    def kind(self) -> str:
        """The chosen platform: `gcp`, `manual` or `local`."""
        return _chosen(self)[0]


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
    max_backoff: Duration = Field(_PACE.max_backoff, description="The longest such delay.")
    stockout_delay: Duration = Field(
        _PACE.stockout_delay,
        description="How long a zone without capacity is avoided; doubled each time in a row.",
    )
    max_stockout_delay: Duration = Field(
        _PACE.max_stockout_delay, description="The longest such delay; unset for a manual_vm: 1m."
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
        _PACE.init_timeout, description="Time limit from then until every agent has reported."
    )


class Autoscaler(Section):
    """The intervals at which the autoscaler evaluates and observes the whole cluster."""

    evaluation_interval: LastingDuration = Field(
        timedelta(seconds=10),
        description="The longest that a change waits for the autoscaler's next decision.",
    )
    observe_interval: LastingDuration = Field(
        timedelta(seconds=15), description="How often Iris lists the platform's machines."
    )


class Scheduler(Section):
    """The order in which jobs are scheduled, and which jobs may be preempted."""

    preemption: Flag = Field(
        _RULES.preemption, description="Whether jobs of higher bands evict jobs of lower bands."
    )
    patience: Duration = Field(
        _RULES.patience, description="How long smaller jobs may overtake a job."
    )
    owed_after: Duration = Field(
        _RULES.owed_after,
        description=(
            "After this long without a placement, the resources that a user holds no longer delay"
            " the user's next turn."
        ),
    )
    min_run_time: Duration = Field(
        _RULES.min_run_time, description="How long a job must have run before it may be evicted."
    )
    lease: LastingDuration = Field(
        _RULES.lease,
        description=(
            "How long programs run on without contact between their host and the Temporal server;"
            " unset for gcp: 5m."
        ),
    )


class AutoscalerDefaults(PaceSettings, Autoscaler):
    """The autoscaling settings of every group that does not set its own."""


class Timeouts(DeadlineSettings):
    """Time limits for machines, for groups that do not set their own."""

    ssh_poll_interval: LastingDuration = Field(
        timedelta(seconds=5),
        description="How often Iris retries a machine that does not answer over SSH.",
    )


class Ssh(Section):
    """SSH settings, for groups that do not set their own."""

    user: LoginUser = Field("root", min_length=1, description="The login user.")
    port: Port = Field(22, description="The port of sshd.")
    connect_timeout: LastingDuration = Field(
        timedelta(seconds=30), description="Time limit of one attempt to connect."
    )
    key_file: SshFile = Field(
        "",
        description=(
            "The private key; empty: the keys of the SSH agent and of ~/.ssh; with platform.gcp:"
            " gcp:SECRET."
        ),
    )
    jump_host: JumpHost = Field(
        "",
        description=(
            "The machine through which the others are reached: [USER@]HOST[:PORT]; empty: none."
        ),
    )
    known_hosts: SshFile = Field(
        "~/.ssh/known_hosts",
        min_length=1,
        description="The file with the trusted keys of machines; with platform.gcp: gcp:SECRET.",
    )


class Bootstrap(Section):
    """The settings that turn a machine into a host."""

    free_texts = frozenset({"env_vars"})

    image: Image = Field(
        "",
        description="Container image of the host agent; empty: machines run their installed agent.",
    )
    task_image: Image = Field(
        "",
        description=(
            "Container image of tasks that name none; empty: they run as processes of the host."
        ),
    )
    require_image_digests: Flag = Field(
        False,
        description=(
            "Whether tasks' images must be named by digest, NAME@sha256:…; a task whose image is"
            " not fails."
        ),
    )
    cache_dir: HostPath = Field(
        "/var/cache/iris", min_length=1, description="Where a host keeps bundles and environments."
    )
    mounts: tuple[Mount, ...] = Field(
        (),
        description=(
            "Host directories mounted in every task container, readable and writable. No others are"
            " mounted."
        ),
    )
    env_vars: dict[str, str] = Field(
        default_factory=dict,
        description="Environment variables of every task, unless its job sets them.",
    )
    max_logs: Size = Field(
        _STORE.logs, description="The most bytes of log that one attempt of a task stores."
    )
    max_outputs: Size = Field(
        _STORE.outputs,
        description="The most bytes of output files that one attempt of a task stores.",
    )
    max_checkpoint: Size = Field(
        _STORE.checkpoint,
        description="The most bytes of a task's checkpoint directory that are saved.",
    )
    max_disk: Annotated[Size, Field(ge=MIB)] = Field(
        _STORE.disk,
        description=(
            "The most bytes that one attempt of a task may use on its host's disks; with more, it"
            " fails."
        ),
    )
    secrets: tuple[str, ...] = Field(
        (),
        description=(
            "Secrets of hosts that jobs may use: host-env:NAME, host-file:/PATH,"
            " gcp:projects/PROJECT/secrets/SECRET, or a beginning followed by *; unset for local:"
            " all that the user has, unless run_as is a range."
        ),
    )
    run_as: str = Field(
        "",
        description=(
            "Uids of tasks that run as processes, one each: `FIRST-LAST`; `root`: the agent's user;"
            " empty: 60706-61183, or the agent's user if that is not root or the cluster is local."
        ),
    )


class Defaults(Section):
    """Values for every group or section that does not set its own."""

    autoscaler: AutoscalerDefaults = Field(
        AutoscalerDefaults(), description="How fast every group scales."
    )
    timeouts: Timeouts = Field(Timeouts(), description="Time limits for machines.")
    ssh: Ssh = Field(Ssh(), description="SSH settings.")
    bootstrap: Bootstrap = Field(Bootstrap(), description="How a machine becomes a host.")


class GcpControllerConfig(Section):
    """The control plane on a virtual machine of Google Cloud."""

    machine_type: CloudName = Field(
        "n2-standard-4", min_length=1, description="Machine type of the VM."
    )
    port: Port = Field(10000, description="The port for clients and hosts.")
    boot_disk: Size = Field(50 * GIB, description="Size of the boot disk.")
    zone: CloudName = Field(
        "", description="Zone of the VM; unset: the first of platform.gcp.default_zones."
    )
    service_account: CloudName = Field(
        "", description="Service account of the VM; empty: the project's default."
    )
    iap: Flag = Field(
        False,
        description=(
            "Whether clients connect through Identity-Aware Proxy. Required without external_ips."
        ),
    )


class ManualController(Section):
    """The control plane on an existing machine, which Iris reaches over SSH."""

    host: Address = Field(description="The machine's address.")
    port: Port = Field(
        10000,
        description=(
            "The port of the Temporal service, which listens at 127.0.0.1 of the machine only."
        ),
    )
    ssh_user: LoginUser = Field("", description="The login user; empty: defaults.ssh.user.")
    ssh_port: AnyPort = Field(0, description="The port of sshd; 0: defaults.ssh.port.")
    ssh_key_file: SshFile = Field(
        "", description="The private key on your machine; empty: defaults.ssh.key_file."
    )
    ssh_jump_host: JumpHost = Field(
        "", description="[USER@]HOST[:PORT]; empty: defaults.ssh.jump_host."
    )


class LocalControllerConfig(Section):
    """The control plane as a process on this machine."""

    port: AnyPort = Field(0, description="The port for clients; 0: any free port.")


class Controller(Section):
    """The control plane: at most one of gcp, manual and local; unset: the platform decides."""

    image: Image = Field(
        "", description="Container image of the control plane; required by controller.gcp."
    )
    bundle_prefix: str = Field(
        "",
        description=(
            "URL prefix of bundles, logs and results; required unless the control plane is local."
        ),
    )
    temporal: TemporalService | None = Field(
        None,
        description=(
            "The Temporal service to use; unset: the control plane runs its own, with the state on"
            " its disk."
        ),
    )
    payload_keys: SecretSource = Field(
        "", description="Payload keys on Google Cloud: gcp:SECRET or file:/PATH; empty: none."
    )
    secret_keys: SecretSource = Field(
        "",
        description=(
            "Keys for users' secrets on Google Cloud: gcp:SECRET or file:/PATH; empty: users can"
            " give jobs none."
        ),
    )
    gcp: GcpControllerConfig | None = Field(None, description="A virtual machine of Google Cloud.")
    manual: ManualController | None = Field(None, description="An existing machine.")
    local: LocalControllerConfig | None = Field(None, description="A process on this machine.")

    @model_validator(mode="after")
    def _is_one_at_most(self) -> Self:
        chosen = _chosen(self)
        if len(chosen) > 1:
            raise InvalidValue(
                "controller",
                ", ".join(chosen),
                "has more than one kind",
                "use one of gcp, manual and local",
            )
        return self

    @property
    def kind(self) -> str:
        """The chosen control plane: `gcp`, `manual` or `local`. Empty: none was chosen, and the
        platform has no default.
        """
        return next(iter(_chosen(self)), "")


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
            "Those of hosts that leave the group: slices there are still served, and no new one"
            " begins there."
        ),
    )
    ssh_user: Annotated[LoginUser, Field(min_length=1)] = Field(
        "root", description="Overrides defaults.ssh.user."
    )
    ssh_port: Port = Field(22, description="Overrides defaults.ssh.port.")
    ssh_key_file: SshFile = Field("", description="Overrides defaults.ssh.key_file.")
    ssh_jump_host: JumpHost = Field("", description="Overrides defaults.ssh.jump_host.")


class ScaleGroupConfig(DeadlineSettings, PaceSettings, GroupShape):
    """A kind of slice."""


class ClusterConfig(Section):
    """The configuration of a cluster."""

    name: str = Field(
        "iris", description="The cluster's name, part of the id of everything it keeps in Temporal."
    )
    platform: PlatformConfig = Field(
        description="The source of the cluster's machines: one of gcp, manual and local."
    )
    defaults: Defaults = Field(
        Defaults(), description="Values for groups and sections that do not set their own."
    )
    controller: Controller = Field(Controller(), description="The control plane.")
    bootstrap: Bootstrap = Field(
        Bootstrap(), description="How a machine becomes a host; overrides defaults.bootstrap."
    )
    autoscaler: Autoscaler = Field(
        Autoscaler(),
        description=(
            "How often the whole cluster is evaluated and observed; overrides defaults.autoscaler."
        ),
    )
    scheduler: Scheduler = Field(
        Scheduler(), description="The order of jobs, and which jobs may be evicted."
    )
    scale_groups: dict[str, ScaleGroupConfig] = Field(
        default_factory=dict, description="The kinds of slice, by name."
    )

    @property
    def slice_prefix(self) -> str:
        """The prefix of all slice ids. Empty except on Google Cloud, where other clusters may have
        slices too.
        """
        return self.platform.gcp.label_prefix if self.platform.gcp is not None else ""
