"""Messages to and from slices."""

from iris.messages.scheduler import HostLost
from iris.messages.wire import Wire
from iris.model.hosts import Host
from iris.model.provisioning import SliceObservation, SliceRequest
from iris.model.scaling import Drain
from iris.model.slices import SliceFacts, SliceState, SliceStep


class HostReady(Wire):
    """An agent's report that its host is ready for work."""

    host: Host
    #: The token of the slice's request, for slices that Iris created.
    token: str = ""

    @property
    def life(self) -> tuple[str, str]:
        """The host's id and incarnation."""
        return self.host.id, self.host.incarnation


class CloudState(Wire):
    """The state of the slice's machines in the platform's list; None: they are not in it."""

    observation: SliceObservation | None


class SliceInput(Wire):
    """The state that a run of a slice's workflow passes to the next."""

    cluster: str
    id: str
    #: How many hosts the complete slice has.
    size: int = 1
    state: SliceState = SliceState.REQUESTED
    hosts: tuple[Host, ...] = ()
    #: The signals that arrived while the previous run ended.
    reports: tuple[HostReady | HostLost | CloudState | Drain, ...] = ()
    #: The request to the platform; None: its machines joined by themselves.
    request: SliceRequest | None = None
    #: Whether its machines were found without a workflow. They exist already and are not requested.
    adopted: bool = False
    facts: SliceFacts | None = None
    #: The slice is deleted when its tasks have ended, or at the drain's deadline.
    drain: Drain | None = None
    steps: tuple[SliceStep, ...] = ()
    #: As in `SliceStatus`.
    last_words: str = ""


class SliceRef(Wire):
    """A reference to a slice's machines, as an activity's argument."""

    slice_id: str
    zone: str


class Machines(Wire):
    """The platform's answer about one slice; None: it has no such machines."""

    observation: SliceObservation | None


class LastWords(Wire):
    """The last output of a slice's machines; empty: the platform has none."""

    text: str = ""
