"""The file with the assumptions of a simulation."""

import pytest

from iris.config import InvalidConfig
from iris.simulation.world import Machines, Resubmission, World, read_world, write_world

TEXT = """\
machines:
  "*": {boot: 90s}
  tpu@europe-west4-b:
    boot: [1m, 3m, 20m]
    preemptions_per_hour: 0.05
    stock_out: 0.2
checkpoint_every: 10m
resubmit: {share: 0.5}
"""


def test_a_world_is_written_in_durations_and_parts() -> None:
    """The most exact entry counts, and one value stands for a distribution."""
    world = read_world(TEXT, "world.yaml")
    assert world.of("cpu", "europe-west4-b") == Machines(boot=(90.0,))
    tpu = world.of("tpu", "europe-west4-b")
    assert (tpu.boot, tpu.preemptions_per_hour) == ((60.0, 180.0, 1200.0), 0.05)
    assert tpu.stock_out == (0.2,)
    assert (world.checkpoint_every, world.resubmit) == (600.0, Resubmission(share=0.5))


@pytest.mark.parametrize("world", [World(), read_world(TEXT, "world.yaml")], ids=["plain", "full"])
def test_a_written_world_is_read_as_the_same(world: World) -> None:
    """A measured world is saved, changed by hand and tried again."""
    assert read_world(write_world(world), "world.yaml") == world


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "machines: {tpu: {bot: 2m}}",
            "line 1: machines.tpu.bot: unknown key; did you mean 'boot'",
        ),
        ("stop: 1s\nmachines:\n  tpu:\n    boot: soon", "line 4: machines.tpu.boot: 'soon' is not"),
        ("machines: {tpu: {stock_out: 2}}", "machines.tpu.stock_out: '2' is not a share"),
        ("machines: {tpu: {stock_out: [0, 1]}}", "24 hours"),
        ("machines: {tpu: {preemptions_per_hour: often}}", "'often' is not a number"),
        ("machines: {tpu: {preemptions_per_hour: -1}}", "'-1' is less than 0"),
        ("machines: {tpu: {failures_per_hour: .inf}}", "failures_per_hour"),
        ("stock_out_lasts: 0s", "stock_out_lasts: '0s' is shorter than a second"),
        ("stop: 1s\nstop: 2s", "line 2, column 1: the key 'stop' is repeated"),
        ("- stop", "start with machines:"),
        ("# nothing", "the file is empty; start with machines:"),
        ("stop: {", "line 1, column 8"),
    ],
)
def test_a_problem_has_the_file_the_line_the_value_and_a_remedy(text: str, problem: str) -> None:
    """As for a cluster's configuration."""
    with pytest.raises(InvalidConfig) as refused:
        read_world(text, "world.yaml")
    assert "world.yaml has 1 problem" in str(refused.value)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("text", "varies"),
    [
        ("machines: {tpu: {boot: 3m}}", False),
        (f"machines: {{tpu: {{stock_out: {[0] * 12 + [1] * 12}}}}}", False),
        ("resubmit: {share: 1}", False),
        ("machines: {tpu: {boot: [3m, 4m]}}", True),
        ("machines: {tpu: {failures_per_hour: 0.1}}", True),
        ("machines: {tpu: {stock_out: 0.1}}", True),
        ("resubmit: {share: 0.5}", True),
        ("resubmit: {after: [1m, 1h]}", True),
    ],
)
def test_a_world_without_chance_needs_one_seed(text: str, varies: bool) -> None:
    """More of them would have the same results."""
    assert read_world(text, "world.yaml").varies is varies
