"""What `iris usage JOB` shows of series that are known, for people and for programs."""

import pytest
from click.testing import CliRunner

from iris.cli.jobs.usage import sparkline, usage_json, usage_text
from iris.cli.usage import usage
from iris.model.units import GIB
from iris.usage.series import Series, sample
from iris.usage.summary import JobUse, TaskUse
from tests.builders import some


def a_series(*memory: float, cores: float = 1.5, gpu: float | None = None) -> Series:
    """A series with an interval of ten minutes for each of these sizes, in GiB."""
    series = Series() if gpu is None else Series(gpu_memory_total=640 * GIB)
    for number, size in enumerate(memory):
        start = 1_000 + 600.0 * number
        of_gpus = (None, None, None) if gpu is None else (gpu, GIB, 1)
        measured = sample(600.0, 100 * cores, round(size * GIB), *of_gpus)
        series = series.with_sample(start, start + 600, measured)
    return series


def a_use(*series: Series, **changes: object) -> JobUse:
    tasks = tuple(
        TaskUse(task=index, attempt=index + 1, series=each) for index, each in enumerate(series)
    )
    known = {"job": "ada/train", "requested": some(cpu=2, memory=16, device="gpu:H100:8")}
    return JobUse.model_validate({**known, "tasks": tasks, **changes})


def test_the_json_of_a_use_has_numbers_in_base_units() -> None:
    """Bytes, seconds, percent of one core: a script computes with them."""
    assert usage_json(a_use(a_series(1, 3)), points=True) == {
        "job": "ada/train",
        "requested": {
            "cpu": 2.0,
            "memory_bytes": 16 * GIB,
            "disk_bytes": 0,
            "device": {"kind": "gpu", "variant": "H100", "count": 8},
        },
        "whole": (
            whole := {
                "cpu_percent": {"seconds": 1200.0, "mean": 150.0, "peak": 150.0},
                "memory_bytes": {"seconds": 1200.0, "mean": 2.0 * GIB, "peak": 3.0 * GIB},
                "gpu_percent": None,
                "gpu_memory_bytes": None,
                "gpus_in_use": None,
            }
        ),
        "tasks": [
            {
                "task": 0,
                "attempt": 1,
                "gpu_memory_total": None,
                **whole,
                "points": [
                    {
                        "start": start,
                        "end": start + 600,
                        "cpu_percent": {"seconds": 600.0, "mean": 150.0, "peak": 150.0},
                        "memory_bytes": {"seconds": 600.0, "mean": size, "peak": size},
                        "gpu_percent": None,
                        "gpu_memory_bytes": None,
                        "gpus_in_use": None,
                    }
                    for start, size in ((1000.0, 1.0 * GIB), (1600.0, 3.0 * GIB))
                ],
            }
        ],
        "advice": [
            {
                "resource": "memory",
                "option": "--memory 4g",
                "facts": "peak memory 3 GiB of 16 GiB requested",
                "text": "peak memory 3 GiB of 16 GiB requested: --memory 4g would do",
            }
        ],
        "unmeasured": 0,
        "unread": 0,
    }
    assert "points" not in usage_json(a_use(a_series(1)), points=False)["tasks"][0]


def test_a_task_is_shown_with_its_use_over_time_and_the_advice() -> None:
    """One look says what was wasted, and when."""
    lines = usage_text(a_use(a_series(0, 8, 4, gpu=85.0))).splitlines()
    cells = {line.split("  ")[0]: line.split() for line in lines}
    assert cells["memory"][1:8] == ["16", "GiB", "8", "GiB", "4", "GiB", "▁█▅"]
    assert cells["cores"][1:4] == ["2", "1.5", "1.5"]
    assert cells["gpu"][2:4] == ["85%", "85%"]
    assert cells["gpus in use"][3] == "8"
    assert lines[-1].endswith("--gpu H100x1 would do")


def test_a_job_of_many_tasks_fits_onto_a_screen() -> None:
    """The tasks with the most memory are first: they decide the request."""
    use = a_use(*(a_series(number / 10) for number in range(90)), unmeasured=7, unread=900)
    lines = usage_text(use).splitlines()
    assert len(lines) < 40
    assert "90 of 97 tasks" in lines[0]
    listed = [int(line.split()[0]) for line in lines if line[:1].isdecimal() and "GiB" in line]
    assert listed == list(range(89, 69, -1))
    assert any(line.startswith("70 more") for line in lines)
    assert any(line.startswith("900 other") for line in lines)


def test_a_job_without_measurements_says_why() -> None:
    """An empty table looks like a fault."""
    assert "few seconds" in usage_text(a_use())


def test_a_time_without_measurements_is_blank_in_the_line() -> None:
    """An agent that was away has seen nothing; that is not the same as no use."""
    one = a_series(4, 4)
    series = one.with_sample(6_400.0, 7_000.0, sample(600.0, 1.0, 4 * GIB))
    assert sparkline(series, "memory_bytes", width=10) == "█ █"
    wide = a_series(*([1.0] * 60), 2.0)
    assert len(sparkline(wide, "memory_bytes", width=10)) == 10


@pytest.mark.parametrize("option", [("--by", "team"), ("--csv",), ("--since", "2d")])
def test_an_option_about_the_cluster_excludes_a_job(option: tuple[str, ...]) -> None:
    """Silently ignored, it would let the user believe the answer is about it."""
    result = CliRunner().invoke(usage, ["train", *option])
    assert result.exit_code == 2
    assert f"{option[0]} is about the use of the cluster; leave out JOB" in result.output
