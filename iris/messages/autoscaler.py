"""Messages to and from the autoscaler."""

from datetime import datetime, timedelta

from pydantic import Field

from iris.autoscaling.liveness import Silent
from iris.autoscaling.missing_hosts import MissingHost
from iris.messages.wire import Wire
from iris.model.provisioning import SliceObservation
from iris.model.scale_groups import ScaleGroup
from iris.model.scaling import Action, GroupStatus, Memory, Outlook
from iris.model.slices import SliceFacts


class ScalingSettings(Wire):
    """The autoscaler's settings from the cluster's configuration."""

    groups: tuple[ScaleGroup, ...] = ()
    #: The prefix of a slice's id.
    prefix: str = "iris"
    #: The longest time from a change to its evaluation.
    evaluation_interval: timedelta = timedelta(seconds=10)
    #: The interval between two observations of the machines and their agents.
    observe_interval: timedelta = timedelta(seconds=15)


class Unowned(Wire):
    """Machines of this cluster without a workflow, and the number of observations in a row that found them so."""

    observation: SliceObservation
    looks: int = 1


class CloseDown(Wire):
    """A request to delete all slices and to create none until the next configuration."""

    reason: str
    #: When tasks that still run on them are stopped.
    deadline: datetime | None = None


class AutoscalerStart(Wire):
    """The state that a run of the autoscaler passes to the next."""

    cluster: str
    suspects: tuple[Silent, ...] = ()
    #: None: it only observes the hosts.
    settings: ScalingSettings | None = None
    slices: tuple[SliceFacts, ...] = ()
    #: The slices whose workflow was terminated, and in how many observations in a row their machines were not seen.
    strays: dict[str, int] = Field(default_factory=dict)
    memory: Memory = Memory()
    unowned: tuple[Unowned, ...] = ()
    missing: tuple[MissingHost, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    #: Why it neither requests nor deletes slices; None: it does both.
    paused: str | None = None
    #: The request under which all slices are being deleted; None: there is none.
    closing: CloseDown | None = None
    #: Whether to query the slices for their state first, because the state of an earlier workflow was or may have been lost.
    gather: bool = False


class ObserveFleet(Wire):
    """The options of one observation of the fleet."""

    cluster: str
    #: The number of the last report received. The next report has only changes since then.
    heard: int = 0
    #: Whether to list the platform's machines too.
    machines: bool = False
    #: Whether to list all slices that have a workflow.
    census: bool = False
    #: Whether to compare the READY slices with the scheduler's ledger.
    ledger: bool = False


class FleetReport(Wire):
    """The deviations that an observation found. It is empty if all is well: a quiet fleet of any size adds the same history."""

    silent: tuple[Silent, ...] = ()
    #: How many hosts are silent and not listed, because too many of them are: the service or the network is the likely cause.
    held: int = 0
    #: The time of the observation by the server's clock; None in reports of version 0.1.
    at: datetime | None = None
    #: The number of this report, for the next observation.
    number: int = 0
    #: Machines whose state on the platform changed since the last report received.
    changed: tuple[SliceObservation, ...] = ()
    #: Slices whose machines are not in the platform's list.
    absent: tuple[str, ...] = ()
    #: Machines of this cluster that no workflow owns.
    unowned: tuple[SliceObservation, ...] = ()
    #: Zones that could not be listed, with the reason.
    unreachable: dict[str, str] = Field(default_factory=dict)
    #: The slices that have a workflow, if they were requested.
    owned: tuple[str, ...] | None = None
    #: The hosts of READY slices that the scheduler's ledger does not have; None: the two were not compared.
    missing: tuple[MissingHost, ...] | None = None


class SliceList(Wire):
    """The facts of the created slices, as the slices report them."""

    slices: tuple[SliceFacts, ...] = ()


class PauseScaling(Wire):
    reason: str = ""


class AutoscalerStatus(Wire):
    """The autoscaler's view of its cluster."""

    groups: tuple[GroupStatus, ...] = ()
    slices: tuple[SliceFacts, ...] = ()
    actions: tuple[Action, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    evaluated_at: datetime | None = None
    next_at: datetime | None = None
    paused: str | None = None
    closing: str | None = None
    #: Zones that could not be listed in the last observation, with the reason.
    unreachable: dict[str, str] = Field(default_factory=dict)
    unowned: tuple[SliceObservation, ...] = ()
    #: How many hosts are silent and are not given up, because no other host answers.
    held_hosts: int = 0
    #: The hosts of READY slices that the scheduler's ledger does not have.
    missing: tuple[MissingHost, ...] = ()
    settings: ScalingSettings | None = None
