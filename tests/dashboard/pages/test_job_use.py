"""The use of a job over time, as the job's page shows it."""

from iris.dashboard.pages.job_use import charts_of, shown, summaries_of
from iris.model.units import GIB
from iris.usage.series import Series, sample
from iris.usage.summary import JobUse, TaskUse
from tests.builders import some

ASKED = some(cpu=4, memory=16)


def a_series(*gib: float, gpu: float | None = None) -> Series:
    series = Series()
    for number, size in enumerate(gib):
        start = 1_000 + 600.0 * number
        of_gpus = (None, None, None) if gpu is None else (gpu, GIB, 1)
        series = series.with_sample(
            start, start + 600, sample(600, 150, round(size * GIB), *of_gpus)
        )
    return series


def a_use(*series: Series) -> JobUse:
    tasks = [TaskUse(task=index, attempt=1, series=each) for index, each in enumerate(series)]
    return JobUse(job="ada/train", requested=ASKED, tasks=tuple(tasks))


def test_one_task_has_a_chart_of_each_measure_that_it_has() -> None:
    """A task without GPUs has no empty charts of them."""
    of_cpu, of_gpu = a_series(1, 2), a_series(1, 2, gpu=80)
    assert [len(charts_of(each, ASKED)) for each in (of_cpu, of_gpu)] == [2, 4]
    cores, memory = charts_of(of_cpu, ASKED)
    assert "1.5" in cores
    assert "16 GiB" in memory  # the request is a line of the chart


def test_the_table_has_peak_and_mean_beside_the_request() -> None:
    """Half the request of memory may do, and the table shows it at a glance."""
    rows = summaries_of(a_use(a_series(1, 3)).whole, ASKED)
    assert [(row.name, row.requested, row.peak, row.mean) for row in rows] == [
        ("Cores", "4", "1.5", "1.5"),
        ("Memory", "16 GiB", "3 GiB", "2 GiB"),
    ]


def test_of_several_tasks_those_with_the_most_memory_can_be_chosen() -> None:
    """Charts of a thousand tasks would say nothing."""
    found = shown(a_use(a_series(1), a_series(3), a_series(2)))
    assert found is not None
    assert ([each.task for each in found.tasks], found.charts) == ([1, 2, 0], ())


def test_a_job_that_was_not_measured_shows_nothing() -> None:
    """Its programs ran for a few seconds."""
    assert shown(a_use()) is None
