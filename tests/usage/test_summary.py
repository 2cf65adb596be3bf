"""When a smaller request would do: said only if it is certain, with the option to type."""

import pytest

from iris.model.host.resources import Resources
from iris.model.units import GIB
from iris.usage.series import Series, sample
from iris.usage.summary import JobUse, TaskUse, advice, most_used
from tests.builders import some


def used(
    minutes: float = 60, cores: float = 1, memory: float = 1, gpus: int | None = None
) -> Series:
    """A series of one interval. The memory is in GiB."""
    seconds = 60 * minutes
    measured = sample(seconds, 100 * cores, round(memory * GIB), gpus_in_use=gpus)
    return Series().with_sample(1000, 1000 + seconds, measured)


def options(requested: Resources, *measured: Series) -> list[str]:
    return [each.option for each in advice(requested, measured)]


@pytest.mark.parametrize(
    ("peak", "requested", "expected"),
    [
        (3.1, 16, ["--memory 4g"]),
        (0.3, 16, ["--memory 384m"]),
        (0.0, 16, ["--memory 128m"]),
        (6.3, 16, ["--memory 8g"]),
        # The margin takes it above the half.
        (6.5, 16, []),
        (15.9, 16, []),
        # The default request.
        (0.1, 1, []),
        (0.1, 0, []),
    ],
)
def test_memory_is_advised_with_a_margin_if_half_would_do(
    peak: float, requested: float, expected: list[str]
) -> None:
    """A program that follows the advice must not run out of memory."""
    assert options(some(cpu=1, memory=requested), used(memory=peak)) == expected


@pytest.mark.parametrize(
    ("peak", "requested", "expected"),
    [(2.5, 8, ["--cpu 4"]), (0.3, 8, ["--cpu 0.5"]), (3.3, 8, []), (0.0, 1, [])],
)
def test_cores_are_advised_if_half_would_do(
    peak: float, requested: float, expected: list[str]
) -> None:
    """Cores that nobody uses keep other tasks waiting."""
    assert options(some(cpu=requested), used(cores=peak)) == expected


@pytest.mark.parametrize(
    ("in_use", "device", "expected"),
    [
        (3, "gpu:H100:8", ["--gpu H100x4"]),
        (0, "gpu:H100:8", ["--gpu H100x1"]),
        (5, "gpu:H100:8", []),
        (1, "gpu:auto:2", ["--gpu 1"]),
        (0, "gpu:H100:1", []),
        (None, "gpu:H100:8", []),
        (0, "tpu:v5litepod-16:4", []),
    ],
)
def test_gpus_are_advised_by_how_many_were_in_use_at_a_time(
    in_use: int | None, device: str, expected: list[str]
) -> None:
    """One GPU is not divided, nor is the slice of a TPU."""
    assert options(some(cpu=1, device=device), used(gpus=in_use)) == expected


def test_a_task_on_a_tpu_slice_gets_no_advice_about_its_host() -> None:
    """It has the host alone, whatever it requests."""
    assert options(some(cpu=8, memory=64, device="tpu:v5litepod-16:4"), used(memory=1)) == []


def test_there_is_no_advice_before_an_attempt_has_run_for_some_minutes() -> None:
    """It would tell of the start of the program, before its data is loaded."""
    requested = some(cpu=1, memory=16)
    assert options(requested, used(minutes=4)) == []
    assert options(requested, used(minutes=4), used(minutes=6)) != []


def test_the_task_that_needs_most_decides_for_all() -> None:
    """One request holds for all tasks of an array."""
    requested = some(cpu=1, memory=16)
    assert options(requested, used(memory=1), used(minutes=4, memory=10)) == []


def test_a_job_has_the_peak_of_its_tasks_and_the_mean_over_their_time() -> None:
    """A task that ran ten times as long weighs ten times as much."""
    tasks = tuple(
        TaskUse(task=index, attempt=1, series=series)
        for index, series in enumerate((used(minutes=10, memory=4), used(minutes=30, memory=8)))
    )
    found = JobUse(job="ada/train", requested=some(cpu=1, memory=32), tasks=tasks)
    memory = found.whole.memory_bytes
    assert memory is not None
    assert (memory.peak, memory.mean) == (8 * GIB, 7 * GIB)
    assert [each.task for each in most_used(tasks)] == [1, 0]
    (advised,) = found.advice
    assert "8 GiB of 32 GiB" in str(advised)
    assert "--memory 10g" in str(advised)
