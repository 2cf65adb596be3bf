"""Messages to and from slices."""

from collections.abc import Iterable
from datetime import datetime

from pydantic import Field

from iris.messages.wire import HostLost
from iris.model.frozen import Frozen
from iris.model.host.hosts import Host
from iris.model.slice.provisioning import SliceObservation, SliceRequest
from iris.model.slice.record import SliceRecord
from iris.model.slice.scaling import Drain
from iris.model.slice.status import SliceFacts, SliceState, SliceStep


class HostReady(Frozen):
    """An agent's report that its host is ready for work."""

    host: Host
    #: The signature of this report by `iris.model.slice.keys.sign`, with the key of the slice. A
    #: machine that a user brought signs with its own key.
    signature: str = ""
    #: The key that verifies the signature of a machine that a user brought; empty for a slice that
    #: Iris created.
    public_key: str = ""

    @property
    def incarnation(self) -> tuple[str, str]:
        """The host's id and incarnation."""
        return self.host.id, self.host.incarnation


class CloudState(Frozen):
    """The state of the slice's machines in the platform's list. `observation` is None if the list
    does not contain them.
    """

    observation: SliceObservation | None
    #: A time shortly before Iris asked the platform for the list of its machines, by the clock of
    #: the Temporal server.
    at: datetime


class SliceInput(Frozen):
    """The state that a run of a slice's workflow passes to the next."""

    cluster: str
    id: str
    #: The number of hosts of the complete slice.
    size: int = 1
    state: SliceState = SliceState.REQUESTED
    hosts: tuple[Host, ...] = ()
    #: The signals that arrived while the previous run ended.
    reports: tuple[HostReady | HostLost | CloudState | Drain, ...] = ()
    #: The request to the platform; None if the slice's machines joined by themselves.
    request: SliceRequest | None = None
    #: True if the machines existed before this workflow. The workflow then requests no machines.
    adopted: bool = False
    facts: SliceFacts | None = None
    #: The order to delete the slice when its tasks have ended, or at a deadline; None if there is
    #: none.
    drain: Drain | None = None
    steps: tuple[SliceStep, ...] = ()
    #: The last console output of the slice's machines.
    last_words: str = ""
    #: The key that verifies the reports of the agents; empty until the platform has reported it.
    public_key: str = ""
    #: The public key of each host's machine, by host id. Empty for a slice that Iris created.
    machine_keys: dict[str, str] = Field(default_factory=dict)

    def record(self, now: datetime) -> SliceRecord:
        """Returns the slice with which a run starts.

        Args:
            now: the time of the request, if neither an earlier run nor the autoscaler has recorded
                it.
        """
        facts = self.facts or SliceFacts(
            id=self.id,
            group=self.request.group.name if self.request is not None else "",
            zone=self.request.zone if self.request is not None else "",
            state=self.state,
            requested_at=now,
            changed_at=now,
        )
        first = (
            (SliceStep(at=facts.requested_at, state=facts.state, reason=facts.reason),)
            if self.request is not None
            else ()
        )
        return SliceRecord(
            cluster=self.cluster,
            facts=facts,
            size=self.size,
            request=self.request,
            adopted=self.adopted,
            hosts=self.hosts,
            drain=self.drain,
            check_at=now,
            console_output=self.last_words,
            steps=self.steps or first,
            public_key=self.public_key,
            machine_keys=self.machine_keys,
        )

    @classmethod
    def of(
        cls, slice: SliceRecord, reports: Iterable[HostReady | HostLost | CloudState | Drain]
    ) -> "SliceInput":
        """Returns the input of the run that continues with this slice and these signals."""
        return cls(
            cluster=slice.cluster,
            id=slice.facts.id,
            size=slice.size,
            state=slice.state,
            hosts=slice.hosts,
            reports=tuple(reports),
            request=slice.request,
            adopted=slice.adopted,
            facts=slice.facts,
            drain=slice.drain,
            steps=slice.steps,
            last_words=slice.console_output,
            public_key=slice.public_key,
            machine_keys=dict(slice.machine_keys),
        )


class SliceRef(Frozen):
    """The id and the zone of a slice, as an activity's argument."""

    slice_id: str
    zone: str


class Machines(Frozen):
    """The platform's answer about one slice. `observation` is None if the slice has no machines on
    the platform.
    """

    observation: SliceObservation | None
    #: The time at which the platform was asked about the slice.
    at: datetime


class ConsoleOutput(Frozen):
    """The last console output of a slice's machines; empty if the platform has none."""

    text: str = ""
