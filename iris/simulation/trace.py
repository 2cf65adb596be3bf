"""A workload: the gangs that asked for hosts, and the slices of the same time.

It is stored as JSON lines: one `Heading`, then one line for each gang and each slice. It has no
names of jobs, no commands and no environments.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError, model_validator

from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.host.resources import Resources
from iris.model.job.spec import Band
from iris.model.slice.provisioning import SliceFault
from iris.usage.records import UseEnd

#: The longest time in a trace, in seconds: ten years. The simulation of a longer time would take
#: too long.
LONGEST = 10 * 365.25 * 86_400
#: The first and the last year that the recorded time may contain, so that every time of a
#: simulation is a valid date.
FIRST_YEAR, LAST_YEAR = 1970, 2500
Seconds = Annotated[float, Field(ge=0, le=LONGEST)]
#: A time in seconds after the beginning of the trace; negative if it is before the beginning.
Moment = Annotated[float, Field(ge=-LONGEST, le=LONGEST)]


class Run(Frozen):
    """An attempt that ended by itself: its program ended, its set-up failed, or its job was
    cancelled. Times are in seconds.
    """

    #: The time from the placement until the program starts.
    set_up: Seconds = 0.0
    #: The time from the start of the program until its hosts are free.
    seconds: Seconds
    #: How the attempt ends: SUCCEEDED, FAILED, CANCELLED or SET_UP_FAILED.
    end: UseEnd = UseEnd.SUCCEEDED


class Heading(Frozen):
    """The first line of a trace."""

    kind: Literal["trace"] = "trace"
    #: The version of the format.
    version: Literal[1] = 1
    #: The beginning of the recorded time. The other lines of the trace give times in seconds after
    #: it.
    begins: AwareDatetime
    #: The end of the recorded time. Attempts that ran at this time are cut off here.
    ends: AwareDatetime
    #: The origin of the trace, for display.
    source: str = ""

    @model_validator(mode="after")
    def _is_a_time(self) -> Self:
        if self.ends < self.begins:
            raise ValueError("the time `ends` is before the time `begins`")
        years = (self.begins.year, self.ends.year)
        if years[0] < FIRST_YEAR or years[1] > LAST_YEAR:
            raise ValueError(f"begins and ends are not in the years {FIRST_YEAR} to {LAST_YEAR}")
        return self


class GangTrace(Frozen):
    """A gang of a workload. A task that is placed by itself is a gang of one task."""

    kind: Literal["gang"] = "gang"
    #: Identifies the gang in this trace.
    id: str = Field(max_length=300)
    #: Identifies the job of the gang; empty if the gang is the whole job.
    job: str = ""
    user: str
    band: Band = Band.INTERACTIVE
    #: The time at which the gang first asked for hosts, in seconds after the beginning of the
    #: trace.
    at: Seconds
    #: The time from which the scheduler counts how long the gang waits: the job's submission, in
    #: seconds after the beginning of the trace. None means the same time as `at`.
    queued_at: Moment | None = None
    #: The resources that the gang needs on each of its hosts. This field, `tasks`,
    #: `tasks_per_host`, `group_by` and `groups` mean the same as in
    #: `iris.model.job.requests.Request`.
    resources: Resources = Resources()
    #: The constraints as texts. The text of a preferred constraint begins with a question mark.
    constraints: tuple[str, ...] = ()
    tasks: int = Field(default=1, ge=1)
    tasks_per_host: int = Field(default=1, ge=1)
    group_by: str | None = None
    groups: int = Field(default=1, ge=1)
    #: The tags of the job, as `KEY=VALUE`, for quotas.
    tags: tuple[str, ...] = ()
    #: The amount of each named limit of the cluster that the gang occupies while it has hosts.
    limits: dict[str, int] = Field(default_factory=dict)
    #: The attempts that end by themselves, in their order. After a failed attempt, the next one
    #: follows; after the last attempt, the gang has ended.
    runs: tuple[Run, ...] = Field(min_length=1)
    #: The scheduling timeout in seconds; None or 0 means that the gang waits without a limit.
    patience: Seconds | None = None
    #: How long the gang waited for its first hosts in the recorded past, in seconds; None if that
    #: is not known.
    waited: Seconds | None = None

    @model_validator(mode="after")
    def _is_a_gang(self) -> Self:
        if self.tasks > 1 and self.group_by is None:
            raise ValueError(
                "a gang on several hosts needs `group_by`, the host attribute that has the same"
                " value on all hosts of one of the gang's `groups`"
            )
        if self.tasks % self.groups:
            raise ValueError(f"{self.tasks} hosts cannot be split evenly over {self.groups} groups")
        return self


class SliceTrace(Frozen):
    """A slice of the recorded past. Times are in seconds after the beginning of the trace."""

    kind: Literal["slice"] = "slice"
    #: Identifies the slice in this trace.
    id: str
    group: str
    zone: str = ""
    requested: Moment
    #: When the slice first accepted work; None if it never did.
    ready: Moment | None = None
    gone: Moment
    #: Why the slice could not be created or was lost; None if it was created and was not lost.
    fault: SliceFault | None = None
    #: True if the slice still existed at the end of the trace.
    open: bool = False

    @model_validator(mode="after")
    def _is_in_order(self) -> Self:
        if (
            not self.requested
            <= (self.requested if self.ready is None else self.ready)
            <= self.gone
        ):
            raise ValueError("the times `requested`, `ready` and `gone` are not in ascending order")
        return self


class Trace(NamedTuple):
    """A workload: its gangs in the order of arrival, and the slices that existed in its time."""

    heading: Heading
    gangs: tuple[GangTrace, ...]
    slices: tuple[SliceTrace, ...] = ()

    @property
    def seconds(self) -> float:
        """The length of the recorded time."""
        return (self.heading.ends - self.heading.begins).total_seconds()

    @classmethod
    def of(
        cls, heading: Heading, gangs: Iterable[GangTrace], slices: Iterable[SliceTrace] = ()
    ) -> "Trace":
        """Returns the trace with its lines in order."""
        return cls(
            heading,
            tuple(sorted(gangs, key=lambda each: (each.at, each.id))),
            tuple(sorted(slices, key=lambda each: (each.requested, each.id))),
        )


def first_problem(error: ValidationError) -> str:
    """Returns where the first problem is, and what it is."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    problem = first["msg"].removeprefix("Value error, ")
    return f"{where}: {problem}" if where else problem


_Line = Heading | GangTrace | SliceTrace
_LINE = TypeAdapter[_Line](Annotated[_Line, Field(discriminator="kind")])


def to_lines(trace: Trace) -> Iterator[str]:
    """Yields the lines of a trace, each with its line break."""
    lines: tuple[_Line, ...] = (trace.heading, *trace.gangs, *trace.slices)
    for each in lines:
        fields = each.model_dump_json(exclude_defaults=True)[1:]
        yield f'{{"kind":"{each.kind}",{fields}\n'


def from_lines(lines: Iterable[str], name: str) -> Trace:
    """Reads a trace.

    Args:
        name: the name of the file, for messages.

    Raises:
        InvalidValue: a line is not one of a trace, two gangs have one id, or the heading is missing
            or not alone.
    """
    heading: Heading | None = None
    gangs: list[GangTrace] = []
    ids: set[str] = set()
    slices: list[SliceTrace] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            each = _LINE.validate_json(line)
        except ValidationError as error:
            problem = f"is not a line of a trace: {first_problem(error)}"
            remedy = "export one with: iris usage --trace FILE"
            raise InvalidValue("workload", f"{name}, line {number}", problem, remedy) from None
        match each:
            case Heading():
                if heading is not None:
                    problem, remedy = "has a second heading", "give one trace"
                    raise InvalidValue("workload", f"{name}, line {number}", problem, remedy)
                heading = each
            case GangTrace():
                if each.id in ids:
                    problem, remedy = (
                        f"has the id of another gang: {each.id!r}",
                        "give each gang its own id",
                    )
                    raise InvalidValue("workload", f"{name}, line {number}", problem, remedy)
                ids.add(each.id)
                gangs.append(each)
            case SliceTrace():
                slices.append(each)
    if heading is None:
        remedy = "begin it with a line of kind trace, with begins and ends"
        raise InvalidValue("workload", name, "has no heading", remedy)
    return Trace.of(heading, gangs, slices)
