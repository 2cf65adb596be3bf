"""The record of one slice: everything that its workflow knows, as one frozen value."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from iris.model.host.hosts import Host
from iris.model.slice.keys import is_signed
from iris.model.slice.provisioning import SliceObservation, SliceRequest
from iris.model.slice.scaling import Drain
from iris.model.slice.status import SliceFacts, SliceState, SliceStatus, SliceStep, move_slice

#: The limit on steps of a slice's history, which is only for display.
MAX_STEPS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRecord:
    """The state of one slice. Only `iris.model.slice.lifecycle.step` makes the slice's next
    record.
    """

    cluster: str
    #: The id, the state with its reason, and the times of the slice. The scale group and the zone
    #: are empty for a slice whose machines joined by themselves.
    facts: SliceFacts
    #: The number of hosts of the complete slice.
    size: int
    #: The request to the platform. It is None if the machines joined by themselves.
    request: SliceRequest | None = None
    #: True if Iris found the machines on the platform, and no workflow managed them.
    adopted: bool = False
    #: True if the platform reports that the machines are switched off.
    stopped: bool = False
    #: The hosts whose agents have reported that they are ready for work.
    hosts: tuple[Host, ...] = ()
    #: The key that verifies the reports of the slice's agents; empty until the platform has
    #: reported the key.
    public_key: str = ""
    #: For machines that joined by themselves: the public key of each host's machine, by the host's
    #: id, from its first report.
    machine_keys: Mapping[str, str] = field(default_factory=dict)
    #: The ids of hosts whose agents could not prove that they belong to the slice, or that they run
    #: on the host's machine.
    refused: frozenset[str] = frozenset()
    #: The hosts whose incarnations the scheduler has ended, as (host id, incarnation).
    ended: frozenset[tuple[str, str]] = frozenset()
    #: The instruction to delete the slice when its tasks have ended, or None.
    drain: Drain | None = None
    #: When a draining or overdue slice is checked next.
    check_at: datetime
    #: The pause between the next check of a draining or overdue slice and the check after it.
    check_every: timedelta = timedelta()
    #: Whether the tasks that still ran at the deadline of the drain were evicted.
    evicted: bool = False
    #: The last console output of the machines, if the machines or their agents were not ready in
    #: time; otherwise empty.
    console_output: str = ""
    #: The history of the slice, the oldest step first.
    steps: tuple[SliceStep, ...] = ()

    @property
    def state(self) -> SliceState:
        return self.facts.state

    @property
    def created(self) -> SliceRequest:
        """The request of a slice that Iris created."""
        assert self.request is not None
        return self.request

    @property
    def incarnations(self) -> tuple[tuple[str, str], ...]:
        """The hosts as (host id, incarnation)."""
        return tuple((host.id, host.incarnation) for host in self.hosts)

    @property
    def status(self) -> SliceStatus:
        """The slice as its `status` query shows it."""
        return SliceStatus(
            id=self.facts.id,
            state=self.state,
            reason=self.facts.reason,
            hosts=tuple(sorted(self.hosts, key=lambda host: (len(host.id), host.id))),
            size=self.size,
            facts=self.facts if self.request is not None else None,
            refused=tuple(sorted(self.refused)),
            ended=tuple(sorted(self.ended)),
            last_words=self.console_output,
            steps=self.steps,
        )

    def proves(self, host: Host, signature: str, public_key: str = "") -> bool | None:
        """Returns whether the report comes from a machine of the slice, or None if the slice does
        not know its key yet.

        Args:
            public_key: the key in the report, for a machine that joined by itself. The first key of
                a host counts, and the slice refuses all others later.
        """
        if self.request is None:
            key = self.machine_keys.get(host.id, public_key)
            return not key or is_signed(key, self.facts.id, host, signature)
        if not self.public_key:
            return None
        return is_signed(self.public_key, self.facts.id, host, signature)

    def with_key(self, seen: SliceObservation | None) -> "SliceRecord":
        """Returns the slice with the public key that the platform reports."""
        return (
            replace(self, public_key=seen.public_key)
            if seen is not None and seen.public_key
            else self
        )

    def moved(
        self, state: SliceState, reason: str, now: datetime, **facts: object
    ) -> "SliceRecord":
        """Returns the slice in another state.

        Args:
            facts: further changes of the slice's facts.

        Raises:
            IllegalMove: the slice cannot enter that state.
        """
        to = move_slice(self.state, state)
        facts = {"state": to, "reason": reason, "changed_at": now, **facts}
        return replace(self, facts=self.facts.model_copy(update=facts)).noted(reason, now)

    def noted(self, reason: str, now: datetime) -> "SliceRecord":
        """Returns the slice with one more step in its history."""
        added = SliceStep(at=now, state=self.state, reason=reason)
        return replace(self, steps=(*self.steps, added)[-MAX_STEPS:])

    def waiting(self, reason: str, now: datetime) -> "SliceRecord":
        """Returns the slice with the platform's reason why the machines do not exist yet, if it is
        a new one.
        """
        if self.state is not SliceState.PROVISIONING or reason in (
            "",
            *(each.reason for each in self.steps),
        ):
            return self
        return self.noted(reason, now)

    def with_facts(self, **facts: object) -> "SliceRecord":
        """Returns the slice with changed facts and an unchanged history."""
        return replace(self, facts=self.facts.model_copy(update=facts))

    def with_host(self, host: Host, public_key: str = "") -> "SliceRecord":
        """Returns the slice with this host. The host replaces an earlier incarnation of itself.

        Args:
            public_key: the key of the host's machine, if the machine joined by itself.
        """
        keys = {host.id: public_key, **self.machine_keys} if public_key else self.machine_keys
        others: Iterable[Host] = (each for each in self.hosts if each.id != host.id)
        ended = frozenset(each for each in self.ended if each[0] != host.id)
        return replace(
            self,
            hosts=(*others, host),
            machine_keys=keys,
            refused=self.refused - {host.id},
            ended=ended,
        )


def with_last_line(reason: str, output: str) -> str:
    """Returns the reason with the last line of the machines' output."""
    lines = output.strip().splitlines()
    return f"{reason}; last output of its machines: {lines[-1]}" if lines else reason
