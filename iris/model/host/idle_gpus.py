"""Decides when the GPUs of a program are idle, for jobs that end or warn then (`--stop-idle`)."""

from datetime import UTC, datetime, timedelta
from typing import Self

from pydantic import Field, field_validator

from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.host.resources import Device, DeviceKind, is_partition
from iris.model.units import MAX_DURATION, format_duration, parse_duration

#: GPUs with less use than this are idle, in percent.
DEFAULT_BELOW = 5.0
#: The shortest time of idleness that can end a job. It is longer than the few seconds between two
#: measurements of the GPUs, because a program may load data for more than a few seconds.
LEAST_AFTER = timedelta(minutes=1)
#: The end of a rule that only warns: `30m:warn`.
_WARN = "warn"
#: If nothing is measured for this long, in seconds, idleness begins anew with the next measurement,
#: because the GPUs may have computed in the time without measurements.
MAX_GAP = 60.0


class StopIdle(Frozen):
    """The rule by which a job ends when its GPUs have been idle for some time.

    Raises:
        pydantic.ValidationError: wraps the `InvalidValue` of an invalid field.
    """

    #: How long the GPUs must be idle before the job ends, or before the warning.
    after: timedelta
    #: GPUs with less use than this are idle, in percent.
    below: float = DEFAULT_BELOW
    #: True if the job does not end: its log and its status say that the GPUs are idle.
    only_warns: bool = False

    def __str__(self) -> str:
        after = format_duration(self.after).replace(" ", "")
        below = "" if self.below == DEFAULT_BELOW else f":{self.below:g}%"
        return f"{after}{below}{f':{_WARN}' if self.only_warns else ''}"

    @field_validator("after")
    @classmethod
    def _is_long_enough(cls, after: timedelta) -> timedelta:
        return _long_enough(after)

    @field_validator("below")
    @classmethod
    def _is_a_part(cls, below: float) -> float:
        return _a_part(below)


def parse_stop_idle(text: str | float | timedelta) -> StopIdle:
    """Parses `"30m"`, or with another threshold `"30m:10%"`. `"30m:warn"` and `"30m:10%:warn"` only
    warn.

    Raises:
        InvalidValue: the text has another form, or the time or the percentage is out of range.
    """
    if isinstance(text, timedelta):
        return StopIdle(after=_long_enough(text))
    time, *others = str(text).split(":")
    after = _long_enough(parse_duration(time, "stop_idle"))
    only_warns = others[-1:] == [_WARN]
    thresholds = others[:-1] if only_warns else others
    if not thresholds:
        return StopIdle(after=after, only_warns=only_warns)
    try:
        (below,) = thresholds
        percent = float(below.strip().removesuffix("%"))
    except ValueError:
        remedy = 'write a time and a percentage, such as "30m:10%"'
        raise InvalidValue("stop_idle", text, "has no percentage after the time", remedy) from None
    return StopIdle(after=after, below=_a_part(percent), only_warns=only_warns)


def _long_enough(after: timedelta) -> timedelta:
    given = f"{after.total_seconds():g}s"
    if after < LEAST_AFTER:
        remedy = f"give at least {format_duration(LEAST_AFTER)}"
        raise InvalidValue("stop_idle", given, "is too short", remedy)
    if after > MAX_DURATION:
        raise InvalidValue("stop_idle", given, "is longer than a hundred years", "leave it out")
    return after


def _a_part(below: float) -> float:
    if not 0 < below <= 100:
        remedy = "give a percentage above 0, up to 100"
        problem = "is not a percentage of the use of GPUs"
        raise InvalidValue("stop_idle", f"{below:g}%", problem, remedy)
    return below


def check_stop_idle(device: Device | None) -> None:
    """Checks that the use of the accelerators that a job requests is measured.

    Raises:
        InvalidValue: the job requests no GPUs, or parts of them.
    """
    problem = ""
    if device is None:
        problem = "needs GPUs: the job requests none"
    elif device.kind is not DeviceKind.GPU:
        problem = "needs GPUs: the use of TPUs is not measured"
    elif any(is_partition(variant.strip()) for variant in device.variant.split(",")):
        problem = "needs whole GPUs: the driver does not report the use of their parts"
    if problem:
        raise InvalidValue("stop_idle", device or "no device", problem, "leave stop_idle out")


class IdleReport(Frozen):
    """A host's report that the GPUs of its task have been idle for as long as the job's rule
    (`StopIdle`) requires to end the job or to warn.
    """

    since: datetime
    #: The highest use of any of the GPUs since `since`, in percent.
    peak_percent: float


class IdleWatch(Frozen):
    """The idleness of one program's GPUs, by the measurements of its host. Times are in seconds
    since 1970.
    """

    #: The time since which all GPUs have been idle; None if a GPU is in use, or if nothing was
    #: measured yet.
    since: float | None = Field(default=None, ge=0)
    #: The time of the last measurement, in seconds since 1970; 0 before the first one.
    measured: float = Field(default=0.0, ge=0)
    #: The highest use of any of the GPUs since `since`, in percent.
    peak_percent: float = 0.0

    def with_use(self, now: float, busiest_percent: float, rule: StopIdle) -> Self:
        """Returns the watch after a measurement.

        Args:
            busiest_percent: the use of the GPU that is used most.
        """
        if busiest_percent >= rule.below:
            return type(self)(measured=now)
        if self.since is None or not 0 <= now - self.measured <= MAX_GAP:
            return type(self)(since=now, measured=now, peak_percent=busiest_percent)
        peak = max(self.peak_percent, busiest_percent)
        return type(self)(since=self.since, measured=now, peak_percent=peak)

    def report(self, rule: StopIdle) -> IdleReport | None:
        """Returns the report to the job; None while the GPUs have not been idle long enough."""
        if self.since is None or self.measured - self.since < rule.after.total_seconds():
            return None
        since = datetime.fromtimestamp(self.since, UTC)
        return IdleReport(since=since, peak_percent=self.peak_percent)


def idle_text(rule: StopIdle, report: IdleReport) -> str:
    """Returns the text about a running task that has reported that its GPUs are idle."""
    ends = (
        "" if rule.only_warns else ": the task, or its gang if that holds for all its tasks, ends"
    )
    return (
        f"its GPUs have been used less than {rule.below:g}% for {format_duration(rule.after)}, at"
        f" most {report.peak_percent:g}%{ends} (--stop-idle {rule})"
    )


def idle_reason(rule: StopIdle, reports: list[IdleReport]) -> str:
    """Returns why a job ends whose tasks have all reported that their GPUs are idle.

    Args:
        reports: those of all tasks of a gang.
    """
    peak = max(each.peak_percent for each in reports)
    whose = "its GPUs were" if len(reports) == 1 else f"the GPUs of its {len(reports)} tasks were"
    return (
        f"ended as idle: {whose} used less than {rule.below:g}% for {format_duration(rule.after)},"
        f" at most {peak:g}% (--stop-idle {rule})"
    )
