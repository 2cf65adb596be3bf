"""The rules of a cluster's scheduler."""

from datetime import timedelta
from typing import NamedTuple

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.units import MAX_DURATION

#: The shortest lease: the time of two failed contacts of ten seconds each.
SHORTEST_LEASE = timedelta(seconds=20)
#: The shortest time between two heartbeats of an attempt: also the longest until a cancellation is
#: noticed.
HEARTBEAT_INTERVAL = timedelta(seconds=2)
#: The most heartbeats of a cluster's attempts in a second. Temporal's default limit is 2,400 calls
#: in a second for a namespace.
HEARTBEATS_PER_SECOND = 500
#: The least number of heartbeats within a lease: one or two that fail must not end a program.
HEARTBEATS_PER_LEASE = 5


class Rules(Frozen):
    """The scheduler settings that operators choose."""

    #: How long smaller gangs may overtake a gang that would fit an empty host. After that, hosts
    #: are reserved for it.
    patience: timedelta = Field(default=timedelta(minutes=10), ge=timedelta(0), le=MAX_DURATION)
    #: A user who received nothing for this long is served next: what the user holds no longer
    #: delays the turn.
    owed_after: timedelta = Field(default=timedelta(hours=1), ge=timedelta(0), le=MAX_DURATION)
    #: Whether gangs of higher bands evict gangs of lower bands.
    preemption: bool = True
    #: A gang that has run for less is not evicted, so that a victim makes progress between two
    #: evictions.
    min_run_time: timedelta = Field(default=timedelta(minutes=2), ge=timedelta(0), le=MAX_DURATION)
    #: How long a program runs on without contact between its host and the Temporal server.
    lease: timedelta = Field(default=timedelta(seconds=50), ge=SHORTEST_LEASE, le=MAX_DURATION)


class Contact(NamedTuple):
    """How an attempt keeps contact with the server, in seconds. Decided when its gang is placed."""

    #: Without contact for this long, the program is killed.
    lease: float = 50.0
    #: The time between two heartbeats.
    interval: float = HEARTBEAT_INTERVAL.total_seconds()

    @classmethod
    def of(cls, rules: Rules, tasks: int) -> "Contact":
        """Returns the contact of an attempt that starts while so many tasks run on the cluster."""
        lease = rules.lease.total_seconds()
        return cls(lease).slowed(tasks / HEARTBEATS_PER_SECOND)

    def slowed(self, interval: float) -> "Contact":
        """Returns the contact with at least this interval, as long as there are enough heartbeats
        within a lease.
        """
        return self._replace(
            interval=max(self.interval, min(interval, self.lease / HEARTBEATS_PER_LEASE))
        )
