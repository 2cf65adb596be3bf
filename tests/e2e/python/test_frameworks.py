"""Programs of real frameworks, by the commands in the documentation of the examples, typed at the
root of the repository.
"""

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, a_cluster

#: Each job makes an environment of its own: this project, which is at the root of the repository,
#: and the framework.
PATIENCE = 600.0
pytestmark = [pytest.mark.long, pytest.mark.timeout(PATIENCE + 60)]

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
START, SUBMIT = "iris cluster start --local -d ", "iris submit "
#: The PyTorch of the package index needs gigabytes of CUDA libraries. The machine's own Python has
#: Debian's instead (`scripts/install-torch`), whose `torchrun` fails on Python 3.11 unless both
#: kinds of output are redirected.
DEBIANS_TORCH = {
    "--pip torch -- python3 ": "-- /usr/bin/python3 ",
    "--pip torch -- torchrun ": "-- torchrun --redirects 2 --tee 1 ",
}


def documented(example: str) -> tuple[list[str], list[str]]:
    """Returns the options with which an example's documentation starts a cluster, and its commands
    that submit a job.
    """
    lines = (ast.get_docstring(ast.parse((EXAMPLES / example).read_text())) or "").splitlines()
    (start,) = (line.removeprefix(START) for line in lines if line.startswith(START))
    return shlex.split(start), [
        line.removeprefix(SUBMIT) for line in lines if line.startswith(SUBMIT)
    ]


@pytest.fixture(scope="module")
def simulated() -> Iterator[Cluster]:
    """One slice of two hosts."""
    with a_cluster(*documented("jax_gang.py")[0], name="frameworks") as cluster:
        yield cluster


def printed(
    cluster: Cluster, example: str, command: int = 0, instead: dict[str, str] | None = None
) -> list[str]:
    """Returns what the job of an example's documentation printed, without the tasks' numbers.

    Args:
        command: which of the commands that submit a job.
        instead: what this machine does not have, and what replaces it.
    """
    options, commands = documented(example)
    assert tuple(options) == cluster.options
    typed = commands[command]
    for missing, present in (instead or {}).items():
        typed = typed.replace(missing, present)
    out = cluster.iris("submit", *shlex.split(typed), cwd=ROOT, within=PATIENCE).out
    return [line.partition("] ")[2] for line in out.splitlines()]


def test_processes_of_jax_find_each_other_on_a_slice(simulated: Cluster) -> None:
    """The example that the page about tasks points at, with JAX from the package index and its
    collectives between processes.
    """
    lines = sorted(
        line for line in printed(simulated, "jax_gang.py") if "process " in line and "ranks" in line
    )
    assert lines == [f"process {rank} of 2: the ranks of all are [0, 1]" for rank in range(2)]


def test_a_process_of_jax_on_a_slice_of_one_host_is_the_only_one() -> None:
    """`initialize()` needs no arguments, as on the real slice, and two jobs beside each other do
    not take each other's port.
    """
    with a_cluster("--tpu", "v4-8", "--slices", "2", "--ephemeral", name="single") as cluster:
        options = ("--tpu", "v4-8", "--pip", "jax", "--replicas", "2")
        ran = cluster.iris(
            "submit", *options, "--", "python", "jax_gang.py", cwd=EXAMPLES, within=PATIENCE
        )

    lines = [line.partition("] ")[2] for line in ran.out.splitlines() if "ranks" in line]
    assert lines == ["process 0 of 1: the ranks of all are [0]"] * 2


def test_processes_of_pytorch_find_each_other_in_a_gang() -> None:
    """Neither the program nor `torchrun` is given an address, a rank or a size: `env://` reads what
    Iris sets.
    """
    with a_cluster(*documented("torch_gang.py")[0], name="torch") as cluster:
        for command, size in enumerate((2, 4)):
            lines = printed(cluster, "torch_gang.py", command, DEBIANS_TORCH)
            processes = sorted(
                line[line.index("process ") :] for line in lines if "the sum of the ranks" in line
            )

            assert processes == [
                f"process {rank} of {size}: the sum of the ranks is {sum(range(size))}"
                for rank in range(size)
            ]


def test_a_program_of_dask_finds_workers_on_all_hosts(simulated: Cluster) -> None:
    """The program itself has no line for Iris' addresses; the job ends when the program does."""
    assert "the sum on 2 workers is 328350" in printed(simulated, "dask_cluster.py")


def test_a_program_of_ray_finds_nodes_on_all_hosts(simulated: Cluster) -> None:
    """As that of Dask; the nodes of both hosts run beside each other on this machine."""
    assert "the sum on 2 nodes is 328350" in printed(simulated, "ray_cluster.py")


def test_a_program_of_dask_that_fails_fails_its_job(simulated: Cluster) -> None:
    """Its workers do not wait for another scheduler for ever."""
    options = ("--tpu", "v4-16", "--pip", "distributed")
    program = ("python", "dask_cluster.py", "-c", "raise SystemExit(7)")
    simulated.iris(
        "submit", "-n", "failing", *options, "--", *program, cwd=EXAMPLES, within=PATIENCE, code=125
    )
    assert "code 7" in simulated.status("failing")["reason"]
