"""The events of a slice's lifecycle and the effects that they have: the input and output of
`iris.model.slice.lifecycle.step`.
"""

from dataclasses import dataclass
from datetime import datetime

from iris.model.host.hosts import Host
from iris.model.slice.provisioning import CreateOutcome, SliceObservation, SliceRequest
from iris.model.slice.scaling import Drain
from iris.model.slice.status import SliceFacts, SliceState

# Effects.


@dataclass(frozen=True)
class ShowState:
    """Show the state in Temporal's list of workflows."""

    state: SliceState


@dataclass(frozen=True)
class ReportFacts:
    """Send the facts to the autoscaler."""

    facts: SliceFacts


@dataclass(frozen=True)
class RequestMachines:
    """Request the machines. Results: `RequestAnswered`, or `RequestAbandoned` if a drain arrives
    first.
    """

    request: SliceRequest


@dataclass(frozen=True)
class DescribeMachines:
    """Ask the platform about this slice, because its list may lag behind. Results:
    `MachinesDescribed` or `NotDescribed`.
    """

    #: Whether a deadline has passed, so that the answer decides whether the slice fails.
    overdue: bool = False


@dataclass(frozen=True)
class ReadConsole:
    """Read the last output of the machines before they are deleted. Result: `ConsoleRead`."""


@dataclass(frozen=True)
class OfferHosts:
    """Send the hosts to the scheduler. Result: `HostsOffered`."""

    hosts: tuple[Host, ...]


@dataclass(frozen=True)
class RetireHosts:
    """Ask the scheduler to remove the hosts, if they are free. Result: `RetireAnswered`."""

    drain: Drain
    #: The time of the check; None for the first check, when the drain has just arrived.
    due: datetime | None = None

    @property
    def evicts(self) -> bool:
        """Whether the scheduler evicts the tasks that still run on the hosts."""
        return self.drain.idle_since is None and self.drain.is_over(self.due)


Effect = (
    ShowState
    | ReportFacts
    | RequestMachines
    | DescribeMachines
    | ReadConsole
    | OfferHosts
    | RetireHosts
)


# Events. `Drain` is one of them.


@dataclass(frozen=True)
class WorkflowStarted:
    """The workflow starts, or continues a previous run."""


@dataclass(frozen=True)
class RequestAnswered:
    outcome: CreateOutcome


@dataclass(frozen=True)
class RequestAbandoned:
    """The slice must be deleted, and the platform has not answered the request."""


@dataclass(frozen=True)
class HostReported:
    """An agent is ready. The signature proves that its machine was created for the slice. For a
    machine that joined, it is made with the machine's own key, and proves that it is the same
    machine as before.
    """

    host: Host
    signature: str = ""
    public_key: str = ""


@dataclass(frozen=True)
class HostGone:
    """A host is lost, or its agent has left."""

    host_id: str
    incarnation: str
    reason: str
    left: bool = False


@dataclass(frozen=True)
class HostMissing:
    """The scheduler does not have a host of the slice, although the slice is READY."""


@dataclass(frozen=True)
class MachinesListed:
    """The machines have changed in the platform's list; None if they are missing in it."""

    observation: SliceObservation | None


@dataclass(frozen=True)
class MachinesDescribed:
    """The platform's answer about the machines of this slice; None if the platform does not know
    them.
    """

    observation: SliceObservation | None
    overdue: bool = False


@dataclass(frozen=True)
class NotDescribed:
    """The platform does not answer."""

    overdue: bool = False


@dataclass(frozen=True)
class ConsoleRead:
    output: str


@dataclass(frozen=True)
class HostsOffered:
    """The scheduler has accepted the hosts, except those whose incarnations it has ended, as (host
    id, incarnation).
    """

    ended: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class RetireAnswered:
    """The scheduler's answer to `request`: what still runs on the hosts; empty if it has removed
    them.
    """

    request: RetireHosts
    #: The scheduler's time.
    at: datetime
    problem: str = ""


@dataclass(frozen=True)
class DeadlineReached:
    """The time that `deadline` returned has passed."""

    due: datetime


@dataclass(frozen=True)
class Cancelled:
    """The workflow is cancelled."""


@dataclass(frozen=True)
class HostsRemoved:
    """The scheduler has removed the hosts or does not answer; the machines can be deleted."""


@dataclass(frozen=True)
class MachinesDeleted:
    """The platform confirms that no machine is left."""


Event = (
    WorkflowStarted
    | RequestAnswered
    | RequestAbandoned
    | HostReported
    | HostGone
    | HostMissing
    | MachinesListed
    | MachinesDescribed
    | NotDescribed
    | ConsoleRead
    | HostsOffered
    | RetireAnswered
    | DeadlineReached
    | Drain
    | Cancelled
    | HostsRemoved
    | MachinesDeleted
)
