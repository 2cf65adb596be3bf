"""Finds what an operator should look at, in what the scheduler and the autoscaler report."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from iris.autoscaling.liveness import HELD, SILENCE
from iris.client.operate.worker_reports import AgentReport
from iris.dashboard.words import words_of
from iris.messages.autoscaler import AutoscalerStatus
from iris.messages.scheduler import HostView, Snapshot, Totals
from iris.model.slice.scaling import Availability
from iris.scheduling.placement.refusals import INFEASIBLE

#: At most this many objects of one kind, such as quarantined hosts, are named in problems.
NAMED = 3
#: If an evaluation of the autoscaler is overdue by more than this, it is a problem.
LATE = timedelta(minutes=2)
#: If more than this share of the scheduler's memory (ledger) is used, it is a problem.
NEARLY_FULL = 0.9
#: The states in which a scale group gets no slices: a quota of the platform is used up, slices
#: failed or were soon lost, no zone has capacity, or the group is paused.
_BLOCKED = (Availability.QUOTA_EXCEEDED, Availability.BACKOFF)


class Problem(NamedTuple):
    """A problem of the cluster that an operator should look at."""

    text: str
    #: The path of the page with the details.
    link: str
    #: What the operator should do, as a command or as a sentence; empty if nothing is known to
    #: help.
    remedy: str = ""
    #: The time at which the problem began; None if it is not known.
    since: datetime | None = None
    #: The time at which the problem may end by itself; None if it is not known.
    until: datetime | None = None
    #: Whether something is broken. It is False if an operator caused the state on purpose, or if
    #: the state ends by itself.
    is_bad: bool = True


def silence(part: str, problem: str) -> Problem:
    """Returns the problem of a part of the control plane that does not answer."""
    return Problem(f"the {part} does not answer: {problem}", "/", "iris debug health")


def of_scheduler(snapshot: Snapshot) -> Iterator[Problem]:
    """Yields the problems that the scheduler reports."""
    if snapshot.paused is not None:
        yield Problem(
            _with("the cluster is paused: no task starts", snapshot.paused),
            "/queue",
            "iris cluster resume",
            is_bad=False,
        )
    for group, reason in sorted(snapshot.paused_groups.items()):
        yield Problem(
            _with(f"scale group {group} is paused: no task starts there", reason),
            f"/fleet?group={group}",
            f"iris cluster resume --group {group}",
            is_bad=False,
        )
    if len(snapshot.quarantined) > NAMED:
        yield Problem(
            f"{len(snapshot.quarantined)} hosts are quarantined: {_some(snapshot.quarantined)}",
            "/fleet?state=QUARANTINED",
            "repair them, then: iris host uncordon HOST",
        )
        return
    for host, reason in sorted(snapshot.quarantined.items()):
        yield Problem(
            _with(f"host {host} is quarantined", reason),
            f"/hosts/{host}",
            f"repair it, then: iris host uncordon {host}",
        )


def of_queue(totals: Totals) -> Iterator[Problem]:
    """Yields the problems of the waiting gangs and of the ledger."""
    for each in totals.waiting:
        if each.reason is not None and each.reason in INFEASIBLE:
            gangs = "1 gang" if each.gangs == 1 else f"{each.gangs:,} gangs"
            yield Problem(
                f"{gangs} of priority {each.band} can never start: {words_of(each.reason)}"
                f" ({each.reason})",
                f"/queue?band={each.band}",
                "change the request, or add hosts",
            )
    if totals.full_ledger_bytes and totals.ledger_bytes > NEARLY_FULL * totals.full_ledger_bytes:
        share = 100 * totals.ledger_bytes // totals.full_ledger_bytes
        yield Problem(
            f"the scheduler's memory is {share} % full: it will refuse more requests",
            "/queue",
            "cancel waiting jobs, or use arrays",
        )


def of_autoscaler(status: AutoscalerStatus, now: datetime) -> Iterator[Problem]:
    """Yields the problems that the autoscaler reports."""
    if status.closing is not None:
        yield Problem(
            _with("all slices are being deleted", status.closing), "/autoscaler", is_bad=False
        )
    if status.paused is not None:
        yield Problem(
            _with("the autoscaler is paused: it creates and deletes no slices", status.paused),
            "/autoscaler",
            "iris autoscaler resume",
            is_bad=False,
        )
    if status.next_at is not None and now - status.next_at > LATE:
        yield Problem(
            "the autoscaler is late with its evaluation",
            "/autoscaler",
            "iris debug health",
            since=status.next_at,
        )
    if status.held_hosts:
        yield Problem(HELD.format(status.held_hosts), "/fleet", "iris debug health")
    yield from _missing(status)
    for zone, reason in sorted(status.unreachable.items()):
        yield Problem(f"zone {zone} could not be listed: {reason}", "/autoscaler")
    for each in status.unowned:
        yield Problem(
            f"no workflow manages slice {each.slice_id} in {each.zone}",
            "/autoscaler",
            since=each.created_at,
        )
    for group in status.groups:
        if group.availability in _BLOCKED:
            waiting = f"; {group.demand} more needed" if group.demand else ""
            yield Problem(
                f"scale group {group.group} gets no slices: {group.why}{waiting}",
                f"/autoscaler#group-{group.group}",
                until=group.until,
                is_bad=bool(group.demand),
            )


def _missing(status: AutoscalerStatus) -> Iterator[Problem]:
    created = {each.id for each in status.slices}
    for each in status.missing[:NAMED]:
        text, _, remedy = each.problem(created).rpartition("; if it lasts, ")
        yield Problem(text, f"/slices/{each.slice_id}", remedy, since=each.since)
    if len(status.missing) > NAMED:
        yield Problem(
            f"the scheduler does not have {len(status.missing) - NAMED} more hosts of READY slices",
            "/fleet",
            "iris cluster status",
        )


def silent_hosts(
    views: Iterable[HostView], reports: Mapping[tuple[str, str], AgentReport], now: datetime
) -> dict[str, datetime]:
    """Returns the hosts whose agents have stopped reporting, with the time of their last report.
    An agent without any report may be new.
    """
    found = {}
    for view in views:
        report = reports.get((view.host.id, view.host.incarnation))
        if report is not None and now - report.reported_at > SILENCE:
            found[view.host.id] = report.reported_at
    return found


def of_silence(silent: Mapping[str, datetime]) -> Iterator[Problem]:
    """Yields the problem of hosts whose agents have stopped reporting."""
    if silent:
        hosts = "host does" if len(silent) == 1 else "hosts do"
        yield Problem(
            f"{len(silent)} {hosts} not report: {_some(silent)}",
            f"/hosts/{next(iter(silent))}" if len(silent) == 1 else "/fleet?state=SILENT",
            "check the machine; its tasks move to other hosts if it stays silent",
            since=min(silent.values()),
        )


def _some(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:NAMED]) + (" …" if len(names) > NAMED else "")


def _with(text: str, reason: str) -> str:
    return f"{text}: {reason}" if reason else text


def in_order(problems: Iterable[Problem]) -> Sequence[Problem]:
    """Returns the problems, the broken things first."""
    return sorted(problems, key=lambda problem: not problem.is_bad)
