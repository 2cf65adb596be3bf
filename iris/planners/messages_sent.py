"""The messages that gangs and slices send the scheduler."""

from iris.messages.scheduler import Ask, Release, Retire, SliceDown
from iris.model.host.hosts import ClosedBy, Closure
from iris.model.job.gangs import Gang
from iris.model.job.requests import request_for
from iris.model.slice.events import RetireHosts
from iris.model.slice.record import SliceRecord
from iris.scheduling.jobs import retries
from iris.scheduling.jobs.gang_lifecycle import GangLifecycle


def ask_of(gang: Gang, run_id: str, owner: str) -> Ask:
    """Returns the request for the gang's next attempt.

    Args:
        run_id: the first run of the workflow that sends it.
        owner: the id of that workflow.
    """
    return Ask(
        request=request_for(
            gang.spec,
            index=gang.first.index,
            attempt=gang.first.attempt + 1,
            run_id=run_id,
            owner=owner,
            submitted_at=gang.queued_at,
            band=gang.band,
            avoid=gang.avoided,
        )
    )


def release_of(gang: GangLifecycle, *, cancelled: bool) -> Release:
    """Returns the message that withdraws the gang's request, or frees its hosts.

    Args:
        cancelled: whether the gang is cancelled.
    """
    key = gang.gang.first.key
    assert key is not None
    hosts = retries.hosts_after(gang.placement, gang.outcomes)
    ended = retries.attempt_end(gang.gang, gang.outcomes, gang.eviction, cancelled=cancelled)
    return Release(key=key, **hosts._asdict(), ended=ended)


def retire_of(slice: SliceRecord, retire: RetireHosts) -> Retire:
    """Returns the message that removes the hosts if they are free. If the slice is deleted in any
    case, it closes them as well.
    """
    drain = retire.drain
    return Retire(
        incarnations=slice.incarnations,
        idle_since=drain.idle_since,
        closure=(
            Closure(by=ClosedBy.DRAIN, reason=drain.reason) if drain.idle_since is None else None
        ),
        evict=retire.evicts,
    )


def down_of(slice: SliceRecord, *, gone: bool) -> SliceDown:
    """Returns the message that removes the hosts.

    Args:
        gone: whether the machines no longer exist, or are switched off.
    """
    return SliceDown(incarnations=slice.incarnations, gone=gone, reason=slice.facts.reason)
