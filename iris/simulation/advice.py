"""Looks for small changes of a configuration that shorten waits or save money.

The search is bounded: one step of one setting of one scale group at a time. Each step is simulated
with one seed, and the best ones (`best`) with all seeds, on the same workload. This module makes
the steps and judges their effects; it runs no simulation.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from iris.config.values import write_duration
from iris.model.frozen import Frozen
from iris.model.slice.scale_groups import ScaleGroup
from iris.simulation.engine import Cluster
from iris.simulation.report.answers import Answers
from iris.simulation.report.results import Change, Path, Results, Spread, changes

#: The limit on changes of settings (`Step`) that are simulated.
MOST_STEPS = 40
#: The limits on changes of settings (`Step`) that are simulated again with all seeds: on changes
#: that shorten waits, and on changes that save money.
MOST_SHORTER, MOST_SAVING = 5, 3
#: The smallest difference that counts as a change of the wait or the cost, as a share of its value
#: before the change of the setting.
NOTHING = 0.01
#: The shortest `scale_down_delay` that is tried out.
SHORTEST_DELAY = timedelta(seconds=30)
_WAIT: Path = ("all", "waits", "mean")


class Step(NamedTuple):
    """One change of one setting of one scale group, which a simulation tries out."""

    group: str
    #: The setting with its values before and after the change: `max_slices: 2 to 3`.
    text: str
    cluster: Cluster


class Effect(Frozen):
    """The effect of a changed setting (`Step`) on the waits of all gangs and on the cost: each is
    given from a simulation before the change and from one after it.
    """

    group: str
    step: str
    #: The mean wait of all gangs before the change of the setting, in seconds.
    wait_before: Spread
    #: The mean wait of all gangs after the change of the setting, in seconds.
    wait_after: Spread
    #: The mean wait after the change of the setting minus the mean wait before it, in seconds:
    #: negative if waits become shorter.
    wait: Change
    #: The cost of all slices before the change of the setting, in the currency of the prices.
    #: Without prices, it is the host-hours of all slices.
    cost_before: Spread
    #: The cost, or without prices the host-hours, of all slices after the change of the setting.
    cost_after: Spread
    #: The cost, or without prices the host-hours, after the change of the setting minus that before
    #: it: negative if the change saves money.
    cost: Change
    #: The number of hours by which the waits of all gangs together become shorter for each unit of
    #: `cost`; None if the change of the setting does not increase the cost.
    saved_hours_per_cost: float | None = None


class Advice(Frozen):
    """The changes of settings (`Step`) that shorten waits or save money."""

    #: The currency of the cost; empty if the cost is in host-hours.
    currency: str = ""
    #: The number of changes of settings (`Step`) that were simulated.
    tried: int = 0
    #: The changes of settings that shorten waits: first those that do not increase the cost, then
    #: those with the most hours of waiting saved for each unit of the cost.
    shorter_waits: tuple[Effect, ...] = ()
    #: The changes of settings that save money and do not make waits longer, the largest saving
    #: first.
    less_money: tuple[Effect, ...] = ()


def steps_of(cluster: Cluster, answers: Answers) -> list[Step]:
    """Returns the steps to simulate: at most `MOST_STEPS`, those of the most used groups first.

    Args:
        answers: those of the configuration as it is. A group that created no slices and failed in
            no request has no steps.
    """
    used = {
        name: each.ready_host_hours + each.failed_requests
        for name, each in answers.groups.items()
        if each.made or each.failed_requests
    }
    groups = [group for group in cluster.groups if group.name in used]
    groups.sort(key=lambda each: -used[each.name])
    steps = (step for group in groups for step in _steps(cluster, group))
    return [step for step, _ in zip(steps, range(MOST_STEPS), strict=False)]


def _steps(cluster: Cluster, group: ScaleGroup) -> Iterator[Step]:
    low, high, kept = group.min_slices, group.max_slices, group.buffer_slices

    def step(text: str, **fields: Any) -> Step:
        changed = group.model_copy(update=fields)
        groups = tuple(changed if each.name == group.name else each for each in cluster.groups)
        return Step(group.name, text, cluster._replace(groups=groups))

    if not group.machines:  # a pool of machines has no more of them
        yield step(f"max_slices: {high} to {high + 1}", max_slices=high + 1)
        if high > 1:
            yield step(f"max_slices: {high} to {2 * high}", max_slices=2 * high)
        if high > max(low, 1):
            yield step(f"max_slices: {high} to {high - 1}", max_slices=high - 1)
    if low < high:
        yield step(f"min_slices: {low} to {low + 1}", min_slices=low + 1)
        yield step(f"buffer_slices: {kept} to {kept + 1}", buffer_slices=kept + 1)
    if low > 0:
        yield step(f"min_slices: {low} to {low - 1}", min_slices=low - 1)
    delay = group.pace.scale_down_delay
    for other in (delay * 2, delay / 2):
        if other >= SHORTEST_DELAY:
            text = f"scale_down_delay: {write_duration(delay)} to {write_duration(other)}"
            yield step(text, pace=group.pace.model_copy(update={"scale_down_delay": other}))
    if len(group.zones) > 1:
        first, *others = group.zones
        yield step(f"zones: {first} last", zones=(*others, first))


def effect(step: Step, before: Results, after: Results) -> Effect:
    """Returns the effect of a step, over the same seeds."""
    cost = Change.of([b - a for a, b in zip(_costs(before), _costs(after), strict=True)])
    wait = changes(before, after)[_WAIT]
    saved = -wait.mean * before.answers[0].all.gangs / 3600
    return Effect(
        group=step.group,
        step=step.text,
        wait_before=before.spreads[_WAIT],
        wait_after=after.spreads[_WAIT],
        wait=wait,
        cost_before=Spread.of(_costs(before)),
        cost_after=Spread.of(_costs(after)),
        cost=cost,
        saved_hours_per_cost=saved / cost.mean if cost.mean > 0 else None,
    )


def _costs(results: Results) -> list[float]:
    """Returns the cost for each seed; host-hours without prices."""
    has_prices = bool(results.answers[0].currency)
    slices = [each.slices for each in results.answers]
    return [
        each.cost or 0.0 if has_prices else each.ready_host_hours + each.boot_host_hours
        for each in slices
    ]


def advice(effects: Sequence[Effect], currency: str, tried: int) -> Advice:
    """Returns the effects that are worth a thought. A difference that is not clear is none."""
    shorter = [each for each in effects if _is_less(each.wait, each.wait_before)]
    saving = [
        each
        for each in effects
        if _is_less(each.cost, each.cost_before) and not _is_more(each.wait, each.wait_before)
    ]
    return Advice(
        currency=currency,
        tried=tried,
        shorter_waits=tuple(sorted(shorter, key=_worth)[:MOST_SHORTER]),
        less_money=tuple(sorted(saving, key=lambda each: each.cost.mean)[:MOST_SAVING]),
    )


def best(steps: Iterable[Step], found: Advice) -> list[Step]:
    """Returns the steps of an advice from one seed, which are simulated with all seeds."""
    names = {(each.group, each.step) for each in (*found.shorter_waits, *found.less_money)}
    return [each for each in steps if (each.group, each.text) in names]


def _worth(each: Effect) -> tuple[bool, float]:
    """Returns the order of steps that shorten waits."""
    if each.saved_hours_per_cost is None:
        return False, each.wait.mean
    return True, -each.saved_hours_per_cost


def _is_less(change: Change, before: Spread) -> bool:
    return change.clear is not False and change.mean < -NOTHING * before.mean


def _is_more(change: Change, before: Spread) -> bool:
    return change.mean > NOTHING * before.mean
