"""Makes the record of use of each placement that has ended, and keeps records until they are
stored.

The ledger decides who holds which host, so it alone makes these records: one when a placement is
released, one when its owner is gone, and none for a request that never had hosts. What a placement
holds is computed when it ends, or before the first of its hosts is removed from the ledger.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice

from pydantic import BaseModel, Field

from iris.model.frozen import Frozen
from iris.model.host.constraints import SCALE_GROUP
from iris.model.host.hosts import Host
from iris.model.host.resources import ANY_VARIANT, DeviceKind
from iris.model.job.requests import Placement, Seat
from iris.usage.lines import to_line
from iris.usage.records import (
    AttemptEnd,
    AttemptUse,
    DroppedUses,
    Record,
    SliceUse,
    UseEnd,
    times_of,
)

#: The limit on records that wait to be stored. If the store is unreachable for so long that the
#: limit is exceeded, the oldest records are dropped. Compressed, a record takes 35 to 60 bytes of
#: the ledger's 2 MiB.
MOST_WAITING = 5_000
#: The limit on bytes of the records that wait to be stored, as JSON. If it is exceeded, the oldest
#: records are dropped.
MOST_WAITING_BYTES = 3_000_000
#: The limit on records of one batch that is sent to the store.
MOST_AT_ONCE = 250
#: The limit on bytes of the records of one batch, as JSON. A batch is one payload of the
#: scheduler's history, in which compression reduces it to an eighth.
MOST_BYTES_AT_ONCE = 128 * 1024

_UNTOLD = AttemptEnd(end=UseEnd.UNKNOWN)


class Held(Frozen):
    """The hosts and slices that a placement held, for its record of use."""

    group: str
    slices: tuple[str, ...]
    hosts: int
    #: The number of seats that the placement had before any of its hosts was free.
    #: `Placement.seats` becomes shorter when agents free the hosts one by one.
    seats: int
    host_share: float


class EndedUsesState(BaseModel):
    """The state of `EndedUses`, as one run of the scheduler passes it to the next."""

    waiting: list[AttemptUse | SliceUse | DroppedUses] = Field(default_factory=list)
    #: The number and the period of the records that were dropped since the last batch was sent to
    #: the store; None if there are none.
    dropped: DroppedUses | None = None
    #: For placements of which a host was removed or freed: what the placement held before, by the
    #: placement's key.
    held: dict[str, Held] = Field(default_factory=dict)
    #: For placements that have lost all of their hosts: when the last host was lost, by the
    #: placement's key.
    lost_at: dict[str, datetime] = Field(default_factory=dict)


class EndedUses:
    """The records of use that are not stored yet, and facts about placements that have no record
    yet.
    """

    def __init__(self, state: EndedUsesState | None = None) -> None:
        state = state or EndedUsesState()
        self._held = dict(state.held)
        self._lost_at = dict(state.lost_at)
        #: The placements whose last host was lost since the last call of `now_is`.
        self._lost: dict[str, None] = {}
        #: The placements that have ended since the last call of `now_is`, which sets the time of
        #: their end. Each has what it held, and the end that its gang has reported.
        self._undated: list[tuple[Placement, Held, AttemptEnd]] = []
        #: The records of use that wait to be stored, by id.
        self._waiting: dict[str, Record] = {}
        #: The size of all records in `_waiting` as JSON, in bytes, and the number of records of
        #: slices among them.
        self._bytes = self._slices = 0
        #: The batch of records that is being written to the store; empty if there is none.
        self._sent: tuple[Record, ...] = ()
        self._dropped = state.dropped
        self._wait(state.waiting)

    def state(self) -> EndedUsesState:
        return EndedUsesState(
            waiting=[*self._sent, *self._waiting.values()],
            dropped=self._dropped,
            held=self._held,
            lost_at=self._lost_at,
        )

    # What happens to placements and slices.

    def hold(self, placement: Placement, hosts: Mapping[str, Host]) -> None:
        """Keeps what the placement holds, because one of its hosts is about to be removed.

        Args:
            hosts: the hosts of the ledger, by id.
        """
        if placement.key not in self._held:
            self._held[placement.key] = held_by(placement, hosts)

    def lost(self, placement: Placement) -> None:
        """Records that the placement has lost its last host. Its use ends now, and its record is
        made when the gang releases it.
        """
        self._lost[placement.key] = None

    def placed_again(self, before: Placement, hosts: Mapping[str, Host]) -> None:
        """Makes the record of a placement that has lost its hosts, because its gang has asked again
        with the same key, and has other hosts now. The gang tells only of its last placement.

        Args:
            hosts: the hosts of the ledger, by id.
        """
        lost_at = self._lost_at.pop(before.key, None)
        if lost_at is not None:
            held = self._held.pop(before.key, None) or held_by(before, hosts)
            use = use_of(before, held, _UNTOLD, lost_at)
            self._wait([use.model_copy(update={"id": f"{use.id}/{lost_at.isoformat()}"})])

    def ended(
        self,
        placement: Placement,
        hosts: Mapping[str, Host],
        ended: AttemptEnd | None = None,
        at: datetime | None = None,
    ) -> None:
        """Makes the record of a placement that has ended. The next `now_is` sets the time of its
        end, unless it is known.

        Args:
            hosts: the hosts of the ledger, by id.
            ended: what the gang's workflow tells; None if it tells nothing.
            at: when the hosts were free, if that is known.
        """
        held = self._held.pop(placement.key, None) or held_by(placement, hosts)
        at, end = self._lost_at.pop(placement.key, at), ended or _UNTOLD
        self._lost.pop(placement.key, None)
        if at is None:
            self._undated.append((placement, held, end))
        else:
            self._wait([use_of(placement, held, end, at)])

    def open(self, placement: Placement, hosts: Mapping[str, Host], now: datetime) -> AttemptUse:
        """Returns the use, up to now, of a placement that its gang has not released."""
        held = self._held.get(placement.key) or held_by(placement, hosts)
        until = self._lost_at.get(placement.key, now)
        return use_of(placement, held, AttemptEnd(end=UseEnd.OPEN), until)

    def add(self, use: SliceUse) -> None:
        """Records the life of a slice, as its workflow reports it."""
        self._wait([use])

    def now_is(self, now: datetime) -> None:
        """Sets the time of everything that was recorded without one since the last call."""
        self._lost_at.update(dict.fromkeys(self._lost, now))
        self._lost.clear()
        self._wait([use_of(*each, now) for each in self._undated])
        self._undated.clear()

    # Storing.

    def __len__(self) -> int:
        """Returns the number of records that are not known to be stored."""
        return len(self._waiting) + len(self._sent)

    def __bool__(self) -> bool:
        """Returns whether there is a record to be stored."""
        return bool(self._waiting)

    @property
    def waiting(self) -> list[AttemptUse | SliceUse]:
        """The records of uses that are not known to be stored."""
        records = (*self._sent, *self._waiting.values())
        return [each for each in records if not isinstance(each, DroppedUses)]

    @property
    def dropped(self) -> int:
        """The number of records that were dropped since the last batch."""
        return self._dropped.count if self._dropped is not None else 0

    @property
    def is_urgent(self) -> bool:
        """Whether the next batch is due: it is full, or a slice has ended. The last slices of a
        cluster end just before the cluster does.
        """
        full = len(self._waiting) >= MOST_AT_ONCE or self._bytes >= MOST_BYTES_AT_ONCE
        return full or self._slices > 0

    def waits_since(self) -> datetime:
        """Returns the end of the use whose record waits for the longest time."""
        return times_of(next(iter(self._waiting.values())))[1]

    def take_batch(self) -> tuple[Record, ...]:
        """Returns the next records to store. They count as being stored until `stored` is
        called.
        """
        assert not self._sent
        if self._dropped is not None:
            self._sent, self._dropped = (self._dropped,), None
        room = MOST_BYTES_AT_ONCE
        for use in islice([*self._waiting.values()], MOST_AT_ONCE):
            room -= len(to_line(use))
            if room < 0 and self._sent:
                break
            self._remove(use)
            self._sent += (use,)
        return self._sent

    def stored(self) -> None:
        """Forgets the records of the last batch."""
        self._sent = ()

    def _wait(self, uses: Iterable[Record]) -> None:
        """Adds records that have to be stored. If they are too many, drops the oldest."""
        for use in uses:
            if use.id in self._waiting:
                self._remove(self._waiting[use.id])
            self._waiting[use.id] = use
            self._bytes += len(to_line(use))
            self._slices += isinstance(use, SliceUse)
        while len(self._waiting) > MOST_WAITING or self._bytes > MOST_WAITING_BYTES:
            self._drop_oldest()

    def _remove(self, use: Record) -> None:
        del self._waiting[use.id]
        self._bytes -= len(to_line(use))
        self._slices -= isinstance(use, SliceUse)

    def _drop_oldest(self) -> None:
        waiting = self._waiting.values()
        use = next(each for each in waiting if not isinstance(each, DroppedUses))
        self._remove(use)
        began, until = times_of(use)
        if (before := self._dropped) is None:
            new_id = f"dropped/{use.id}"
            self._dropped = DroppedUses(id=new_id, count=1, since=began, until=until)
        else:
            more = {
                "count": before.count + 1,
                "since": min(began, before.since),
                "until": max(until, before.until),
            }
            self._dropped = before.model_copy(update=more)


def held_by(placement: Placement, hosts: Mapping[str, Host]) -> Held:
    """Returns what the placement holds of these hosts. A host that is not among them counts as
    held entirely.
    """
    here = [hosts[seat.host_id] for seat in placement.seats if seat.host_id in hosts]
    groups = (str(host.attributes.get(SCALE_GROUP, "")) for host in here)
    return Held(
        group=next((group for group in groups if group), ""),
        slices=tuple(dict.fromkeys(seat.slice_id for seat in placement.seats)),
        hosts=len({seat.host_id for seat in placement.seats}),
        seats=len(placement.seats),
        host_share=round(sum(_share(placement, seat, hosts) for seat in placement.seats), 6),
    )


def _share(placement: Placement, seat: Seat, hosts: Mapping[str, Host]) -> float:
    """Returns the part of the host that the placement holds there."""
    host = hosts.get(seat.host_id)
    return 1.0 if host is None else placement.resources.share_of(host.resources)


def use_of(placement: Placement, held: Held, end: AttemptEnd, ended_at: datetime) -> AttemptUse:
    """Returns the record of a placement that ended then.

    Its times are in order, although several clocks tell them.
    """
    devices, cpu, memory, disk = (held.seats * each for each in placement.resources.vector)
    device = placement.resources.device
    placed_at = placement.placed_at or ended_at
    ended_at = max(placed_at, ended_at)
    started_at = end.started_at and min(max(placed_at, end.started_at), ended_at)
    return AttemptUse(
        id=placement.key,
        job=placement.task.rpartition(":")[0] or placement.task,
        user=placement.user,
        band=placement.band,
        group=held.group,
        slices=held.slices,
        hosts=held.hosts,
        host_share=held.host_share,
        tpu_chips=devices if device is not None and device.kind is DeviceKind.TPU else 0,
        gpus=devices if device is not None and device.kind is DeviceKind.GPU else 0,
        cpu_millis=cpu,
        memory_bytes=memory,
        disk_bytes=disk,
        variant=device.variant if device is not None and device.variant != ANY_VARIANT else "",
        tasks_per_host=placement.tasks_per_host,
        asked=end.asked,
        tags=end.tags,
        placed_at=placed_at,
        started_at=started_at,
        ended_at=ended_at,
        end=end.end,
    )
