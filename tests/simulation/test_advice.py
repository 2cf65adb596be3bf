"""The search for small changes of a configuration."""

from datetime import timedelta

from iris.config import load_config
from iris.simulation.advice import MOST_STEPS, Step, advice, best, effect, steps_of
from iris.simulation.engine import Cluster, cluster_of
from iris.simulation.report.answers import Answers, Slices
from iris.simulation.report.results import Results
from tests.simulation.report.made_histories import answers

CONFIG = """\
platform: {local: {}}
scale_groups:
  cpu: {type: local_vm, zones: [a, b], min_slices: 1, max_slices: 2, scale_down_delay: 50s,
        resources: {cpu: 4, memory: 16g}}
  idle: {type: local_vm, max_slices: 4, resources: {cpu: 4, memory: 16g}}
"""
HOUR = 3600.0


def cluster(text: str = CONFIG) -> Cluster:
    return cluster_of(load_config(text))


def of_seeds(*waits: float, cost: float = 17.0) -> Results:
    """A configuration whose last gang waits so many hours in each seed."""
    found = []
    for hours in waits:
        plain = answers(hours)
        slices = plain.slices.model_copy(update={"cost": cost})
        found.append(plain.model_copy(update={"slices": slices}))
    return Results("it", tuple(range(len(waits))), tuple(found))


def step(text: str) -> Step:
    return Step("cpu", text, cluster())


def test_a_step_changes_one_setting_of_one_group_that_was_used() -> None:
    """A group that made no slices needs no more of them. Delays below half a minute are noise."""
    found = steps_of(cluster(), answers())
    assert [each.text for each in found] == [
        "max_slices: 2 to 3",
        "max_slices: 2 to 4",
        "max_slices: 2 to 1",
        "min_slices: 1 to 2",
        "buffer_slices: 0 to 1",
        "min_slices: 1 to 0",
        "scale_down_delay: 50s to 1m40s",
        "zones: a last",
    ]
    assert {each.group for each in found} == {"cpu"}
    cpu, idle = found[0].cluster.groups
    assert (cpu.max_slices, cpu.min_slices, idle) == (3, 1, cluster().groups[1])
    assert found[6].cluster.groups[0].pace.scale_down_delay == timedelta(seconds=100)
    assert found[7].cluster.groups[0].zones == ("b", "a")


def test_there_are_at_most_so_many_steps_and_the_most_used_groups_come_first() -> None:
    """Twenty groups would take hours."""
    kind = "{type: local_vm, max_slices: 4, resources: {cpu: 4, memory: 16g}}"
    names = [f"g{number}" for number in range(20)]
    text = "platform: {local: {}}\nscale_groups:\n" + "".join(f"  {n}: {kind}\n" for n in names)
    groups = {n: Slices(made=1, ready_host_hours=hours) for hours, n in enumerate(names)}
    used: Answers = answers().model_copy(update={"groups": groups})
    found = steps_of(cluster(text), used)
    assert len(found) == MOST_STEPS
    assert found[0].group == "g19"


def test_an_effect_has_the_waits_the_cost_and_what_one_unit_of_money_saves() -> None:
    """Four gangs wait a quarter of an hour less on average: an hour together, for two dollars."""
    found = effect(step("more"), of_seeds(4, 6), of_seeds(3, 5, cost=19.0))
    assert (found.wait.mean, found.wait.clear) == (-HOUR / 4, True)
    assert (found.cost.mean, found.cost_after.mean) == (2.0, 19.0)
    assert found.saved_hours_per_cost == 0.5


def test_without_prices_the_cost_is_in_host_hours() -> None:
    """Money that is not known is not zero."""
    free = [each.model_copy(update={"currency": ""}) for each in of_seeds(4).answers]
    found = effect(
        step("more"), Results("old", (0,), tuple(free)), Results("new", (0,), tuple(free))
    )
    assert found.cost_before.mean == 17.0  # ready and boot


def test_steps_that_cost_nothing_come_before_those_that_save_most_for_their_money() -> None:
    """The cheapest hour of waiting first."""
    before = of_seeds(6, 6)
    effects = [
        effect(step("dear"), before, of_seeds(2, 2, cost=37.0)),
        effect(step("fair"), before, of_seeds(3, 3, cost=18.0)),
        effect(step("free"), before, of_seeds(5, 5)),
        effect(step("longer"), before, of_seeds(8, 8, cost=19.0)),
        effect(step("luck"), before, of_seeds(2, 9, cost=19.0)),
    ]
    found = advice(effects, "USD", 5)
    assert [each.step for each in found.shorter_waits] == ["free", "fair", "dear"]
    assert found.less_money == ()
    assert found.tried == 5


def test_a_saving_counts_only_if_waits_are_no_longer() -> None:
    """Everything is cheapest if nothing runs."""
    before = of_seeds(6, 6)
    effects = [
        effect(step("stingy"), before, of_seeds(8, 8, cost=5.0)),
        effect(step("thrifty"), before, of_seeds(6, 6, cost=16.0)),
        effect(step("better"), before, of_seeds(5, 5, cost=10.0)),
        effect(step("nothing"), before, of_seeds(6, 6, cost=16.99)),
    ]
    found = advice(effects, "USD", 4)
    assert [each.step for each in found.less_money] == ["better", "thrifty"]
    assert [each.step for each in found.shorter_waits] == ["better"]
    steps = [step(each.step) for each in effects]
    assert [each.text for each in best(steps, found)] == ["thrifty", "better"]
