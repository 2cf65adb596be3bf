"""Defines the configuration file, section by section, with the built-in defaults.

If a field is not set, `apply_defaults` may replace its built-in default. `model_fields_set`
contains the fields that the user set, also to zero or false.
"""

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, model_validator

from iris.config.accounting import BudgetConfig, Prices
from iris.config.controller_settings import Controller
from iris.config.group_settings import DeadlineSettings, PaceSettings, ScaleGroupConfig
from iris.config.quota_settings import QuotaConfig
from iris.config.texts import (
    CloudName,
    HostPath,
    Image,
    IpAddress,
    JumpHost,
    LoginUser,
    Mount,
    SshFile,
)
from iris.config.values import (
    AnyPort,
    Count,
    Duration,
    Flag,
    LastingDuration,
    Port,
    Scope,
    Section,
    Size,
    platforms_of,
)
from iris.model.errors import InvalidValue
from iris.model.host.store_limits import StoreLimits
from iris.model.rules import Rules
from iris.model.units import MIB

#: Google's scope for all APIs. With it, only the roles of the account limit the access.
ALL_APIS = "cloud-platform"
#: The scopes that the agent needs for the store and for images, and the scopes of Google's own
#: logging and monitoring programs.
AGENT_SCOPES = ("devstorage.read_write", "logging.write", "monitoring.write")

_RULES = Rules()
_STORE = StoreLimits()


class GcpEndpoints(Section):
    """Addresses of Google's APIs, for a cluster that does not use the public ones, such as a test.
    Iris uses neither TLS nor credentials with an address that begins with `http://` or `grpc://`.
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
    """The section of the local platform, whose machines are processes on this machine."""


class PlatformConfig(Section):
    """The source of the cluster's machines. Exactly one of gcp, manual and local must be set."""

    gcp: GcpPlatformConfig | None = Field(None, description="Google Cloud.")
    manual: ManualPlatform | None = Field(None, description="Existing machines.")
    local: LocalPlatformConfig | None = Field(None, description="Processes on this machine.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        chosen = platforms_of(self)
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
        return platforms_of(self)[0]


class Autoscaler(Section):
    """The intervals at which the autoscaler evaluates and observes the whole cluster."""

    evaluation_interval: LastingDuration = Field(
        timedelta(seconds=10),
        description="Longest time from a change to the autoscaler's next decision.",
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
            "Whether tasks' images must be named by digest, NAME@sha256:…; tasks with other images"
            " fail."
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


class Metrics(Section):
    """Metrics for Prometheus, which processes serve at `/metrics`."""

    controller_port: AnyPort = Field(0, description="Port of the control plane's metrics; 0: none.")
    host_port: AnyPort = Field(
        0, description="Port of the agent's metrics on each machine of the cluster; 0: none."
    )
    address: IpAddress = Field(
        "127.0.0.1",
        description=(
            "IP address of the machine at which both ports listen; 0.0.0.0: all of them. Everybody"
            " who reaches it can read the metrics."
        ),
    )


class Dashboard(Section):
    """The web pages about the cluster, which the control plane serves."""

    port: AnyPort | None = Field(
        None,
        description=(
            "Port of the pages on the machine of the control plane; 0: none. Unset: the second port"
            " after the Temporal service's, or a free one for a control plane on this machine."
        ),
    )
    address: IpAddress = Field(
        "127.0.0.1",
        description=(
            "IP address of the machine at which the pages are served. Everybody who reaches it can"
            " read them."
        ),
    )
    names: tuple[str, ...] = Field(
        (),
        description=(
            "Host names with which browsers may ask for the pages, besides localhost and IP"
            " addresses."
        ),
    )
    url: str = Field(
        "",
        description=(
            "Address at which people open the pages, such as https://iris.example.com of a proxy."
            " Commands print it, and each job's page in Temporal's Web UI links to it. Unset: it"
            " follows from address, names and port."
        ),
    )
    allow_actions: bool = Field(
        False,
        description=(
            "Whether the pages can change jobs, hosts and slices. Possible only at a loopback"
            " address."
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
    metrics: Metrics = Field(Metrics(), description="Metrics for Prometheus.")
    prices: Prices = Field(Prices(), description="What machines cost, for `iris usage`.")
    teams: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description=(
            "The users of each team, for `iris usage --by team`, budgets and quotas; a user is in"
            " one at most."
        ),
    )
    budgets: dict[str, BudgetConfig] = Field(
        default_factory=dict, description="What users and teams may use, by the budget's name."
    )
    quotas: dict[str, QuotaConfig] = Field(
        default_factory=dict,
        description="What users, teams and tagged jobs may hold at once, by the quota's name.",
    )
    limits: dict[str, Count] = Field(
        default_factory=dict,
        description="How much of each named limit all jobs together may take, such as licence: 4.",
    )
    dashboard: Dashboard = Field(Dashboard(), description="The web pages about the cluster.")
    scale_groups: dict[str, ScaleGroupConfig] = Field(
        default_factory=dict, description="The kinds of slice, by name."
    )

    @property
    def slice_prefix(self) -> str:
        """The prefix of all slice ids. It is empty except on Google Cloud, where other clusters may
        have slices, too.
        """
        return self.platform.gcp.label_prefix if self.platform.gcp is not None else ""
