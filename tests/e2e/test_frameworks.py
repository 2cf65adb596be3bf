"""Programs of real frameworks, as their documentation writes them, on a simulated slice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, a_cluster

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def simulated() -> Iterator[Cluster]:
    """One slice of two hosts."""
    with a_cluster("--tpu", "v4-16", "--ephemeral", name="frameworks") as cluster:
        yield cluster


def said(cluster: Cluster, name: str, package: str, *command: str, **env: str) -> list[str]:
    """What a program printed that has a package of the package index, on all hosts of the slice."""
    variables = (word for pair in env.items() for word in ("-e", "=".join(pair)))
    options = ("--tpu", "v4-16", "--memory", "4g", "--pip", package, *variables)
    return printed(cluster, "-n", name, *options, "--", "python", *command)


def printed(cluster: Cluster, *arguments: str) -> list[str]:
    """What a job of the examples printed, without the tasks' numbers."""
    out = cluster.iris("submit", *arguments, cwd=EXAMPLES, within=600).out
    return [line.partition("] ")[2] for line in out.splitlines()]


def test_processes_of_jax_find_each_other_on_a_slice(simulated: Cluster) -> None:
    """The example that the page about tasks points at, with JAX from the package index and its collectives between processes."""
    lines = sorted(line for line in said(simulated, "jax", "jax", "jax_gang.py") if "process " in line and "ranks" in line)
    assert lines == [f"process {rank} of 2: the ranks of all are [0, 1]" for rank in range(2)]


def test_a_process_of_jax_on_a_slice_of_one_host_is_the_only_one() -> None:
    """`initialize()` needs no arguments, as on the real slice, and two jobs beside each other do not take each other's port."""
    with a_cluster("--tpu", "v4-8", "--slices", "2", "--ephemeral", name="single") as cluster:
        options = ("--tpu", "v4-8", "--memory", "4g", "--pip", "jax", "--replicas", "2")
        lines = printed(cluster, "-n", "jax", *options, "--", "python", "jax_gang.py")

    assert [line for line in lines if "ranks" in line] == ["process 0 of 1: the ranks of all are [0]"] * 2


#: The machine's PyTorch is Debian's (`scripts/install-torch`): that of the package index needs gigabytes of CUDA libraries.
#: Its `torchrun` fails on Python 3.11 unless both kinds of output are redirected.
PYTORCH = ("/usr/bin/python3",)
TORCHRUN = ("torchrun", "--nproc_per_node", "2", "--redirects", "2", "--tee", "1")


@pytest.mark.parametrize(("launcher", "size"), [(PYTORCH, 2), (TORCHRUN, 4)], ids=["python", "torchrun"])
def test_processes_of_pytorch_find_each_other_in_a_gang(simulated: Cluster, launcher: tuple[str, ...], size: int) -> None:
    """Neither the program nor `torchrun` is given an address, a rank or a size: `env://` reads what Iris sets."""
    gang = ("-n", f"torch-{size}", "--tpu", "v4-16", "--memory", "4g")
    lines = printed(simulated, *gang, "--", *launcher, "torch_gang.py")
    processes = sorted(line[line.index("process ") :] for line in lines if "the sum of the ranks" in line)

    assert processes == [f"process {rank} of {size}: the sum of the ranks is {sum(range(size))}" for rank in range(size)]


def test_a_program_of_dask_finds_workers_on_all_hosts(simulated: Cluster) -> None:
    """The program itself has no line for Iris' addresses; the job ends when the program does."""
    assert "the sum on 2 workers is 328350" in said(simulated, "dask", "distributed", "dask_cluster.py", "dask_sum.py")


def test_a_program_of_ray_finds_nodes_on_all_hosts(simulated: Cluster) -> None:
    """As that of Dask; the nodes of both hosts run beside each other on this machine."""
    small = "--num-cpus 1 --object-store-memory 100000000"
    command = ("ray_cluster.py", "ray_sum.py")
    assert "the sum on 2 nodes is 328350" in said(simulated, "ray", "ray", *command, RAY_START_OPTIONS=small)


def test_a_program_of_dask_that_fails_fails_its_job(simulated: Cluster) -> None:
    """Its workers do not wait for another scheduler for ever."""
    options = ("--tpu", "v4-16", "--memory", "4g", "--pip", "distributed")
    program = ("python", "dask_cluster.py", "-c", "raise SystemExit(7)")
    simulated.iris("submit", "-n", "failing", *options, "--", *program, cwd=EXAMPLES, within=600, code=125)
    assert "exited with code 7" in simulated.status("failing")["reason"]
