"""What a job used over time, as charts beside what it requested."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from markupsafe import Markup

from iris.dashboard.charts import Level, Point, Series, line_chart
from iris.dashboard.reader import Part, Reader, part
from iris.model.host.resources import Resources
from iris.model.job.status import JobStatus
from iris.usage.measures import CORES, GPU, GPU_MEMORY, MEMORY, Measure
from iris.usage.series import Measures, Stat
from iris.usage.series import Series as UseSeries
from iris.usage.summary import JobUse, TaskUse, most_used

#: How long the dashboard caches the resource use of a job, in seconds. Agents store it every
#: minute.
USE_SHARED_FOR = 30.0
#: The limit on tasks in the table, for a job with several tasks.
MOST_TASKS = 20
#: The measures of resource use that the page shows.
SHOWN = (CORES, MEMORY, GPU, GPU_MEMORY)


class Summary(NamedTuple):
    """One measure of the job's resource use: a row of the table."""

    name: str
    requested: str
    peak: str
    mean: str


class UseShown(NamedTuple):
    """The resource use of a job as the page shows it."""

    use: JobUse
    #: The task whose charts the page shows. It is None if several tasks were measured and the user
    #: has chosen none.
    task: TaskUse | None
    charts: Sequence[Markup]
    summaries: Sequence[Summary]
    #: The tasks with the highest memory peaks, if several tasks were measured and the user has
    #: chosen none; otherwise empty.
    tasks: Sequence[TaskUse]


async def use_of(
    reader: Reader, status: JobStatus, run_id: str | None, index: int | None
) -> Part[UseShown | None]:
    """Returns what the job used, or its task with this index; None if no program has started."""
    if status.started_at is None:
        return Part(None)

    async def read() -> JobUse:
        return await reader.client.jobs.use_over_time(status.id, index, run_id)

    asked = reader.shared(("use", status.id, run_id, index), read, USE_SHARED_FOR)
    found = await part(asked)
    return Part(None, found.problem) if found.value is None else Part(shown(found.value))


def shown(use: JobUse) -> UseShown | None:
    """Returns what the page shows of a use; None if nothing was measured."""
    if not use.tasks:
        return None
    only = use.tasks[0] if len(use.tasks) == 1 else None
    return UseShown(
        use,
        only,
        charts_of(only.series, use.requested) if only is not None else (),
        summaries_of(use.whole, use.requested),
        () if only is not None else most_used(use.tasks)[:MOST_TASKS],
    )


def charts_of(series: UseSeries, requested: Resources) -> list[Markup]:
    """Returns a chart for each measure, with its mean and its peak in each interval."""
    charts = []
    for measure in SHOWN:
        points = [
            (datetime.fromtimestamp((point.start + point.end) / 2, UTC), stat)
            for point in series.points
            if (stat := value_of(measure, point.measures)) is not None
        ]
        if not points:
            continue
        lines = [
            Series("mean", [Point(at, stat.mean) for at, stat in points]),
            Series("peak", [Point(at, stat.peak) for at, stat in points]),
        ]
        asked = limit_of(measure, requested, series)
        levels = [] if asked is None else [Level("requested", asked)]
        charts.append(line_chart(measure.title, lines, levels, form=measure.text))
    return charts


def summaries_of(whole: Measures, requested: Resources) -> list[Summary]:
    """Returns the peak and the mean of each measure beside what each task requested."""
    rows = []
    for measure in SHOWN:
        stat = value_of(measure, whole)
        if stat is not None:
            asked = limit_of(measure, requested)
            text = "" if asked is None else measure.text(asked)
            rows.append(
                Summary(measure.title, text, measure.text(stat.peak), measure.text(stat.mean))
            )
    return rows


def value_of(measure: Measure, measures: Measures) -> Stat | None:
    """Returns the values of the measure; None if it was not measured."""
    stat: Stat | None = getattr(measures, measure.field)
    return stat


def limit_of(
    measure: Measure, requested: Resources, series: UseSeries | None = None
) -> float | None:
    """Returns the amount that a task requested or had; None if the measure has none."""
    if measure is GPU_MEMORY and series is not None:
        return series.gpu_memory_total or None
    return measure.requested(requested)
