"""Enters messages into the scheduler's ledger and answers them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from iris.messages.scheduler import (
    Amend,
    Answer,
    Ask,
    Close,
    Configure,
    HostLost,
    Message,
    Open,
    Outlooks,
    Pause,
    Release,
    Resume,
    Retire,
    SliceDown,
    SliceUp,
    Vacate,
)
from iris.model.host.constraints import SCALE_GROUP
from iris.model.host.hosts import fault_of
from iris.model.job.demand_limits import BATCH_BYTES, REQUEST_BYTES, cut, fitting, size_of
from iris.model.job.requests import Placement, Request
from iris.model.slice.scaling import MOST_OUTLOOKS
from iris.model.units import MIB
from iris.scheduling.ledger.ledger import Ledger, Settled
from iris.scheduling.ledger.size import FULL, MOST_KINDS, MOST_OF_ONE_USER, LedgerSize
from iris.scheduling.placement.catalog import Catalog
from iris.scheduling.placement.preemption import Eviction
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from iris.scheduling.reasons.explain import MOST_REASONS

#: The most placements of one pass: some hundred milliseconds of the two seconds that a workflow
#: task may take without yielding.
MAX_PLACEMENTS = 1_000
#: The most bytes of the outlooks that the ledger stores, because their shapes are chosen by users.
OUTLOOKS_BYTES = 128 * 1024
#: The most characters of an answer's `problem`.
MAX_PROBLEM = 500
MANY = Refusal(
    code=RefusalCode.QUEUED,
    message=(
        "the batch of requests was too large to answer in full; iris explain shows why this gang"
        " waits"
    ),
)
RECOVERING = Refusal(
    code=RefusalCode.QUEUED,
    message=(
        "the scheduler was restarted and recovers its ledger; it places gangs when that is complete"
    ),
)


class Entered(NamedTuple):
    """The effect of one message."""

    #: Why the message was not carried out; only a `Retire` may have changed something then (it
    #: closes hosts and evicts gangs).
    problem: str = ""
    #: The gangs that have to leave their hosts because of the message.
    evicted: Iterable[Eviction] = ()
    #: Ids of the hosts that the message reports as up, down or retired.
    hosts: Iterable[str] = ()
    #: Why a request was not accepted; None for other messages.
    refusal: Refusal | None = None
    #: (host, incarnation) of hosts that the message reports as up although the incarnation has
    #: ended.
    ended: tuple[tuple[str, str], ...] = ()


class Served(NamedTuple):
    """The effect of one batch of messages, and the answers to it."""

    #: One per message, in order.
    answers: tuple[Answer, ...]
    #: The effect of each message, in order.
    entered: tuple[Entered, ...]
    #: The pass that followed; None while the ledger is being recovered.
    settled: Settled | None
    #: Placements that no answer reports to their owners.
    notices: tuple[Placement, ...]


def serve(
    ledger: Ledger,
    messages: Sequence[Message],
    now: datetime,
    *,
    whole: bool,
    careful: bool = True,
    size: LedgerSize | None = None,
) -> Served:
    """Enters a batch of messages, runs one pass over the ledger, and answers each message.

    Any message may be a duplicate: its answer was lost, or its sender no longer waits for the
    answer.

    Args:
        whole: whether the ledger is complete; see `enter`.
        careful: False for a run of the scheduler that began before duplicates and sizes of messages
            were taken into account.
        size: the ledger's size; None for a run that began before it was limited.
    """
    # Look up the refusal of a withdrawn request while the request is still in the ledger.
    leaving = [
        each.key for each in messages if isinstance(each, Release) and each.key in ledger.waiting
    ]
    withdrawn = _reasons(ledger, leaving)
    requested = dict.fromkeys(key for each in messages if (key := _request_key(each)))
    waited = {key for key in requested if key in ledger.waiting} if careful else set()
    entered = tuple(
        enter(ledger, message, whole=whole, careful=careful, size=size) for message in messages
    )
    if careful:
        # An `Ask` changes nothing while its gang is placed. If a later message of the batch has
        # ended that placement, the `Ask` counts after all, and so does each `Amend` of it.
        for message, effect in zip(messages, entered, strict=True):
            if _request_key(message) and not effect.problem:
                enter(ledger, message, whole=whole, careful=False)  # its size has been checked
    settled = ledger.settle(now, MAX_PLACEMENTS) if whole else None
    # The answer alone informs a gang that has just asked. A gang that waited before gets a signal,
    # too: this `Ask` may be an old duplicate.
    notices = (
        [each for each in settled.placed if each.key not in requested or each.key in waited]
        if settled
        else []
    )
    waiting = [key for key in requested if key not in ledger.live]
    refusals = _reasons(ledger, waiting)
    answers, left = [], BATCH_BYTES
    for message, effect in zip(messages, entered, strict=True):
        key = _request_key(message)
        placement = ledger.live.get(key)
        refusal = None if placement else refusals.get(key)
        if isinstance(message, Release):
            refusal = withdrawn.get(message.key)
        known = refusal is not None and refusal.code is not RefusalCode.UNKNOWN
        if not whole and known:
            refusal = RECOVERING
        if effect.refusal is not None:
            refusal, known = effect.refusal, False
        answer = Answer(
            placement=placement,
            refusal=refusal,
            problem=cut(effect.problem, MAX_PROBLEM),
            ended=effect.ended,
        )
        if isinstance(message, Retire):
            answer = answer.model_copy(update={"at": now})
        left -= size_of(answer)
        if left < 0 and (placement or known):
            # Many large answers do not fit: a signal sends the gang its placement, and `iris
            # explain` shows the reason.
            notices += [placement] if placement is not None else []
            answer = Answer(refusal=MANY, problem=answer.problem)
        answers.append(answer)
    return Served(tuple(answers), entered, settled, tuple(notices))


def _reasons(ledger: Ledger, keys: list[str]) -> dict[str, Refusal]:
    shapes = {request.shape for key in keys if (request := ledger.waiting.get(key)) is not None}
    ledger.effort.explained(
        ledger.hosts, ledger.live, ledger.waiting, min(len(shapes), MOST_REASONS)
    )
    return dict(zip(keys, ledger.wait_reasons().explain_all(keys), strict=True))


def _request_key(message: Message) -> str:
    """Returns the key of the request that the message asks about; empty if it asks about none."""
    match message:
        case Ask(request=request):
            return request.key
        case Amend(key=key):
            return key
    return ""


def enter(
    ledger: Ledger,
    message: Message,
    *,
    whole: bool,
    careful: bool = True,
    size: LedgerSize | None = None,
) -> Entered:
    """Enters one message into the ledger.

    Args:
        whole: whether the ledger is complete; one that is being recovered does not know all hosts.
        careful: whether the size of a request is limited; see `serve`.
        size: the ledger's size, which also counts what is entered; None if it is not limited.
    """
    match message:
        case Ask(request=request):
            return _ask(ledger, request, whole=whole, careful=careful, size=size)
        case Release(key=key, spoilt_by=spoilt_by, ran=ran, placed_at=placed_at, over=over):
            if size is not None and (key in ledger.live or key in ledger.waiting):
                size.released(key)
            ledger.forget(key, spoilt_by, ran=ran, placed_at=placed_at)
            ledger.slice_down(over)
        case Vacate(key=key, host_id=host_id, incarnation=incarnation):
            ledger.vacate(key, host_id, incarnation)
        case Amend(key=key, band=band, held=held, said_at=said_at):
            ledger.amend(key, band, held=held, changed_at=said_at)
        case SliceUp(hosts=hosts):
            ended = ledger.hosts_up(hosts)
            if size is not None:
                size.joined(hosts)
            return Entered(hosts=[host.id for host in hosts], ended=ended)
        case SliceDown(lives=lives):
            ledger.slice_down(lives)
            return Entered(hosts=[host_id for host_id, _ in lives])
        case HostLost(host_id=host_id, incarnation=incarnation):
            ledger.host_lost(host_id, incarnation)
            return Entered(hosts=[host_id])
        case Retire():
            return (
                _retire(ledger, message)
                if whole
                else Entered("the scheduler was restarted and recovers its ledger")
            )
        case Close(host_id=host_id, closure=closure, evict=evict):
            if host_id not in ledger.hosts and whole:
                return Entered(f"there is no host {host_id}")
            ledger.close(host_id, closure)
            if evict:
                return Entered(
                    evicted=ledger.evict(host_id, f"evicted: host {host_id} is {closure}")
                )
        case Open(host_id=host_id):
            if host_id not in ledger.hosts and host_id not in ledger.closed:
                return Entered(f"there is no host {host_id}")
            host = ledger.hosts.get(host_id)
            if host is not None and host.fault and host_id not in ledger.closed:
                return Entered(
                    f"host {host_id} is {fault_of(host)}; it takes tasks again when its agent finds"
                    " no fault"
                )
            ledger.open(host_id)
        case Pause(reason=reason, group=group):
            groups = _groups(ledger)
            if group is not None and group not in groups:
                return Entered(
                    f"there is no scale group {group}; there are:"
                    f" {', '.join(sorted(groups)) or 'none'}"
                )
            ledger.pause(reason, group)
        case Resume(group=group):
            if group is not None and group not in ledger.paused_groups:
                return Entered(f"scale group {group} is not paused")
            ledger.resume(group)
        case Configure(rules=rules, groups=kinds):
            ledger.rules = rules or ledger.rules
            if kinds is not None:
                ledger.catalog = Catalog(kinds, mixes=ledger.catalog.mixes)
        case Outlooks(outlooks=outlooks):
            sizes = ((outlook, size_of(outlook)) for outlook in outlooks)
            ledger.outlooks = (
                tuple(fitting(sizes, MOST_OUTLOOKS, OUTLOOKS_BYTES))
                if size is not None
                else outlooks
            )
    return Entered()


def _ask(
    ledger: Ledger, request: Request, *, whole: bool, careful: bool, size: LedgerSize | None
) -> Entered:
    """Enters a request, unless it is too large, or the ledger is full. During recovery the ledger's
    size is not known.
    """
    if careful and (length := size_of(request)) > REQUEST_BYTES:
        problem = (
            f"request: {length:,} bytes are more than the scheduler keeps of one; use at most"
            f" {REQUEST_BYTES:,}"
        )
        remedy = "cancel the job and give it fewer constraints"
        return Entered(
            problem, refusal=Refusal(code=RefusalCode.CONSTRAINTS, message=problem, remedy=remedy)
        )
    if size is None:
        ledger.ask(request)
        return Entered()
    known = (
        request.key in ledger.live or request.key in ledger.waiting or request.key in ledger.held
    )
    if whole and size.full and not known:
        return Entered("the scheduler's ledger is full", refusal=_full(ledger, size))
    if whole and not known and (refusal := _too_many_kinds(ledger, request)) is not None:
        return Entered("too many kinds of requests wait", refusal=refusal)
    waiting, kinds = len(ledger.waiting), ledger.waiting.kinds
    ledger.ask(request)
    if len(ledger.waiting) > waiting:
        size.requested(request, alike=ledger.waiting.kinds == kinds)
    return Entered()


def _full(ledger: Ledger, size: LedgerSize) -> Refusal:
    gangs = f"{len(ledger.waiting):,} waiting and {len(ledger.live):,} running gangs"
    return Refusal(
        code=RefusalCode.LEDGER_FULL,
        message=(
            f"the scheduler's ledger is full: {size.bytes / MIB:.2f} MiB, at most {FULL / MIB:.2f}"
            f" MiB; {gangs}"
        ),
        remedy="wait: the job sends its request again; or cancel jobs that wait",
    )


def _too_many_kinds(ledger: Ledger, request: Request) -> Refusal | None:
    """Returns why the request, which may be the first of its kind, is not accepted; None when it
    is.
    """
    queues = (ledger.waiting, ledger.held)
    of_all, of_user = (
        sum(each.lines for each in queues),
        sum(each.lines_of(request.user) for each in queues),
    )
    if (of_all < MOST_KINDS and of_user < MOST_OF_ONE_USER) or ledger.waiting.has_line(request):
        return None
    return Refusal(
        code=RefusalCode.LEDGER_FULL,
        message=(
            f"{of_all:,} kinds of requests wait, at most {MOST_KINDS:,}; {of_user:,} of them are of"
            f" user {request.user}, at most {MOST_OF_ONE_USER:,}"
        ),
        remedy=(
            "wait: the job sends its request again; or use fewer different resources and"
            " constraints"
        ),
    )


def _retire(ledger: Ledger, retire: Retire) -> Entered:
    problem = ledger.retire(retire.lives, retire.idle_since)
    if not problem:
        return Entered(hosts=[host_id for host_id, _ in retire.lives])
    going: list[Eviction] = []
    for host_id, _ in retire.lives:
        if retire.closure is not None and host_id in ledger.hosts:
            ledger.close(host_id, retire.closure)
            if retire.evict:
                going += ledger.evict(host_id, f"evicted: host {host_id} is {retire.closure}")
    return Entered(problem, going)


def _groups(ledger: Ledger) -> set[str]:
    """Returns the scale groups that have a host or could have one."""
    groups = {
        str(host.attributes[SCALE_GROUP])
        for host in ledger.hosts.values()
        if SCALE_GROUP in host.attributes
    }
    return groups | {group.name for group in ledger.catalog.groups}
