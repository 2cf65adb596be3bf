"""Enters messages into the scheduler's ledger and answers them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from iris.messages.scheduler import (
    Amend,
    Answer,
    Ask,
    Close,
    Configure,
    Message,
    Open,
    Outlooks,
    Pause,
    Release,
    Resume,
    Retire,
    SliceDown,
    SliceEnded,
    SliceUp,
    Vacate,
)
from iris.messages.wire import HostLost
from iris.model.host.constraints import SCALE_GROUP
from iris.model.host.hosts import fault_of
from iris.model.job.demand_limits import BATCH_BYTES, REQUEST_BYTES, cut, fitting, size_of
from iris.model.job.requests import Placement, Request
from iris.model.slice.scaling import MOST_OUTLOOKS
from iris.model.units import MIB
from iris.planners.drains import evict_from
from iris.scheduling.ledger.ledger import Ledger
from iris.scheduling.ledger.settled import Settled
from iris.scheduling.ledger.size import FULL, MOST_KINDS, MOST_OF_ONE_USER, LedgerSize
from iris.scheduling.ledger.waiting_quotas import too_many_jobs
from iris.scheduling.placement.catalog import Catalog
from iris.scheduling.placement.preemption import Eviction
from iris.scheduling.placement.refusals import Refusal, RefusalCode
from iris.scheduling.reasons.explain import MOST_REASONS

#: The maximum number of placements of one scheduling pass. A thousand placements take some hundred
#: milliseconds, and a workflow task must yield within two seconds.
MAX_PLACEMENTS = 1_000
#: The maximum number of bytes of outlooks that the ledger stores. An outlook says which slice the
#: waiting gangs of one shape can expect. It contains the shape, and users choose how long a shape
#: is.
OUTLOOKS_BYTES = 128 * 1024
#: The maximum number of characters of two texts: why a message was not carried out
#: (`Answer.problem`), and why the machines of a slice are gone (`SliceDown.reason`). Longer texts
#: are cut.
MAX_PROBLEM = 500
#: The refusal that replaces a gang's placement, or the reason why it waits, in an answer when the
#: answers to the whole batch exceed `BATCH_BYTES`. A replaced placement is signalled to the gang.
MANY = Refusal(
    code=RefusalCode.QUEUED,
    message=(
        "the batch of requests was too large to answer in full; iris explain shows why this gang"
        " waits"
    ),
)
_RECOVERS = "the scheduler was restarted and recovers its ledger"
#: The refusal of each request while the ledger is being recovered.
RECOVERING = Refusal(
    code=RefusalCode.QUEUED, message=f"{_RECOVERS}; it places gangs when that is complete"
)


class Entered(NamedTuple):
    """The effect of one message on the ledger."""

    #: Why the message was not carried out; empty if it was carried out. A message that was not
    #: carried out has changed nothing, except a `Retire` that closes hosts and evicts gangs, and a
    #: `SliceDown` that has to be sent again.
    problem: str = ""
    #: The gangs that have to leave their hosts as a result of the message.
    evicted: Iterable[Eviction] = ()
    #: Ids of the hosts that the message reports as up, down or retired.
    hosts: Iterable[str] = ()
    #: Why the request in the message was not accepted; None if it was accepted, or if the message
    #: is no request.
    refusal: Refusal | None = None
    #: The (host, incarnation) of each host that the message reports as up although the incarnation
    #: has ended. The ledger does not add these hosts.
    ended: tuple[tuple[str, str], ...] = ()


class Served(NamedTuple):
    """The effect of one batch of messages on the ledger, and the answers to the batch."""

    #: One answer per message, in order.
    answers: tuple[Answer, ...]
    #: The effect of each message, in order.
    entered: tuple[Entered, ...]
    #: The result of the scheduling pass that follows the messages; None if no pass runs, because
    #: the ledger is being recovered.
    settled: Settled | None
    #: The placements that no answer of this batch contains. The scheduler signals them to their
    #: owners.
    notices: tuple[Placement, ...]


def serve(
    ledger: Ledger, messages: Sequence[Message], now: datetime, *, size: LedgerSize, whole: bool
) -> Served:
    """Enters a batch of messages, runs one pass over the ledger, and answers each message.

    Any message may be a duplicate: its answer was lost, or its sender no longer waits for the
    answer.

    Args:
        size: the size of the ledger, which also counts what is entered.
        whole: whether the ledger is complete. A ledger that is being recovered is not.
    """
    # Look up the refusals of withdrawn requests while the requests are still in the ledger.
    withdrawn = _withdrawn_refusals(ledger, messages)
    requested = dict.fromkeys(key for each in messages if (key := _request_key(each)))
    waited = {key for key in requested if key in ledger.waiting}
    entered = tuple(enter(ledger, message, size=size, whole=whole) for message in messages)
    _enter_requests_again(ledger, messages, entered)
    settled = ledger.settle(now, MAX_PLACEMENTS) if whole else None
    notices = _unanswered_placements(settled, requested, waited)
    refusals = _refusals(ledger, [key for key in requested if key not in ledger.live])
    answers, left = [], BATCH_BYTES
    for message, effect in zip(messages, entered, strict=True):
        reasons = withdrawn if isinstance(message, Release) else refusals
        answer = _answer(ledger, message, effect, reasons, now, whole=whole)
        left -= size_of(answer)
        if left < 0 and _can_be_shortened(answer, effect):
            notices += [answer.placement] if answer.placement is not None else []
            answer = Answer(refusal=MANY, problem=answer.problem)
        answers.append(answer)
    return Served(tuple(answers), entered, settled, tuple(notices))


def _withdrawn_refusals(ledger: Ledger, messages: Iterable[Message]) -> dict[str, Refusal]:
    """Returns, by key, the refusals of the waiting requests that the messages release."""
    keys = [
        each.key for each in messages if isinstance(each, Release) and each.key in ledger.waiting
    ]
    return _refusals(ledger, keys)


def _refusals(ledger: Ledger, keys: list[str]) -> dict[str, Refusal]:
    """Returns why the requests with these keys have no hosts, by key."""
    shapes = {request.shape for key in keys if (request := ledger.waiting.get(key)) is not None}
    ledger.effort.explained(
        ledger.hosts, ledger.live, ledger.waiting, min(len(shapes), MOST_REASONS)
    )
    return dict(zip(keys, ledger.wait_reasons().explain_all(keys), strict=True))


def _request_key(message: Message) -> str:
    """Returns the key of the request that an `Ask` or `Amend` is about; empty for other
    messages.
    """
    match message:
        case Ask(request=request):
            return request.key
        case Amend(key=key):
            return key
    return ""


def _enter_requests_again(
    ledger: Ledger, messages: Sequence[Message], entered: Sequence[Entered]
) -> None:
    """Enters each `Ask` and `Amend` of the batch a second time.

    An `Ask` changes nothing while its gang is placed. If a later message of the batch has ended
    that placement, the `Ask` counts after all, and so does each `Amend` of it.
    """
    for message, effect in zip(messages, entered, strict=True):
        if effect.problem:
            continue
        match message:
            case Ask(request=request):
                ledger.ask(request)
            case Amend():
                _amend(ledger, message)


def _unanswered_placements(
    settled: Settled | None, requested: Collection[str], waited: Collection[str]
) -> list[Placement]:
    """Returns the placements of the pass whose owners need a signal.

    For a gang that has just asked, the answer is enough. A gang that waited before gets a signal
    as well: this `Ask` may be an old duplicate, whose answer the gang does not read.
    """
    placed = settled.placed if settled is not None else ()
    return [each for each in placed if each.key not in requested or each.key in waited]


def _answer(
    ledger: Ledger,
    message: Message,
    effect: Entered,
    reasons: Mapping[str, Refusal],
    now: datetime,
    *,
    whole: bool,
) -> Answer:
    """Returns the answer to a message.

    Args:
        reasons: why requests wait, by key.
    """
    key = message.key if isinstance(message, Release) else _request_key(message)
    placement = None if isinstance(message, Release) else ledger.live.get(key)
    refusal = None if placement is not None else reasons.get(key)
    if not whole and _waits(refusal):
        refusal = RECOVERING
    return Answer(
        placement=placement,
        refusal=effect.refusal or refusal,
        problem=cut(effect.problem, MAX_PROBLEM),
        ended=effect.ended,
        at=now if isinstance(message, Retire) else None,
    )


def _can_be_shortened(answer: Answer, effect: Entered) -> bool:
    """Returns whether its receiver learns the content of the answer in another way: a signal sends
    the gang its placement, and `iris explain` shows why a gang waits.
    """
    return answer.placement is not None or (effect.refusal is None and _waits(answer.refusal))


def _waits(refusal: Refusal | None) -> bool:
    """Returns whether the refusal is about a request that the ledger has."""
    return refusal is not None and refusal.code is not RefusalCode.UNKNOWN


def enter(ledger: Ledger, message: Message, *, size: LedgerSize, whole: bool) -> Entered:
    """Enters one message into the ledger.

    Args:
        size: the size of the ledger, which also counts what is entered.
        whole: whether the ledger is complete. A ledger that is being recovered does not know all
            hosts.
    """
    match message:
        case Ask(request=request):
            return _ask(ledger, request, size=size, whole=whole)
        case Release():
            _release(ledger, message, size)
        case Vacate(key=key, host_id=host_id, incarnation=incarnation, at=at):
            ledger.vacate(key, host_id, incarnation, at)
        case Amend():
            _amend(ledger, message)
        case SliceUp(hosts=hosts):
            size.joined(hosts)
            return Entered(hosts=[host.id for host in hosts], ended=ledger.hosts_up(hosts))
        case SliceDown():
            return _slice_down(ledger, message, whole=whole)
        case HostLost(host_id=host_id, incarnation=incarnation):
            ledger.host_lost(host_id, incarnation)
            return Entered(hosts=[host_id])
        case Retire():
            return _retire(ledger, message, whole=whole)
        case Close():
            return _close(ledger, message, whole=whole)
        case Open(host_id=host_id):
            return _open(ledger, host_id)
        case Pause(reason=reason, group=group):
            return _pause(ledger, reason, group)
        case Resume(group=group):
            return _resume(ledger, group)
        case Configure(rules=rules, groups=groups, quotas=quotas):
            ledger.rules = rules or ledger.rules
            ledger.set_quotas(ledger.quotas.table.rules if quotas is None else quotas)
            ledger.catalog = Catalog(groups) if groups is not None else ledger.catalog
        case SliceEnded(use=use):
            ledger.ended_uses.add(use)
        case Outlooks(outlooks=outlooks):
            sizes = ((outlook, size_of(outlook)) for outlook in outlooks)
            ledger.outlooks = tuple(fitting(sizes, MOST_OUTLOOKS, OUTLOOKS_BYTES))
    return Entered()


# Messages from gangs.


def _ask(ledger: Ledger, request: Request, *, size: LedgerSize, whole: bool) -> Entered:
    """Enters a request, unless it is too large or the ledger is full. The ledger is not full while
    it is being recovered: its size is unknown then.
    """
    if (length := size_of(request)) > REQUEST_BYTES:
        problem = (
            f"request: {length:,} bytes are more than the scheduler keeps of one; use at most"
            f" {REQUEST_BYTES:,}"
        )
        remedy = "cancel the job and give it fewer constraints"
        return Entered(
            problem, refusal=Refusal(code=RefusalCode.CONSTRAINTS, message=problem, remedy=remedy)
        )
    known = (
        request.key in ledger.live or request.key in ledger.waiting or request.key in ledger.held
    )
    if whole and size.full and not known:
        return Entered("the scheduler's ledger is full", refusal=_full(ledger, size))
    if whole and not known and (refusal := _too_many_kinds(ledger, request)) is not None:
        return Entered("too many kinds of requests wait", refusal=refusal)
    if whole and not known and (refusal := too_many_jobs(ledger, request)) is not None:
        return Entered("too many jobs wait", refusal=refusal)
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


def _release(ledger: Ledger, release: Release, size: LedgerSize) -> None:
    if release.key in ledger.live or release.key in ledger.waiting:
        size.released(release.key)
    ledger.forget(
        release.key,
        release.spoilt_by,
        ran=release.ran,
        placed_at=release.placed_at,
        ended=release.ended,
    )
    ledger.slice_down(release.over)


def _amend(ledger: Ledger, amend: Amend) -> None:
    ledger.amend(amend.key, amend.band, held=amend.held, changed_at=amend.changed_at)


# Messages from slices.


def _slice_down(ledger: Ledger, down: SliceDown, *, whole: bool) -> Entered:
    hosts = [host_id for host_id, _ in down.incarnations]
    if not down.gone:
        ledger.slice_down(down.incarnations)
        return Entered(hosts=hosts)
    gone = ledger.hosts_gone(down.incarnations, cut(down.reason, MAX_PROBLEM))
    # The attempts on the machines may not be known yet. The slice sends its message again.
    problem = "" if whole else _RECOVERS
    return Entered(problem, gone, hosts)


def _retire(ledger: Ledger, retire: Retire, *, whole: bool) -> Entered:
    if not whole:
        return Entered(_RECOVERS)
    problem = ledger.retire(retire.incarnations, retire.idle_since)
    if not problem:
        return Entered(hosts=[host_id for host_id, _ in retire.incarnations])
    going: list[Eviction] = []
    for host_id, _ in retire.incarnations:
        if retire.closure is not None and host_id in ledger.hosts:
            ledger.close(host_id, retire.closure)
            if retire.evict:
                going += ledger.evict(host_id, f"evicted: host {host_id} is {retire.closure}")
    return Entered(problem, going)


# Messages from operators.


def _close(ledger: Ledger, close: Close, *, whole: bool) -> Entered:
    host_id, closure = close.host_id, close.closure
    if host_id not in ledger.hosts and whole:
        return Entered(f"there is no host {host_id}")
    ledger.close(host_id, closure)
    if not close.evict:
        return Entered()
    return Entered(evicted=evict_from(ledger, host_id))


def _open(ledger: Ledger, host_id: str) -> Entered:
    host = ledger.hosts.get(host_id)
    if host is None and host_id not in ledger.closed:
        return Entered(f"there is no host {host_id}")
    if host is not None and host.fault and host_id not in ledger.closed:
        return Entered(
            f"host {host_id} is {fault_of(host)}; it takes tasks again when its agent finds"
            " no fault"
        )
    ledger.open(host_id)
    return Entered()


def _pause(ledger: Ledger, reason: str, group: str | None) -> Entered:
    groups = _groups(ledger)
    if group is not None and group not in groups:
        known = ", ".join(sorted(groups)) or "none"
        return Entered(f"there is no scale group {group}; there are: {known}")
    ledger.pause(reason, group)
    return Entered()


def _resume(ledger: Ledger, group: str | None) -> Entered:
    if group is not None and group not in ledger.paused_groups:
        return Entered(f"scale group {group} is not paused")
    ledger.resume(group)
    return Entered()


def _groups(ledger: Ledger) -> set[str]:
    """Returns the scale groups that have a host or could have one."""
    groups = {
        str(host.attributes[SCALE_GROUP])
        for host in ledger.hosts.values()
        if SCALE_GROUP in host.attributes
    }
    return groups | {group.name for group in ledger.catalog.groups}
