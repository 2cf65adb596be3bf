"""Programs of real frameworks, as their documentation writes them, on a simulated slice."""

from pathlib import Path

import pytest

from tests.e2e.cluster import a_cluster

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_processes_of_jax_find_each_other_on_a_slice() -> None:
    """The example that the page about tasks points at, with JAX from the package index and its collectives between processes."""
    with a_cluster("--tpu", "v4-16", "--ephemeral", name="jax") as cluster:
        submitted = ("submit", "-n", "meet", "--tpu", "v4-16", "--pip", "jax", "--", "python3", "jax_gang.py")
        said = cluster.iris(*submitted, cwd=EXAMPLES, within=600).out

    lines = sorted(line.partition("] ")[2] for line in said.splitlines() if "process " in line and "ranks" in line)
    assert lines == [f"process {rank} of 2: the ranks of all are [0, 1]" for rank in range(2)]
