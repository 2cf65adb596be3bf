"""What each message to the scheduler changes in its book."""

from collections.abc import Iterable
from typing import NamedTuple

from iris.constraints import SCALE_GROUP
from iris.ledger import Ledger
from iris.potential import Potential
from iris.preemption import Eviction
from iris.workflows.messages import (
    Amend,
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


class Entered(NamedTuple):
    """What came of a message."""

    #: Why it could not be entered; nothing was changed then.
    problem: str = ""
    #: Those who have to go because of it.
    evicted: Iterable[Eviction] = ()
    #: The hosts of which it was news.
    hosts: Iterable[str] = ()


def enter(ledger: Ledger, message: Message, *, whole: bool) -> Entered:
    """Write it into the book.

    Args:
        whole: whether the book is complete; one that is being put together does not know all hosts.
    """
    match message:
        case Ask(request=request):
            ledger.ask(request)
        case Release(key=key, spoilt_by=spoilt_by, ran=ran, over=over):
            ledger.forget(key, spoilt_by, ran=ran)
            ledger.slice_down(over)
        case Vacate(key=key, host_id=host_id, incarnation=incarnation):
            ledger.vacate(key, host_id, incarnation)
        case Amend(key=key, band=band, held=held, said_at=said_at):
            ledger.amend(key, band, held=held, said_at=said_at)
        case SliceUp(hosts=hosts):
            ledger.hosts_up(hosts)
            return Entered(hosts=[host.id for host in hosts])
        case SliceDown(lives=lives):
            ledger.slice_down(lives)
            return Entered(hosts=[host_id for host_id, _ in lives])
        case HostLost(host_id=host_id, incarnation=incarnation):
            ledger.host_lost(host_id, incarnation)
            return Entered(hosts=[host_id])
        case Retire():
            return _retire(ledger, message) if whole else Entered("the scheduler was started anew and asks who runs where")
        case Close(host_id=host_id, closure=closure, evict=evict):
            if host_id not in ledger.hosts and whole:
                return Entered(f"there is no host {host_id}")
            ledger.close(host_id, closure)
            if evict:
                return Entered(evicted=ledger.evict(host_id, f"evicted: host {host_id} is {closure}"))
        case Open(host_id=host_id):
            if host_id not in ledger.hosts and host_id not in ledger.closed:
                return Entered(f"there is no host {host_id}")
            ledger.open(host_id)
        case Pause(reason=reason, group=group):
            groups = _groups(ledger)
            if group is not None and group not in groups:
                return Entered(f"there is no scale group {group}; there are: {', '.join(sorted(groups)) or 'none'}")
            ledger.pause(reason, group)
        case Resume(group=group):
            if group is not None and group not in ledger.paused_groups:
                return Entered(f"scale group {group} is not paused")
            ledger.resume(group)
        case Configure(rules=rules, groups=kinds):
            ledger.rules = rules or ledger.rules
            if kinds is not None:
                ledger.potential = Potential(kinds, ledger.potential.outlooks)
        case Outlooks(outlooks=outlooks):
            ledger.potential = ledger.potential.told(outlooks)
    return Entered()


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
    """Scale groups with a host, and those that could have one."""
    there = {str(host.attributes[SCALE_GROUP]) for host in ledger.hosts.values() if SCALE_GROUP in host.attributes}
    return there | {group.name for group in ledger.potential.groups}
