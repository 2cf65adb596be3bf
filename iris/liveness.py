"""When a silent host counts as lost.

Temporal's list of workers is kept in server memory: it is empty for some seconds after a server's restart, and a killed worker
shows as running for minutes. So a host is judged by the age of its last heartbeat, and only when two looks agree.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from pydantic import BaseModel, ConfigDict

#: How often an agent reports.
REPORT_EVERY = timedelta(seconds=10)
#: One report missing, and a little: silence, and a reason to look again. With the looks below, a host is lost when it has not
#: reported for at least 26 s, and within 45 s of its death.
SILENCE = timedelta(seconds=14)
#: Between two looks when all is well. Each costs eleven events; 240 an hour stay below 3,000.
LOOK_EVERY = timedelta(seconds=15)
#: Between a suspicion and the second look. Longer than agents take to report: after an outage of the service all are silent at
#: the first look, and those that live must have had the time to say so.
LOOK_AGAIN = timedelta(seconds=12)


class Silent(BaseModel):
    """A host that ought to report and does not: its last report is older than `SILENCE`, or there is none."""

    model_config = ConfigDict(frozen=True)

    host_id: str
    slice_id: str
    incarnation: str
    #: Seconds since the last report; None: the server has none.
    age: float | None = None

    @property
    def reason(self) -> str:
        if self.age is None:
            return f"host {self.host_id} no longer reports to the server"
        return f"host {self.host_id} has not reported for {self.age:.0f} s"


def silent_hosts(expected: Iterable[Silent], ages: Mapping[tuple[str, str], float]) -> list[Silent]:
    """Those of the expected hosts that are silent; `ages` gives seconds since the last report by (host, incarnation)."""
    found = []
    for host in expected:
        age = ages.get((host.host_id, host.incarnation))
        if age is None or age > SILENCE.total_seconds():
            found.append(host.model_copy(update={"age": age}))
    return found


def judge(suspects: Iterable[Silent], silent: Iterable[Silent]) -> tuple[list[Silent], list[Silent]]:
    """(those to look at again, those that are lost): lost is who was already a suspect at the last look."""
    before = {(host.host_id, host.incarnation) for host in suspects}
    fresh: list[Silent] = []
    lost: list[Silent] = []
    for host in silent:
        (lost if (host.host_id, host.incarnation) in before else fresh).append(host)
    return fresh, lost
