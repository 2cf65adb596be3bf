"""The rules that the scheduler of a cluster follows."""

from datetime import timedelta
from typing import NamedTuple

from pydantic import Field

from iris.model.frozen import Frozen
from iris.model.units import MAX_DURATION

#: The lower limit of the setting `Rules.lease`. In this time, two contacts with the Temporal server
#: can fail after ten seconds each.
SHORTEST_LEASE = timedelta(seconds=20)
#: The shortest time between two heartbeats of an attempt. An attempt notices its cancellation at
#: its next heartbeat. In a cluster with more than 1,000 tasks, the time between heartbeats is
#: longer (`Contact.slowed`).
HEARTBEAT_INTERVAL = timedelta(seconds=2)
#: The limit on heartbeats per second of all attempts of a cluster together. It is exceeded only if
#: attempts would otherwise send fewer than `HEARTBEATS_PER_LEASE`. Temporal allows 2,400 calls per
#: second in a namespace by default.
HEARTBEATS_PER_SECOND = 500
#: The smallest number of heartbeats within a lease. One or two failed heartbeats must not end a
#: program.
HEARTBEATS_PER_LEASE = 5
#: The time without a heartbeat after which the server gives up an attempt with the default lease.
#: It is 25 s longer than the lease: when the next attempt may start, the program of this attempt is
#: dead, and even a busy control plane has found that its host is lost.
HEARTBEAT_TIMEOUT = timedelta(seconds=75)


class Rules(Frozen):
    """The scheduler settings that operators choose."""

    #: How long smaller gangs may overtake a gang that would fit on empty hosts. After this time,
    #: the scheduler reserves hosts for the gang.
    patience: timedelta = Field(default=timedelta(minutes=10), ge=timedelta(0), le=MAX_DURATION)
    #: After this time without a placement, a user is served next: the resources that the user holds
    #: no longer delay the user's turn.
    owed_after: timedelta = Field(default=timedelta(hours=1), ge=timedelta(0), le=MAX_DURATION)
    #: Whether gangs of higher bands evict gangs of lower bands.
    preemption: bool = True
    #: The scheduler does not evict a gang before it has run for this time, so that a gang makes
    #: progress between two evictions.
    min_run_time: timedelta = Field(default=timedelta(minutes=2), ge=timedelta(0), le=MAX_DURATION)
    #: How long a program runs on without contact between its host and the Temporal server.
    lease: timedelta = Field(default=timedelta(seconds=50), ge=SHORTEST_LEASE, le=MAX_DURATION)


class Contact(NamedTuple):
    """How often an attempt contacts the Temporal server, and how long its program runs without
    contact. The scheduler decides both when it places the gang.
    """

    #: The host kills the program after this time, in seconds, without contact.
    lease: float = 50.0
    #: The time between two heartbeats, in seconds.
    interval: float = HEARTBEAT_INTERVAL.total_seconds()

    @property
    def heartbeat_timeout(self) -> timedelta:
        """How long the server waits for a heartbeat of an attempt. It exceeds the lease by the same
        time as `HEARTBEAT_TIMEOUT` exceeds the default lease.
        """
        return HEARTBEAT_TIMEOUT + timedelta(seconds=self.lease - Contact().lease)

    @classmethod
    def of(cls, rules: Rules, tasks: int) -> "Contact":
        """Returns the contact for an attempt that starts while the cluster runs this many tasks."""
        lease = rules.lease.total_seconds()
        return cls(lease).slowed(tasks / HEARTBEATS_PER_SECOND)

    def slowed(self, interval: float) -> "Contact":
        """Returns the contact with at least this interval, but with no fewer than
        `HEARTBEATS_PER_LEASE` heartbeats in a lease.
        """
        return self._replace(
            interval=max(self.interval, min(interval, self.lease / HEARTBEATS_PER_LEASE))
        )
