"""Decides when a host that stopped reporting is lost. All times that affect this decision are here.

An agent that dies leaves its programs running. The host's next agent adopts the programs if it
starts within their lease (`Rules.lease`, at least 50 s by default). If the slice is given up before
the lease ends, a gang loses its attempt. If it is given up after the jobs retry
(`HEARTBEAT_TIMEOUT`, 75 s), the next attempts go to its hosts, where no agent starts them. So the
decision falls between these two times:

- When an agent goes away at time 0, its last report is up to `REPORT_INTERVAL` (10 s) old.
- A host whose last report is `PING_AFTER` (50 s) old is pinged. It has `PING_TIMEOUT` (5 s) to
  answer. An agent answers as soon as it accepts work; its first report may arrive ten seconds
  later.
- So a slice is never lost if its agent is back within `AWAY` (45 s). A dead host counts as lost 45
  to 56 s after its death, and its jobs retry 73 to 75 s after its death. The rest of the time is a
  margin for a slow control plane.

Temporal keeps its list of workers in server memory. The list is empty for some seconds after a
restart of the server, and it shows a killed worker as running for minutes. So only the age of a
report counts, and only when two observations agree.

A missing report is evidence only while reports of others arrive: the control plane's own report is
the proof. A service may have reports switched off, or delay them under load. Then the polls of the
agents count, which every service knows (`POLL_LIMIT`). If most slices are silent at once, the
service or the network is the likely cause. Then no slice is given up until other hosts answer
(`need_witnesses`). Reports of the platform about its machines do not depend on these rules.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from iris.model.frozen import Frozen

#: How often an agent reports: it sends a worker heartbeat to the Temporal service.
REPORT_INTERVAL = timedelta(seconds=10)
#: A host without a report for this time is silent, and the autoscaler observes the fleet again
#: soon. The time is `REPORT_INTERVAL` with a margin, so that one missing report is noticed.
SILENCE = timedelta(seconds=14)
#: If an agent stops and starts again within this time, no task is lost. The time is the default
#: lease of the programs minus the time to renew it.
AWAY = timedelta(seconds=45)
#: How long a host has to answer a ping.
PING_TIMEOUT = timedelta(seconds=5)
#: A silent host is pinged when its last report is this old. An agent that goes away may have
#: reported up to `REPORT_INTERVAL` before, and a ping takes up to `PING_TIMEOUT`. So a host is
#: given up, at the earliest, `AWAY` after its agent went away.
PING_AFTER = AWAY + REPORT_INTERVAL - PING_TIMEOUT
#: A host whose last poll of its task queue is older than this is silent. A live agent polls at
#: least once a minute: a poll without a task ends after a minute, and the next begins. Polls count
#: only if reports or pings do not arrive, because they show a dead host half a minute later.
POLL_LIMIT = timedelta(seconds=75)
#: Witnesses are other hosts that must reach the service before silent hosts count as lost. None are
#: needed if the fleet has at most this many slices. Unless polls decide, none are needed either if
#: at most this many slices are silent at once.
FEW_SLICES = 2
#: Unless polls decide, no witnesses are needed either if at most this share of all slices of the
#: fleet is silent. Slices are counted, not hosts, because the hosts of one slice are lost together.
SHARE = 0.5
#: The number of hosts that are pinged as witnesses. They are hosts that are not silent. Most of
#: them have to answer before silent hosts count as lost. If the service cannot ping, one host that
#: has just begun a poll is enough.
WITNESSES = 5
#: For this time after witnesses did not answer, silent hosts that need witnesses do not count as
#: lost. The Temporal service was probably away, and an agent polls it again after at most 12 s.
RECONNECT = timedelta(seconds=30)
#: The message that is shown if silent hosts do not count as lost, because too few witnesses (other
#: hosts) show that they reach the Temporal service.
HELD = (
    "{} hosts are silent and most others do not answer either; none counts as lost, because the"
    " Temporal service or the network may be the cause"
)
#: The time between two observations of the fleet by the autoscaler while all hosts report.
OBSERVE_INTERVAL = timedelta(seconds=15)
#: The time to the next observation if a silent host did not answer a ping in the last one. It is
#: longer than `REPORT_INTERVAL`: after an outage of the Temporal service all hosts are silent at
#: first, and live agents need the time to report.
SECOND_OBSERVATION_DELAY = timedelta(seconds=12)
#: The shortest time between two observations while hosts are silent.
SHORTEST_OBSERVATION_DELAY = timedelta(seconds=1)


class Silent(Frozen):
    """A host that should report but does not: its last report is older than `SILENCE`, or no report
    is known.
    """

    host_id: str
    slice_id: str
    incarnation: str
    #: The seconds since the host's last report, answer to a ping or poll. For a host without any,
    #: the seconds since its report was first missing; None before that is known.
    age: float | None = None
    #: True if the host did not answer a ping.
    unanswered: bool = False

    @property
    def agent(self) -> tuple[str, str]:
        """The (host id, incarnation) that identifies the agent."""
        return self.host_id, self.incarnation

    @property
    def reason(self) -> str:
        silence = (
            "no longer reports to the server"
            if self.age is None
            else f"has not reported for {self.age:.0f} s"
        )
        return f"host {self.host_id} {silence}" + (
            " and does not answer" if self.unanswered else ""
        )


def age_of_new_report(age_by_its_clock: float, since_last_observation: float | None) -> float:
    """Returns the age in seconds of a report that arrived since the last observation.

    The host's clock gives the age. If that age is impossible, the clock is wrong and the report
    counts as new, which delays the decision. If the clock is slow by less than the time between two
    observations, the error is not noticed, and the decision comes earlier by that error.

    Args:
        since_last_observation: the seconds since the last observation; None if this is the first.
    """
    fits = since_last_observation is not None and 0 <= age_by_its_clock <= since_last_observation
    return age_by_its_clock if fits else 0.0


def silent_hosts(expected: Iterable[Silent], ages: Mapping[tuple[str, str], float]) -> list[Silent]:
    """Returns the expected hosts that are silent.

    Args:
        ages: the seconds since the last report, by (host, incarnation).
    """
    found = []
    for host in expected:
        age = ages.get(host.agent)
        if age is None or age > SILENCE.total_seconds():
            found.append(host.model_copy(update={"age": age, "unanswered": False}))
    return found


def must_be_pinged(host: Silent) -> bool:
    """Returns whether the silent host is lost if it does not answer."""
    return host.age is None or host.age >= PING_AFTER.total_seconds()


def need_witnesses(silent: Iterable[Silent], expected: Iterable[Silent], *, by_polls: bool) -> bool:
    """Returns whether silent hosts are lost only if other hosts, the witnesses, answer.

    Witnesses are needed if too many slices are silent at once, because the service or the network
    is then the likely cause. If polls decide, witnesses are always needed: when all hosts lose
    contact, their last polls get too old one after another, never many at once. A fleet of a few
    slices needs no witnesses.

    Args:
        by_polls: whether polls decide instead of reports.
    """
    fleet, slices = ({host.slice_id for host in hosts} for hosts in (expected, silent))
    return len(fleet) > FEW_SLICES and (
        by_polls or len(slices) > max(FEW_SLICES, SHARE * len(fleet))
    )


def lost_hosts(
    suspects: Iterable[Silent], silent: Iterable[Silent]
) -> tuple[list[Silent], list[Silent]]:
    """Returns (suspects for the next observation, lost hosts). A host is lost if it does not answer
    and was a suspect in the last observation.
    """
    before = {host.agent for host in suspects}
    still: list[Silent] = []
    lost: list[Silent] = []
    for host in silent:
        is_lost = host.unanswered and host.agent in before
        (lost if is_lost else still).append(host)
    return still, lost


def next_observation(suspects: Iterable[Silent], every: timedelta) -> timedelta:
    """Returns the time until the next observation, which is not later than the ping of a suspect.

    Args:
        every: the time between two observations when all hosts report.
    """
    return min((_until_decision(host, every) for host in suspects), default=every)


def _until_decision(suspect: Silent, every: timedelta) -> timedelta:
    if suspect.unanswered or suspect.age is None:
        return SECOND_OBSERVATION_DELAY
    return min(every, max(SHORTEST_OBSERVATION_DELAY, PING_AFTER - timedelta(seconds=suspect.age)))
