"""The first page: is anything wrong, what is used, what waits and why."""

from collections import Counter
from collections.abc import Iterator

from iris.client.jobs.lists import JobFilter
from iris.dashboard.content import Address, Content
from iris.dashboard.reader import Reader
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import Snapshot
from iris.model.states import JobState

#: The states of jobs that ended badly.
FAILED = (JobState.FAILED, JobState.WORKER_FAILED, JobState.UNSCHEDULABLE)
#: The most failures that the page shows.
MOST_FAILURES = 8


async def load(reader: Reader, address: Address) -> Content:
    """Loads the page."""
    snapshot = await reader.snapshot()
    totals, scaling = await reader.totals(), await reader.autoscaler()
    failures = await reader.jobs(JobFilter(states=FAILED), MOST_FAILURES)
    waiting: Counter[tuple[str, str]] = Counter()
    for each in totals.waiting:
        waiting[each.band, each.reason or "not computed"] += each.gangs
    return Content(
        "Overview",
        {
            "problems": list(problems(snapshot, scaling)),
            "snapshot": snapshot,
            "totals": totals,
            "waiting": waiting.most_common(),
            "scaling": scaling,
            "failures": failures,
        },
    )


def problems(snapshot: Snapshot, scaling: AutoscalerStatus) -> Iterator[str]:
    """Yields what somebody should look at."""
    if snapshot.paused is not None:
        yield f"the cluster is paused: {snapshot.paused}"
    for group, reason in snapshot.paused_groups.items():
        yield f"scale group {group} is paused: {reason}"
    if scaling.paused is not None:
        yield f"the autoscaler is paused: {scaling.paused}"
    for host, reason in snapshot.quarantined.items():
        yield f"host {host} is quarantined: {reason}"
    for zone, reason in scaling.unreachable.items():
        yield f"zone {zone} cannot be observed: {reason}"
    if scaling.held_hosts:
        yield f"{scaling.held_hosts} hosts are silent at the same time"
