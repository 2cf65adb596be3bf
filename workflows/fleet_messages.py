"""What slices, the autoscaler, their activities and operators say to each other: one value per message, as in `messages`."""

from datetime import datetime, timedelta

from pydantic import Field

from iris.hosts import Host
from iris.liveness import Silent
from iris.machines import SliceObservation, SliceRequest
from iris.scale_groups import ScaleGroup
from iris.scale_plan import Action, Drain, Memory, Outlook, Verdict
from iris.slices import SliceFacts, SliceState, SliceStep
from iris.workflows.messages import HostLost, Wire

# -- to and from slices --------------------------------------------------------------------------------------------------------


class HostReady(Wire):
    """An agent is ready to take work."""

    host: Host
    #: Of the slice's request, for slices that were made.
    token: str = ""

    @property
    def life(self) -> tuple[str, str]:
        """Which life of which host it is."""
        return self.host.id, self.host.incarnation


class CloudState(Wire):
    """What the platform's list says of the slice's machines now; None: they are not in it."""

    observation: SliceObservation | None


class SliceInput(Wire):
    """All that a run of a slice hands to the next."""

    cluster: str
    id: str
    #: How many hosts make it whole.
    size: int = 1
    state: SliceState = SliceState.REQUESTED
    hosts: tuple[Host, ...] = ()
    #: What came while the previous run was ending.
    reports: tuple[HostReady | HostLost | CloudState | Drain, ...] = ()
    #: What is asked of the platform; None: its machines joined by themselves.
    request: SliceRequest | None = None
    #: Its machines were found without anybody who looks after them: nothing is to be asked for.
    adopted: bool = False
    facts: SliceFacts | None = None
    #: It is to go when what runs on it has ended, or at this deadline.
    drain: Drain | None = None
    steps: tuple[SliceStep, ...] = ()
    #: See `SliceStatus`.
    last_words: str = ""


class SliceRef(Wire):
    """A slice's machines, as an activity's argument."""

    slice_id: str
    zone: str


class Machines(Wire):
    """What a platform says of one slice; None: there are none."""

    observation: SliceObservation | None


class LastWords(Wire):
    """What a slice's machines have said last; empty: nothing that the platform knows of."""

    text: str = ""


# -- to and from the autoscaler ------------------------------------------------------------------------------------------------


class ScalingSettings(Wire):
    """What the autoscaler is to do, from the cluster's configuration."""

    groups: tuple[ScaleGroup, ...] = ()
    #: What a slice's id begins with.
    prefix: str = "iris"
    #: The most that a change waits for its evaluation.
    evaluation_interval: timedelta = timedelta(seconds=10)
    #: Between two looks at the machines and their agents.
    observe_interval: timedelta = timedelta(seconds=15)


class Unowned(Wire):
    """Machines of ours without a workflow that looks after them, and in how many looks in a row."""

    observation: SliceObservation
    looks: int = 1


class CloseDown(Wire):
    """Give all slices back, and make none until the next configuration."""

    reason: str
    #: What runs on them is stopped then.
    deadline: datetime | None = None


class AutoscalerStart(Wire):
    """All that a run of the autoscaler hands to the next."""

    cluster: str
    suspects: tuple[Silent, ...] = ()
    #: None: it watches the hosts and no more.
    settings: ScalingSettings | None = None
    slices: tuple[SliceFacts, ...] = ()
    #: Those whose workflow was ended by somebody, and for how many looks their machines have not been seen.
    strays: dict[str, int] = Field(default_factory=dict)
    memory: Memory = Memory()
    unowned: tuple[Unowned, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    #: Why it neither asks for slices nor gives any back; None when it does.
    paused: str | None = None
    #: All slices are being given back; None: they are not.
    closing: CloseDown | None = None
    #: Whether its knowledge of slices is empty because an earlier workflow was lost, or may have been: they are asked first.
    gather: bool = False


class Look(Wire):
    """What a look at the fleet is to find out."""

    cluster: str
    #: Which report was heard last: only what has changed since is told again.
    heard: int = 0
    #: Whether the platform is to be asked too.
    machines: bool = False
    #: Whether all slices that have a workflow are to be named.
    census: bool = False


class FleetReport(Wire):
    """What is not as it should be; nothing when all is well, so that a quiet fleet of any size costs the same history."""

    silent: tuple[Silent, ...] = ()
    #: When the look was, by the server's clock; None in what version 0.1 wrote.
    at: datetime | None = None
    #: The number of this report, for the next look.
    number: int = 0
    #: Machines that the platform sees otherwise than at the last look.
    changed: tuple[SliceObservation, ...] = ()
    #: Slices whose machines are not in the platform's list.
    absent: tuple[str, ...] = ()
    #: Machines of ours that no workflow looks after.
    unowned: tuple[SliceObservation, ...] = ()
    #: Zones that could not be listed, and why.
    unreachable: dict[str, str] = Field(default_factory=dict)
    #: The slices that have a workflow, if a census was wanted.
    owned: tuple[str, ...] | None = None


class SliceList(Wire):
    """What the slices that were made say of themselves."""

    slices: tuple[SliceFacts, ...] = ()


class PauseScaling(Wire):
    reason: str = ""


class AutoscalerStatus(Wire):
    """The autoscaler's view of its cluster."""

    groups: tuple[Verdict, ...] = ()
    slices: tuple[SliceFacts, ...] = ()
    actions: tuple[Action, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    evaluated_at: datetime | None = None
    next_at: datetime | None = None
    paused: str | None = None
    closing: str | None = None
    #: Zones that could not be listed at the last look, and why.
    unreachable: dict[str, str] = Field(default_factory=dict)
    unowned: tuple[SliceObservation, ...] = ()
    settings: ScalingSettings | None = None
