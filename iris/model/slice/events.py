"""The events and effects of a slice's lifecycle: the input and the output of
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
    """Show the slice's state in Temporal's list of workflows."""

    state: SliceState


@dataclass(frozen=True)
class ReportFacts:
    """Send the slice's facts (its state, the reason and the times) to the autoscaler."""

    facts: SliceFacts


@dataclass(frozen=True)
class RequestMachines:
    """Request the machines from the platform. Results: `RequestAnswered`, or `RequestAbandoned` if
    a drain arrives first.
    """

    request: SliceRequest


@dataclass(frozen=True)
class DescribeMachines:
    """Ask the platform about this slice alone, because the platform's list of all slices may lag
    behind. Results: `MachinesDescribed` or `NotDescribed`.
    """

    #: True if Iris has asked the platform about the slice because a deadline of the slice has
    #: passed. Then the platform's answer decides whether the slice fails.
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
    #: The time of the check whether the hosts are free; None if the drain has just arrived.
    due: datetime | None = None

    @property
    def evicts(self) -> bool:
        """True if the scheduler evicts the tasks that still run on the hosts."""
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
    """The slice's workflow starts, or continues a previous run."""


@dataclass(frozen=True)
class RequestAnswered:
    """The platform has answered the request for machines."""

    outcome: CreateOutcome


@dataclass(frozen=True)
class RequestAbandoned:
    """The slice must be deleted, and the platform has not answered the request for machines yet."""


@dataclass(frozen=True)
class HostReported:
    """The agent of a host has reported that it is ready for work."""

    host: Host
    #: Proves that the agent's machine was created for the slice. A machine that joined by itself
    #: signs with its own key, which proves that it is the same machine as before.
    signature: str = ""
    public_key: str = ""


@dataclass(frozen=True)
class HostGone:
    """A host is lost, or has left by itself."""

    host_id: str
    incarnation: str
    reason: str
    left: bool = False


@dataclass(frozen=True)
class HostMissing:
    """The scheduler does not know a host of the slice, although the slice is READY."""


@dataclass(frozen=True)
class MachinesListed:
    """The platform's list of slices shows a new state of the machines."""

    #: The machines as the platform's list shows them; None if the list does not contain them.
    observation: SliceObservation | None
    #: A time shortly before Iris asked the platform for its list of slices, by the clock of the
    #: Temporal server.
    at: datetime


@dataclass(frozen=True)
class MachinesDescribed:
    """The result of `DescribeMachines`."""

    #: The machines as the platform describes them; None if the platform has no machines of the
    #: slice.
    observation: SliceObservation | None
    #: The time at which Iris asked the platform.
    at: datetime
    overdue: bool = False


@dataclass(frozen=True)
class NotDescribed:
    """The platform has not answered `DescribeMachines`."""

    overdue: bool = False


@dataclass(frozen=True)
class ConsoleRead:
    """The result of `ReadConsole`."""

    output: str


@dataclass(frozen=True)
class HostsOffered:
    """The scheduler has accepted the hosts of an `OfferHosts`, except the hosts in `ended`."""

    #: The hosts that the scheduler has not accepted, because it has ended their incarnations, as
    #: (host id, incarnation).
    ended: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class RetireAnswered:
    """The scheduler's answer to the `RetireHosts` in `request`."""

    request: RetireHosts
    #: The time at which the scheduler answered the request, by the scheduler's clock.
    at: datetime
    #: A text that names the tasks that still run on the hosts; empty if the scheduler has removed
    #: the hosts.
    problem: str = ""


@dataclass(frozen=True)
class DeadlineReached:
    """The slice's current deadline, which `iris.model.slice.lifecycle.deadline` computes, has
    passed.
    """

    due: datetime


@dataclass(frozen=True)
class Cancelled:
    """The cancellation of the slice's workflow was requested."""


@dataclass(frozen=True)
class HostsRemoved:
    """The scheduler has removed the hosts, or does not answer. The machines can be deleted."""


@dataclass(frozen=True)
class MachinesDeleted:
    """The platform confirms that none of the slice's machines exists any more."""


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
