"""The cloud's data: resources, operations, and the settings of tests. All of it is serialisable to
JSON.
"""

from dataclasses import dataclass, field
from typing import Any

#: Kinds of resource.
NODE, QUEUED, INSTANCE = "node", "queued", "instance"
#: Tiers, each with a capacity and a quota of its own.
SPOT, ON_DEMAND, RESERVED = "spot", "on-demand", "reserved"

#: States in which machines are there, or on their way: they fill the zone.
FILLING = frozenset(
    {
        "CREATING",
        "READY",
        "RESTARTING",
        "REIMAGING",
        "DELETING",
        "REPAIRING",
        "STARTING",
        "STOPPING",
    }
    | {"PROVISIONING", "STAGING", "RUNNING", "PENDING_STOP"}
)


@dataclass
class Machine:
    """A booted host: the process that plays it."""

    pid: int
    #: Where it keeps everything, the port of its metadata server too.
    directory: str


@dataclass
class Resource:
    """A TPU node, a queued resource or an instance."""

    kind: str
    project: str
    zone: str
    name: str
    #: Of this incarnation: a name may be used again.
    uid: int
    created: float
    #: Base64 of the message it was asked for with (node, queued), or the JSON of it (instance).
    body: str
    state: str
    labels: dict[str, str]
    #: Accelerator type or machine type.
    type: str
    family: str
    tier: str
    #: Chips, or vCPUs: what quotas count.
    units: int
    hosts: int
    reservation: str = ""
    #: (private, public) address per host.
    endpoints: list[list[str]] = field(default_factory=list)
    #: Number of TPU Health.
    health: int = 0
    note: str = ""
    #: Of a node: the queued resource that made it.
    owner: str = ""
    #: What happens to it by itself: (when, what, operation).
    due: list[list[Any]] = field(default_factory=list)
    #: The operation that made it, until it is done.
    making: str = ""
    #: Was there before anybody came, and is not to be touched.
    foreign: bool = False
    #: It fills nothing: there is no capacity for it, or what is being deleted was taken back
    #: before.
    doomed: bool = False
    #: By worker.
    machines: dict[str, Machine] = field(default_factory=dict)
    #: Counted for fingerprints of labels and metadata.
    version: int = 0

    @property
    def key(self) -> str:
        return key(self.kind, self.project, self.zone, self.name)

    @property
    def path(self) -> str:
        """As Google writes it."""
        return path_of(self.kind, self.project, self.zone, self.name)

    def fills(self) -> bool:
        """Whether it takes up capacity."""
        return self.kind != QUEUED and self.state in FILLING and not self.doomed


@dataclass
class Operation:
    """A long-running operation of either API."""

    #: In full for the TPU API; the last part only for Compute.
    name: str
    project: str
    zone: str
    #: `tpu` or `compute`.
    api: str
    verb: str
    target: str
    target_id: int
    created: float
    ended: float | None = None
    #: {"code": …, "message": …}; for Compute also "error_code" and "http".
    error: dict[str, Any] | None = None
    #: `node`, `queued` or `empty`, and the message in base64.
    response: str = "empty"
    response_body: str = ""
    #: It exists for nobody, or never ends, whatever happens.
    lost: bool = False
    stuck: bool = False


@dataclass
class Rule:
    """A fault: what calls of the method meet."""

    #: A pattern of method names: `CreateNode`, `instances.insert`, `*`.
    method: str
    #: `fail`, `drop` (done, then cut off), `latency`, `hang` or `rate`.
    does: str
    #: So many calls; None: all.
    times: int | None = None
    #: Only calls whose resource's path contains this.
    match: str = ""
    status: str = ""
    message: str = ""
    #: Of the error's details: `quota` and `rate` mean Google's own messages; for Compute the
    #: error's reason.
    details: str = ""
    seconds: float = 0.0
    #: Per minute, for `rate`.
    limit: int = 0
    #: Seconds that the refused are asked to wait; 0: not said.
    retry_after: int = 0


@dataclass
class Verdict:
    """What becomes of the next operations."""

    #: `stuck`, `lost`, `error`, `lingers`, `done_before_return` or `mistyped`.
    what: str
    verb: str = "create"
    times: int | None = 1
    match: str = ""
    code: int = 8
    message: str = ""


@dataclass
class Knobs:
    """How the cloud is. Seconds are those of its own clock."""

    #: From a create to the machines; by name, type or zone, "" for all others. None: never.
    boot_time: dict[str, float | None] = field(default_factory=lambda: {"": 0.4})
    delete_time: dict[str, float | None] = field(default_factory=lambda: {"": 0.2})
    #: From a create to the word that there is no capacity.
    stockout_time: float = 0.1
    #: From the notice to the end.
    preemption_notice: float = 30.0
    #: Beside those that Google has.
    zones: list[str] = field(default_factory=list)
    #: Types that a zone has; all, where it is not named.
    offers: dict[str, list[str]] = field(default_factory=dict)
    #: Slices by (zone, type, tier, project); `*` means any.
    capacity: list[tuple[str, str, str, str, int]] = field(default_factory=list)
    #: Units by (family, tier, zone or region, project); `*` means any.
    quota: list[tuple[str, str, str, str, int]] = field(default_factory=list)
    zones_down: list[str] = field(default_factory=list)
    page_size: int = 500
    #: So many empty pages come before the first of each listing.
    empty_pages: int = 0
    #: The last of a page is the first of the next, too.
    duplicates: bool = False
    #: Seconds for which what is gone is still listed, and for which what is new is not.
    ghosts: float = 0.0
    lag: float = 0.0
    #: Seconds for which nobody is shown what is new, by name or in lists; its name is taken all the
    #: same.
    unseen: float = 0.0
    rules: list[Rule] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    #: Endpoints of nodes that come up, by name: a count, or a list of addresses.
    endpoints: dict[str, int | list[str]] = field(default_factory=dict)
    #: What instances have said on their serial consoles, where none really boots; by name or type.
    consoles: dict[str, str] = field(default_factory=dict)
    #: Hosts that never boot.
    dead_hosts: list[str] = field(default_factory=list)


def key(kind: str, project: str, zone: str, name: str) -> str:
    """Under which a resource is kept."""
    return f"{kind}:{project}/{zone}/{name}"


def path_of(kind: str, project: str, zone: str, name: str) -> str:
    """As Google writes it."""
    if kind == INSTANCE:
        return f"projects/{project}/zones/{zone}/instances/{name}"
    return f"projects/{project}/locations/{zone}/{'nodes' if kind == NODE else 'queuedResources'}/{name}"
