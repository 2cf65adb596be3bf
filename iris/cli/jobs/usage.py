"""Shows what a job used over time, against what it requested: `iris usage JOB`."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import click

from iris.cli.job_names import job_and_task, named_job
from iris.cli.run import with_client
from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.cli.show.messages import print_json
from iris.cli.show.resources import resources_json
from iris.client.client import AsyncIrisClient
from iris.client.connect.identity import job_and_run
from iris.model.units import format_duration
from iris.usage.measures import GPU_MEMORY, MEASURES
from iris.usage.series import Measures, Point, Series, Stat
from iris.usage.summary import JobUse, TaskUse, most_used

#: The maximum number of tasks in the list of a job's tasks.
MAX_TASKS = 20
#: The width in characters of the chart that shows a measure over time.
WIDTH = 40
_BARS = "▁▂▃▄▅▆▇█"


class _Row(NamedTuple):
    """One measured resource of a job or of a task, such as its memory."""

    resource: str
    requested: str
    peak: str
    mean: str
    over_time: str


_ROWS: Listing[_Row] = Listing(
    Column("RESOURCE", "resource"),
    Column("REQUESTED", "requested"),
    Column("PEAK", "peak"),
    Column("MEAN", "mean"),
    Column("OVER TIME", "over_time", optional=True),
)


def _peak(field: str, text: Callable[[float], str]) -> Callable[[TaskUse], str]:
    def shown(task: TaskUse) -> str:
        stat: Stat | None = getattr(task.series.whole, field)
        return "" if stat is None else f"{text(stat.peak)} ({text(stat.mean)})"

    return shown


_TASKS: Listing[TaskUse] = Listing(
    Column("TASK", "task"),
    Column("ATTEMPT", "attempt"),
    Column("MEASURED", value=lambda task: timedelta(seconds=task.series.seconds)),
    *(
        Column(
            f"{each.name.upper()} PEAK (MEAN)", value=_peak(each.field, each.text), optional=True
        )
        for each in MEASURES
    ),
)


def show_job_usage(ctx: click.Context, job: str, *, as_json: bool) -> None:
    """Prints what a job used.

    Args:
        job: the job, task or run as the user names it.
    """
    named, number = job_and_run(job)
    _, task = job_and_task(named)

    async def work(client: AsyncIrisClient) -> JobUse:
        name = await named_job(client, job)
        return await client.jobs.use_over_time(name, task, await client.jobs.run(name, number))

    found = with_client(ctx, work)
    if as_json:
        print_json(usage_json(found, points=task is not None))
    else:
        click.echo(usage_text(found))


def usage_json(found: JobUse, *, points: bool) -> dict[str, Any]:
    """Returns the use of a job as JSON.

    Args:
        points: include the series of each task.
    """
    return {
        "job": found.job,
        "requested": resources_json(found.requested),
        "whole": _measures_json(found.whole),
        "tasks": [
            {
                "task": each.task,
                "attempt": each.attempt,
                "gpu_memory_total": each.series.gpu_memory_total,
                **_measures_json(each.series.whole),
                **(
                    {"points": [_point_json(point) for point in each.series.points]}
                    if points
                    else {}
                ),
            }
            for each in found.tasks
        ],
        "advice": [{**each.model_dump(mode="json"), "text": str(each)} for each in found.advice],
        "unmeasured": found.unmeasured,
        "unread": found.unread,
    }


def _point_json(point: Point) -> dict[str, Any]:
    return {"start": point.start, "end": point.end, **_measures_json(point.measures)}


def _measures_json(measures: Measures) -> dict[str, Any]:
    return {
        name: None if stat is None else stat._asdict() for name, stat in measures._asdict().items()
    }


def usage_text(found: JobUse) -> str:
    """Formats the use of a job for people."""
    if not found.tasks:
        return (
            f"{found.job}: no use is stored; that of a running program is stored after a minute,"
            " and programs that run for a few seconds are not measured"
        )
    only = found.tasks[0] if len(found.tasks) == 1 else None
    lines = [_headline(found, only), "", _ROWS.table(_rows(found, only))]
    if only is None:
        shown = most_used(found.tasks)[:MAX_TASKS]
        lines += ["", _TASKS.table(shown, cut=True)]
        if left := len(found.tasks) - len(shown):
            lines.append(f"{left} more task(s), with less memory; see all with --json")
    if found.unread:
        lines.append(
            f"{found.unread:,} other tasks were not read: the ones read are equally spaced"
        )
    return "\n".join([*lines, *(["", *map(str, found.advice)] if found.advice else [])])


def _headline(found: JobUse, only: TaskUse | None) -> str:
    if only is not None:
        ran = format_duration(timedelta(seconds=only.series.seconds))
        return f"{found.job}:{only.task}  attempt {only.attempt}, measured for {ran}"
    measured, total = len(found.tasks), len(found.tasks) + found.unmeasured
    return f"{found.job}  {measured} of {total} tasks were measured"


def _rows(found: JobUse, only: TaskUse | None) -> list[_Row]:
    rows = []
    for each in MEASURES:
        stat: Stat | None = getattr(found.whole, each.field)
        if stat is None:
            continue
        asked = each.requested(found.requested)
        if each is GPU_MEMORY and only is not None:
            asked = only.series.gpu_memory_total
        line = "" if only is None else sparkline(only.series, each.field)
        requested = "" if asked is None else each.text(asked)
        rows.append(_Row(each.name, requested, each.text(stat.peak), each.text(stat.mean), line))
    return rows


def sparkline(series: Series, field: str, width: int = WIDTH) -> str:
    """Returns the means of a measure over time as a line of bars. The highest bar is the highest
    mean; a blank is a time in which nothing was measured.
    """
    start, end = series.points[0].start, series.points[-1].end
    places: list[list[Stat]] = [[] for _ in range(min(width, len(series.points)))]
    for point in series.points:
        if (stat := getattr(point.measures, field)) is not None and end > start:
            middle = (point.start + point.end) / 2
            place = int((middle - start) / (end - start) * len(places))
            places[min(max(place, 0), len(places) - 1)].append(stat)
    means = [_mean(stats) for stats in places]
    top = max((mean for mean in means if mean is not None), default=0.0)
    return "".join(
        " " if mean is None else _BARS[round(mean / top * (len(_BARS) - 1)) if top > 0 else 0]
        for mean in means
    )


def _mean(stats: Sequence[Stat]) -> float | None:
    seconds = sum(each.seconds for each in stats)
    return sum(each.mean * each.seconds for each in stats) / seconds if seconds else None
