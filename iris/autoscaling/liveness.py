"""Decides when a host that stopped reporting is lost, and holds every number that this depends on.

An agent that dies leaves its programs running. The host's next agent adopts them if it is back
within the lease of the programs (`Rules.lease`, at least 50 s by default). If the slice is given up
before that, a gang loses its attempt. If it is given up after the jobs retry (`policies.HEARTBEAT`,
75 s), their next attempts go to its hosts, where no agent takes them. So the decision falls in
between:

- When an agent goes away at time 0, its last report is up to `REPORT_INTERVAL` (10 s) old.
- A host whose last report is `PING_AFTER` (50 s) old is pinged. It has `PING_TIMEOUT` (5 s) to
  answer. An agent answers as soon as it accepts work; its first report may arrive ten seconds
  later.
- So an agent that is back within `AWAY` (45 s) never costs its slice. A dead host is lost 45 to 56
  s after its death, and its jobs retry 73 to 75 s after it. The time between is for a control plane
  that is slow.

Temporal keeps its list of workers in server memory. The list is empty for some seconds after a
restart of the server, and it shows a killed worker as running for minutes. So only the age of a
report counts, and only when two observations agree.

Reports are evidence only while they arrive at all: the control plane's own report is the proof. A
service may have them switched off, and delays them under load. Then the polls of the agents count,
which every service knows (`POLL_LIMIT`). If most slices are silent at once, the cause is likely the
service or the network. Then none is given up until other hosts answer (`need_witnesses`). What the
platform reports of its machines is independent of all this.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from iris.model.frozen import Frozen

#: How often an agent reports.
REPORT_INTERVAL = timedelta(seconds=10)
#: One missing report and a margin. After this time a host is silent, and the fleet is observed
#: again soon.
SILENCE = timedelta(seconds=14)
#: An agent that is away for less than this costs nothing: the lease of its programs, minus the time
#: to renew it.
AWAY = timedelta(seconds=45)
#: How long a host has to answer a ping.
PING_TIMEOUT = timedelta(seconds=5)
#: The age of its last report at which a host is pinged. The agent may have gone away just before
#: its next report was due.
PING_AFTER = AWAY + REPORT_INTERVAL - PING_TIMEOUT
#: A live agent polls at least once a minute: a poll that finds no task ends after that time, and
#: the next one begins. The rest is a margin. Polls count only where reports do not arrive: they
#: show a dead host half a minute later.
POLL_LIMIT = timedelta(seconds=75)
#: This number of slices may be silent at once, however small the fleet is.
FEW_SLICES = 2
#: The largest share of a larger fleet that may. The hosts of one slice count once: they are lost
#: together.
SHARE = 0.5
#: How many of the hosts that are not silent are pinged as witnesses. Most of them have to answer.
WITNESSES = 5
#: How long after an outage silent hosts are not given up: the SDK polls again after at most 12 s.
RECONNECT = timedelta(seconds=30)
#: What is shown meanwhile.
HELD = (
    "{} hosts are silent and no other host answers; none is given up: the cause may be the service"
    " or the network"
)
#: Between two observations when all hosts report.
OBSERVE_INTERVAL = timedelta(seconds=15)
#: Between two observations if the first one found new suspects that did not answer. Longer than
#: `REPORT_INTERVAL`: after an outage of the service all hosts are silent at first, and live agents
#: must have the time to report.
SECOND_OBSERVATION_DELAY = timedelta(seconds=12)
#: The shortest time between two observations while there are suspects.
SHORTEST_OBSERVATION_DELAY = timedelta(seconds=1)


class Silent(Frozen):
    """A host that should report and does not: its last report is older than `SILENCE`, or there is
    none.
    """

    host_id: str
    slice_id: str
    incarnation: str
    #: Seconds since the last report or answer; None: the server has none.
    age: float | None = None
    #: Whether it was pinged and did not answer.
    unanswered: bool = False

    @property
    def agent(self) -> tuple[str, str]:
        """Returns the (host id, incarnation) that identifies the agent."""
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
    """Returns the age, in seconds, of a report that this observation is the first to see.

    The report came between the last observation and this one. The host's clock gives its age. If
    that age is impossible, the clock is wrong and the report counts as new, which delays the
    decision. A clock that is slow by less than the time between two observations is believed, which
    hastens the decision by as much as it is slow.

    Args:
        since_last_observation: None: there was no earlier observation.
    """
    fits = since_last_observation is not None and 0 <= age_by_its_clock <= since_last_observation
    return age_by_its_clock if fits else 0.0


def silent_hosts(expected: Iterable[Silent], ages: Mapping[tuple[str, str], float]) -> list[Silent]:
    """Returns the expected hosts that are silent; `ages` gives seconds since the last report by
    (host, incarnation).
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
    """Returns whether silent hosts are lost only if other hosts reach the service.

    They do if too many slices are silent at once: the likely cause is then the service or the
    network. They always do if polls
    decide: when all hosts are cut off, their polls grow old one after the other, never too many at
    once. A fleet of a few slices has no witnesses.
    """
    fleet, slices = ({host.slice_id for host in hosts} for hosts in (expected, silent))
    return len(fleet) > FEW_SLICES and (
        by_polls or len(slices) > max(FEW_SLICES, SHARE * len(fleet))
    )


def lost_hosts(
    suspects: Iterable[Silent], silent: Iterable[Silent]
) -> tuple[list[Silent], list[Silent]]:
    """Returns (suspects for the next observation, lost hosts). A host is lost if it was a suspect
    before and does not answer.
    """
    before = {host.agent for host in suspects}
    still: list[Silent] = []
    lost: list[Silent] = []
    for host in silent:
        is_lost = host.unanswered and host.agent in before
        (lost if is_lost else still).append(host)
    return still, lost


def next_observation(suspects: Iterable[Silent], every: timedelta) -> timedelta:
    """Returns the time until the next observation: at the latest when a suspect must be pinged.

    Args:
        every: the time between two observations when all hosts report.
    """
    return min((_until_decision(host, every) for host in suspects), default=every)


def _until_decision(suspect: Silent, every: timedelta) -> timedelta:
    if suspect.unanswered or suspect.age is None:
        return SECOND_OBSERVATION_DELAY
    return min(every, max(SHORTEST_OBSERVATION_DELAY, PING_AFTER - timedelta(seconds=suspect.age)))
