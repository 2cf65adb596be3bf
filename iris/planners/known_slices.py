"""The slices as the autoscaler knows them from their reports, and the input of a new slice."""

from collections.abc import Iterable
from datetime import datetime

from iris.autoscaling import failure_memory
from iris.messages.slice import SliceInput
from iris.model.slice.provisioning import SliceObservation, SliceRequest
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import Memory
from iris.model.slice.status import SliceFacts, SliceState


class KnownSlices:
    """The slices that were created and whose machines are not known to be deleted."""

    def __init__(self, facts: Iterable[SliceFacts] = ()) -> None:
        self.known: dict[str, SliceFacts] = {each.id: each for each in facts}
        #: The slices that the autoscaler has told to drain and that have reported nothing since.
        #: The property `expected` shows those of them that are READY as DRAINING.
        self.draining: set[str] = set()

    @property
    def facts(self) -> tuple[SliceFacts, ...]:
        return tuple(self.known.values())

    @property
    def expected(self) -> tuple[SliceFacts, ...]:
        """The facts of all slices. A READY slice that was told to drain counts as DRAINING,
        although it has not reported that yet.
        """
        if not self.draining:
            return self.facts
        going = {"state": SliceState.DRAINING}
        return tuple(
            each.model_copy(update=going)
            if each.state is SliceState.READY and each.id in self.draining
            else each
            for each in self.known.values()
        )

    def learn(self, memory: Memory, group: ScaleGroup | None, facts: SliceFacts) -> Memory:
        """Records the facts that a slice reports. Returns the autoscaler's memory after that.

        Args:
            group: the slice's group; None if it is no longer in the configuration.
        """
        before = self.known.get(facts.id)
        memory = failure_memory.learn(memory, group, facts, before, facts.changed_at)
        self.update(facts)
        return memory

    def update(self, facts: SliceFacts) -> None:
        """Records the facts that a slice reports."""
        self.draining.discard(facts.id)
        if facts.state is SliceState.DELETED:
            self.known.pop(facts.id, None)
        else:
            self.known[facts.id] = facts


def slice_input(
    request: SliceRequest,
    reason: str,
    now: datetime,
    before: SliceFacts | None = None,
    adopted: SliceObservation | None = None,
) -> SliceInput:
    """Returns the input of a slice's workflow.

    Args:
        reason: why the slice is requested.
        before: the slice as it is known already; None for a new slice.
        adopted: the slice's machines, if they were found without a workflow; None for a slice
            whose machines have to be requested.
    """
    # Machines that are found were requested earlier.
    requested_at = (adopted.created_at if adopted is not None else None) or now
    facts = SliceFacts(
        id=request.slice_id,
        group=request.group.name,
        zone=request.zone,
        state=SliceState.REQUESTED,
        requested_at=before.requested_at if before is not None else requested_at,
        changed_at=now,
        reason=reason,
    )
    return SliceInput(
        cluster=request.cluster,
        id=request.slice_id,
        size=request.group.hosts,
        request=request,
        facts=facts,
        adopted=adopted is not None,
        public_key=adopted.public_key if adopted is not None else "",
    )
