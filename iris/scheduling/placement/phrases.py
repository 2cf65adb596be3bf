"""Parts of the sentences that explain why a request waits."""

from collections.abc import Sequence

from iris.model.host.resources import Device
from iris.model.job.demand_limits import cut
from iris.model.slice.scale_groups import ScaleGroup

#: The limit on scale groups with a pool of existing machines that one sentence names.
_MOST_POOLS = 3


def counted(count: int, noun: str) -> str:
    """Returns the number with its noun: `1 host`, `2 hosts`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def some_hosts(count: int) -> str:
    return counted(count, "host")


def accept_nothing(hosts: int) -> str:
    """Returns the predicate for this number of closed hosts."""
    return "accepts no new tasks" if hosts == 1 else "accept no new tasks"


def best_of(count: int, best: str, noun: str) -> str:
    """Returns a phrase for the best of several: `the largest of 2 hosts`, or `the only host`."""
    return f"the only {noun}" if count == 1 else f"the {best} of {count} {noun}s"


def have(count: int) -> str:
    return "has" if count == 1 else "have"


def kind_of(device: Device | None) -> str:
    """Returns a device's kind and variant."""
    return f"{device.kind}:{cut(device.variant)}" if device else "no devices"


def pools(groups: Sequence[ScaleGroup]) -> str:
    """Returns a clause about the machines in the pools of these groups; empty if one of the groups
    has no pool.
    """
    if not all(group.is_pool for group in groups):
        return ""
    first = f"the pool of scale group {groups[0].name} has {counted(groups[0].machines, 'machine')}"
    others = [f"that of {group.name} has {group.machines}" for group in groups[1:_MOST_POOLS]]
    return ", ".join([first, *others]) + (" …" if len(groups) > _MOST_POOLS else "")


def enlarge(groups: Sequence[ScaleGroup]) -> str:
    """Returns the remedy for pools that are too small; empty if one of the groups has no pool."""
    names = " or ".join(group.name for group in groups[:_MOST_POOLS])
    remedy = f"request fewer tasks, or add machines to hosts of scale group {names}"
    return remedy if all(group.is_pool for group in groups) else ""
