"""Chooses the faults of a run by its seed: the same seed gives the same faults at the same times.

A fault has a beginning, a length and a target. One target has one fault at a time. The lengths
matter more than their number: shorter than a lease nothing may be lost, and longer than the time
after which a host counts as lost everything on it has to run again elsewhere.
"""

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: The lease of the run's cluster, the shortest that its configuration accepts, in seconds.
LEASE = 20
#: How long a fault may be, in seconds: less than a lease, more than a lease but less than the time
#: after which the server gives up an attempt (45 s with this lease), and more than that time and
#: than the 56 s after which the host counts as lost.
SHORT, MIDDLE, LONG = (4, 12), (25, 35), (62, 72)
#: Late faults are short, so that they end at most this long after the last one has begun, in
#: seconds.
AFTER = 30.0
#: How long a process stays away that a supervisor starts again at once.
RESTART = (0.5, 3)


class Fault(NamedTuple):
    """One fault of a run, its times in seconds from the beginning."""

    at: float
    kind: str
    target: str
    lasts: float

    def __str__(self) -> str:
        return f"{self.at:6.1f} s  {self.kind} {self.target} for {self.lasts:.1f} s"


class Kind(NamedTuple):
    """One kind of fault."""

    #: The targets that it may have: the name of a group of them.
    of: str
    weight: int
    lengths: Sequence[tuple[float, float]]


#: Agents are alone or with all that runs on their hosts. `full` and `away` are the store's.
KINDS: Mapping[str, Kind] = {
    "kill agent": Kind("hosts", 6, [RESTART, SHORT, LONG]),
    "freeze agent": Kind("hosts", 4, [SHORT, MIDDLE, LONG]),
    "kill host": Kind("hosts", 4, [RESTART, SHORT, LONG]),
    "freeze host": Kind("hosts", 6, [SHORT, MIDDLE, LONG]),
    "link silent": Kind("hosts", 4, [SHORT, MIDDLE, LONG]),
    "link deaf": Kind("hosts", 3, [SHORT, MIDDLE, LONG]),
    "link mute": Kind("hosts", 3, [SHORT, MIDDLE, LONG]),
    "link cut": Kind("hosts", 3, [SHORT, MIDDLE, LONG]),
    "link slow": Kind("hosts", 2, [SHORT, MIDDLE]),
    "kill control": Kind("controls", 6, [RESTART, SHORT]),
    "freeze control": Kind("controls", 3, [SHORT, MIDDLE]),
    "control silent": Kind("controls", 3, [SHORT, MIDDLE]),
    "kill server": Kind("servers", 4, [RESTART, SHORT, MIDDLE]),
    "freeze server": Kind("servers", 3, [SHORT, MIDDLE]),
    "store full": Kind("stores", 3, [SHORT, MIDDLE]),
    "store away": Kind("stores", 2, [SHORT, MIDDLE]),
    "disk full": Kind("disks", 2, [SHORT, MIDDLE]),
    "clock ahead": Kind("clocks", 2, [SHORT, MIDDLE]),
    "clock behind": Kind("clocks", 2, [SHORT, MIDDLE]),
    "cloud trouble": Kind("clouds", 10, [SHORT]),
    "kill cloud": Kind("clouds", 2, [RESTART, SHORT]),
    "kill database": Kind("databases", 3, [RESTART]),
    "freeze database": Kind("databases", 2, [SHORT]),
}


LONG_KINDS = [name for name, kind in KINDS.items() if LONG in kind.lengths]
#: So many faults at the beginning are long ones. Later there is not always time for them.
LONG_FIRST = 2


def plan(seed: int, seconds: float, targets: Mapping[str, Sequence[str]]) -> list[Fault]:
    """Returns the faults of a run in the order of their times.

    Args:
        seconds: the last fault begins before this time.
        targets: the names of the targets of each group; a group without any has no faults.
    """
    dice = random.Random(seed)
    kinds = {name: kind for name, kind in KINDS.items() if targets.get(kind.of)}
    weights = [kind.weight for kind in kinds.values()]
    free_at: dict[str, float] = {}
    found: list[Fault] = []
    at = dice.uniform(10, 13)
    while at < seconds:
        first = len(found) < LONG_FIRST
        (name,) = [dice.choice(LONG_KINDS)] if first else dice.choices(list(kinds), weights)
        kind = kinds[name]
        target = dice.choice(targets[kind.of])
        lasts = dice.uniform(*(LONG if first else dice.choice(kind.lengths)))
        if at + lasts > seconds + AFTER and not first:
            lasts = dice.uniform(*kind.lengths[0])
        if free_at.get(target, 0.0) <= at:
            found.append(Fault(round(at, 1), name, target, round(lasts, 1)))
            free_at[target] = at + lasts + 2
        at += dice.uniform(0.5, 4)
    return found
