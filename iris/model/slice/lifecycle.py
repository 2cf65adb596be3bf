"""The lifecycle of a slice: how each event changes the slice, and which effects it has.

`step` takes a slice and an event. It returns the slice after the event, and effects, which the
workflow performs in their order. An effect with a result is the last effect of its step. The
workflow passes the result to `step` as the next event.

Rule 1: a slice changes only in this module. `TABLE` has for each state the events that can arrive
in it, each with the function that handles it. Rule 2: an event that is not in the state's row
raises `IllegalMove` and changes nothing. An event without consequences has the entry `_ignore`.
Rule 3: nothing here reads a clock. `now` is the workflow's time, and a deadline arrives as an
event.

A slice that is created has a request to the platform. A slice that joined has no request: its
machines exist already, and nothing deletes them. Not in this module: the deletion of the machines,
which the workflow repeats until the platform confirms it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from iris.model.host.hosts import fault_of
from iris.model.host.resources import least
from iris.model.lifecycle import transition
from iris.model.slice.events import (
    Cancelled,
    ConsoleRead,
    DeadlineReached,
    DescribeMachines,
    Effect,
    Event,
    HostGone,
    HostMissing,
    HostReported,
    HostsOffered,
    HostsRemoved,
    MachinesDeleted,
    MachinesDescribed,
    MachinesListed,
    NotDescribed,
    OfferHosts,
    ReadConsole,
    ReportFacts,
    RequestAbandoned,
    RequestAnswered,
    RequestMachines,
    RetireAnswered,
    RetireHosts,
    ShowState,
    WorkflowStarted,
)
from iris.model.slice.provisioning import MachineState, SliceFault, SliceObservation, loss_of
from iris.model.slice.record import SliceRecord, with_last_line
from iris.model.slice.scale_groups import Pace
from iris.model.slice.scaling import Drain
from iris.model.slice.status import LIVE, SliceState
from iris.model.units import format_duration

#: How long Iris waits for the platform to repair machines. After this time, Iris deletes them,
#: because a new slice is ready sooner. Most repairs take some minutes; maintenance of a large slice
#: takes hours.
REPAIR_GRACE = timedelta(minutes=15)
#: The pause before Iris asks the platform again about machines that were not created, or not
#: repaired, in time.
DESCRIBE_AGAIN = timedelta(seconds=30)
#: The first pause between two checks whether a draining slice is free. The pause doubles each time,
#: up to MAX_DRAIN_CHECK.
DRAIN_CHECK = timedelta(seconds=1)
#: The longest pause between two checks whether a draining slice is free.
MAX_DRAIN_CHECK = timedelta(minutes=2)
#: The longest pause between two checks whether a draining slice is free after its tasks have been
#: evicted. The tasks end within their grace period, so this phase is short.
MAX_EVICTION_CHECK = timedelta(seconds=5)
#: The time after the deadline of a drain in which evicted tasks can end and release their hosts.
#: After this time, the slice is deleted in any case.
EVICTION_GRACE = timedelta(minutes=2)


class Transition(NamedTuple):
    """A slice after an event, and the actions (`Effect`) that its workflow then performs, in this
    order.
    """

    slice: SliceRecord
    effects: tuple[Effect, ...] = ()


def step(slice: SliceRecord, event: Event, now: datetime) -> Transition:
    """Returns the slice after the event, and the effects of the event.

    Args:
        now: the workflow's time.

    Raises:
        IllegalMove: the slice's state does not accept the event.
    """
    handler = transition(TABLE, slice.state, type(event), "a slice")
    return handler(slice, event, now)


def deadline(slice: SliceRecord) -> datetime | None:
    """Returns when `DeadlineReached` is due if no other event arrives; None if there is no
    deadline.
    """
    if slice.request is None:
        return None
    pace, entered = slice.request.group.pace, slice.facts.changed_at
    match slice.state:
        case SliceState.PROVISIONING:
            usual = [max(entered + pace.boot_timeout, slice.check_at)]
        case SliceState.BOOTSTRAPPING:
            usual = [entered + pace.init_timeout]
        case SliceState.READY:
            usual = []
        case SliceState.DRAINING:
            usual = [slice.check_at]
        case _:
            return None
    repair = slice.facts.repair_until
    return min(usual if repair is None else [*usual, repair], default=None)


# Until the machines exist.


def _start(slice: SliceRecord, event: WorkflowStarted, now: datetime) -> Transition:
    if slice.request is None:
        return _move(
            slice, SliceState.BOOTSTRAPPING, f"waits for {slice.size} host(s) to report", now
        )
    if slice.adopted:
        return _move(
            slice,
            SliceState.PROVISIONING,
            "its machines were found without a workflow and are adopted",
            now,
        )
    return Transition(slice, (RequestMachines(slice.request),))


def _answer_request(slice: SliceRecord, event: RequestAnswered, now: datetime) -> Transition:
    outcome = event.outcome
    if outcome.fault is not None:
        return _fail(slice, outcome.fault, outcome.reason, now, quota_scope=outcome.quota_scope)
    accepted = _move(
        slice,
        SliceState.PROVISIONING,
        f"the platform creates its machines in {slice.facts.zone}",
        now,
    )
    return (
        _then(accepted, _observe, outcome.observation, now, now)
        if outcome.observation is not None
        else accepted
    )


def _abandon(slice: SliceRecord, event: RequestAbandoned, now: datetime) -> Transition:
    return _move(
        slice, SliceState.DELETING, "no longer needed before the platform answered the request", now
    )


def _observe(
    slice: SliceRecord, seen: SliceObservation | None, at: datetime, now: datetime
) -> Transition:
    """Handles an observation of the machines.

    Args:
        seen: None if the platform has no machines of the slice.
        at: the time of the observation.
    """
    slice = replace(slice.with_key(seen), stopped=seen is not None and seen.stopped)
    if (loss := loss_of(seen)) is not None:
        return _fail(slice, *loss, now, quota_scope=seen.quota_scope if seen is not None else "")
    if seen is None or seen.state is MachineState.CREATING:
        return Transition(slice if seen is None else slice.waiting(seen.reason, now))
    exist = _machines_exist(slice, now)
    repairing = seen.state is MachineState.REPAIRING
    if repairing is (slice.facts.repair_until is not None):
        return exist
    # Agents and tasks may continue during a repair.
    grace = format_duration(REPAIR_GRACE)
    begun = f"in repair; deleted if that takes longer than {grace}: {seen.reason}"
    slice = exist.slice.with_facts(repair_until=at + REPAIR_GRACE if repairing else None)
    slice = slice.noted(begun if repairing else "the platform has repaired its machines", now)
    return Transition(slice, (*exist.effects, ReportFacts(slice.facts)))


def _machines_exist(slice: SliceRecord, now: datetime) -> Transition:
    if slice.state is not SliceState.PROVISIONING:
        return Transition(slice)
    return _move(slice, SliceState.BOOTSTRAPPING, "its machines exist; waits for their agents", now)


# Hosts.


def _add_host(slice: SliceRecord, event: HostReported, now: datetime) -> Transition:
    if not (proven := slice.proves(event.host, event.signature, event.public_key)):
        # If it is None, the slice has no key yet to verify the report. The agent reports again
        # until the slice accepts or refuses the host.
        return Transition(
            slice if proven is None else replace(slice, refused=slice.refused | {event.host.id})
        )
    exist = _machines_exist(slice, now)
    host = event.host if slice.request is None else slice.request.group.with_reserve(event.host)
    before = next(
        (
            each.fault
            for each in slice.hosts
            if (each.id, each.incarnation) == (host.id, host.incarnation)
        ),
        "",
    )
    slice = exist.slice.with_host(host, event.public_key)
    if host.fault != before:
        slice = slice.noted(
            (
                f"host {host.id} is {fault_of(host)}"
                if host.fault
                else f"host {host.id} has no fault any more"
            ),
            now,
        )
    complete = len(slice.hosts) >= slice.size
    return Transition(
        slice, (*exist.effects, OfferHosts(slice.hosts)) if complete else exist.effects
    )


def _become_ready(slice: SliceRecord, event: HostsOffered, now: datetime) -> Transition:
    if event.ended:
        return _note_ended(slice, event, now)
    offers = least(host.resources for host in slice.hosts) if slice.hosts else None
    ready = _move(
        slice, SliceState.READY, "every host takes work", now, ready_at=now, offers=offers
    )
    return _then(ready, _drain_ready, slice.drain, now) if slice.drain is not None else ready


def _note_ended(slice: SliceRecord, event: HostsOffered, now: datetime) -> Transition:
    """Records which hosts the scheduler has not accepted. Their agents read that and report again,
    as new incarnations.
    """
    known, slice = slice.ended, replace(slice, ended=frozenset(event.ended))
    if known.issuperset(event.ended):
        return Transition(slice)
    hosts = ", ".join(sorted(host_id for host_id, _ in event.ended))
    return Transition(
        slice.noted(
            f"the scheduler has ended the incarnation of {hosts}; a new one has to begin", now
        )
    )


def _offer_again(slice: SliceRecord, event: HostMissing, now: datetime) -> Transition:
    """Offers the hosts of a ready slice again. The scheduler accepts them, or answers which
    incarnations it has ended.
    """
    noted = (
        slice
        if slice.ended
        else slice.noted("the scheduler does not have all of its hosts; offers them again", now)
    )
    return Transition(noted, (OfferHosts(slice.hosts),))


def _lose_host(slice: SliceRecord, event: HostGone, now: datetime) -> Transition:
    """Fails the slice: the other hosts of a TPU slice cannot compute without the lost one."""
    if (event.host_id, event.incarnation) not in slice.incarnations:
        return Transition(slice)  # an earlier incarnation
    return _fail(
        slice, SliceFault.HOST_LEFT if event.left else SliceFault.HOST_LOST, event.reason, now
    )


# Machines.


def _check_list(slice: SliceRecord, event: MachinesListed, now: datetime) -> Transition:
    if event.observation is None:
        return Transition(slice, (DescribeMachines(),))
    return _observe(slice, event.observation, event.at, now)


def _check_machines(slice: SliceRecord, event: MachinesDescribed, now: datetime) -> Transition:
    before = slice
    slice, effects = _observe(_described(slice, now), event.observation, event.at, now)
    if not event.overdue or slice.state not in LIVE:
        return Transition(slice, effects)
    if slice.state is SliceState.PROVISIONING:
        return Transition(slice, (*effects, ReadConsole()))
    if before.facts.repair_until is not None and slice.facts.repair_until is not None:
        reason = f"in repair for {format_duration(REPAIR_GRACE)}"
        return _then(Transition(slice, effects), _fail, SliceFault.PREEMPTED, reason, now)
    return Transition(slice, effects)


def _describe_later(slice: SliceRecord, event: NotDescribed, now: datetime) -> Transition:
    """Waits, because the platform does not answer and an overdue slice may work."""
    slice = _described(slice, now)
    until = slice.facts.repair_until
    return Transition(
        slice.with_facts(repair_until=until + DESCRIBE_AGAIN)
        if event.overdue and until is not None
        else slice
    )


def _described(slice: SliceRecord, now: datetime) -> SliceRecord:
    """Returns the slice after a question to the platform. While the machines do not exist, it is
    asked again at the earliest after `DESCRIBE_AGAIN`.
    """
    provisioning = slice.state is SliceState.PROVISIONING
    return replace(slice, check_at=now + DESCRIBE_AGAIN) if provisioning else slice


# Deadlines.


def _check_deadline(slice: SliceRecord, event: DeadlineReached, now: datetime) -> Transition:
    repair = slice.facts.repair_until
    if repair is not None and event.due >= repair:
        # The end of the repair may be unknown, because the autoscaler was not running.
        return Transition(slice, (DescribeMachines(overdue=True),))
    match slice.state:
        case SliceState.PROVISIONING:
            # The machines may exist although no observation has shown them.
            return Transition(slice, (DescribeMachines(overdue=True),))
        case SliceState.BOOTSTRAPPING:
            return Transition(slice, (ReadConsole(),))
        case SliceState.DRAINING if slice.drain is not None:
            return Transition(slice, (RetireHosts(slice.drain, event.due),))
    return Transition(slice)


def _fail_late(slice: SliceRecord, event: ConsoleRead, now: datetime) -> Transition:
    """Fails a slice whose machines or agents are overdue."""
    fault, reason = lateness(slice.state, slice.created.group.pace, len(slice.hosts), slice.size)
    slice = replace(slice, console_output=event.output)
    return _fail(slice, fault, with_last_line(reason, event.output), now)


def lateness(state: SliceState, pace: Pace, reported: int, size: int) -> tuple[SliceFault, str]:
    """Returns the fault and the reason for a slice that is still in this state at its deadline.

    Args:
        reported: the number of its hosts whose agents have reported.
    """
    if state is SliceState.PROVISIONING:
        return (
            SliceFault.BOOT_TIMEOUT,
            (
                "the platform has not created its machines within"
                f" {format_duration(pace.boot_timeout)}"
            ),
        )
    return (
        SliceFault.INIT_TIMEOUT,
        f"{reported} of {size} agents have reported within {format_duration(pace.init_timeout)}",
    )


# Drains.


def _drain_early(slice: SliceRecord, drain: Drain, now: datetime) -> Transition:
    if slice.request is None:
        return Transition(slice)
    if slice.adopted and slice.request.token:
        # Tasks may run on the slice, so its agents have to report before it is drained.
        return Transition(replace(slice, drain=drain))
    return _move(slice, SliceState.DELETING, drain.reason, now)


def _drain_ready(slice: SliceRecord, drain: Drain, now: datetime) -> Transition:
    if slice.request is None:
        return Transition(slice)
    if drain.idle_since is not None:
        return Transition(slice, (RetireHosts(drain),))
    return _then(_move(slice, SliceState.DRAINING, drain.reason, now), _drain_again, drain, now)


def _drain_again(slice: SliceRecord, drain: Drain, now: datetime) -> Transition:
    if drain.idle_since is not None:
        return Transition(slice)
    drain = drain.beside(slice.drain)
    return Transition(replace(slice, drain=drain, check_every=DRAIN_CHECK), (RetireHosts(drain),))


def _retire_idle(slice: SliceRecord, event: RetireAnswered, now: datetime) -> Transition:
    """Deletes the slice if the scheduler confirms that it is idle. It is not idle if a gang was
    placed on it since.
    """
    reason = event.request.drain.reason
    if not event.problem:
        return _move(slice, SliceState.DELETING, reason, now)
    slice = slice.noted(f"not deleted ({reason}): {event.problem}", now)
    return Transition(slice, (ReportFacts(slice.facts),))


def _retire_drained(slice: SliceRecord, event: RetireAnswered, now: datetime) -> Transition:
    """Deletes the slice if it is free or its drain has lasted long enough. Otherwise the slice is
    checked again later.
    """
    drain, overdue = event.request.drain, event.request.evicts
    reason = f"{drain.reason}; {event.problem}" if event.problem else drain.reason
    if not event.problem or drain.is_over(event.at, EVICTION_GRACE):
        return _move(slice, SliceState.DELETING, reason, now)
    pause = DRAIN_CHECK if overdue and not slice.evicted else slice.check_every
    check_at = event.at + pause
    if drain.deadline is not None and not overdue:
        check_at = min(check_at, drain.deadline)
    pause = min(2 * pause, MAX_EVICTION_CHECK if overdue else MAX_DRAIN_CHECK)
    slice = replace(slice, check_at=check_at, check_every=pause, evicted=slice.evicted or overdue)
    return Transition(slice.with_facts(reason=reason))


# The end.


def _cancel(slice: SliceRecord, event: Cancelled, now: datetime) -> Transition:
    return Transition(slice.noted("cancelled", now))


def _delete(slice: SliceRecord, event: HostsRemoved, now: datetime) -> Transition:
    return _move(slice, SliceState.DELETING, slice.facts.reason, now)


def _end(slice: SliceRecord, event: MachinesDeleted, now: datetime) -> Transition:
    return _move(slice, SliceState.DELETED, slice.facts.reason, now)


def _ignore(slice: SliceRecord, event: Event, now: datetime) -> Transition:
    return Transition(slice)


# Parts of steps.


def _move(
    slice: SliceRecord, state: SliceState, reason: str, now: datetime, **facts: object
) -> Transition:
    slice = slice.moved(state, reason, now, **facts)
    if slice.request is not None:
        return Transition(slice, (ShowState(state), ReportFacts(slice.facts)))
    return Transition(
        slice, (ShowState(state),) if state in (SliceState.READY, SliceState.DELETED) else ()
    )


def _fail(
    slice: SliceRecord, fault: SliceFault, reason: str, now: datetime, quota_scope: str = ""
) -> Transition:
    return _move(slice, SliceState.FAILED, reason, now, fault=fault, quota_scope=quota_scope)


def _then(first: Transition, second: Callable[..., Transition], *args: object) -> Transition:
    """Returns the second step after the first one, with the effects of both."""
    after = second(first.slice, *args)
    return Transition(after.slice, (*first.effects, *after.effects))


_Handler = Callable[[SliceRecord, Any, datetime], Transition]
_Row = Mapping[type[Event], _Handler]
_S = SliceState

#: The events that all states in `iris.model.slice.status.LIVE` accept, with the functions that
#: handle them. `TABLE` replaces some of these functions for a single state.
_LIVE: _Row = {
    WorkflowStarted: _ignore,
    HostReported: _add_host,
    HostGone: _lose_host,
    HostMissing: _ignore,
    MachinesListed: _check_list,
    MachinesDescribed: _check_machines,
    NotDescribed: _describe_later,
    DeadlineReached: _check_deadline,
    Cancelled: _cancel,
    HostsRemoved: _delete,
}
#: The events that change nothing after the decision to delete the slice.
_TOO_LATE: _Row = dict.fromkeys((HostReported, HostGone, MachinesListed, Drain), _ignore)

#: The function that handles each event in each state. In REQUESTED, no signals are handled: they
#: wait until the platform has answered the request.
TABLE: Mapping[SliceState, _Row] = {
    _S.REQUESTED: {
        WorkflowStarted: _start,
        RequestAnswered: _answer_request,
        RequestAbandoned: _abandon,
        Cancelled: _cancel,
        HostsRemoved: _delete,
    },
    _S.PROVISIONING: {**_LIVE, ConsoleRead: _fail_late, Drain: _drain_early},
    _S.BOOTSTRAPPING: {
        **_LIVE,
        HostsOffered: _become_ready,
        ConsoleRead: _fail_late,
        Drain: _drain_early,
    },
    _S.READY: {
        **_LIVE,
        HostsOffered: _note_ended,
        HostMissing: _offer_again,
        Drain: _drain_ready,
        RetireAnswered: _retire_idle,
    },
    _S.DRAINING: {
        **_LIVE,
        HostsOffered: _note_ended,
        Drain: _drain_again,
        RetireAnswered: _retire_drained,
    },
    _S.FAILED: {**_TOO_LATE, Cancelled: _cancel, HostsRemoved: _delete},
    _S.DELETING: {
        **_TOO_LATE,
        WorkflowStarted: _ignore,
        Cancelled: _cancel,
        HostsRemoved: _ignore,
        MachinesDeleted: _end,
    },
    _S.DELETED: {**_TOO_LATE, Cancelled: _ignore},
}
