"""Dependencies: the jobs that a job waits for before it requests hosts, and what their ends mean
for it.

A dependency names one run of a job. `submit` looks the run up, so that a later job of the same name
does not count. Two jobs cannot wait for each other, because a dependency can only name a run that
began earlier.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

from pydantic import Field

from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.states import JobState

#: The limit on dependencies of a job. They are part of its specification, which each of its tasks
#: gets.
MAX_DEPENDENCIES = 100
#: The limit on dependencies that the reason of a waiting job names.
SHOWN = 3
#: The end state of each run that has ended, by run id. None stands for a run that Temporal no
#: longer knows.
Ends = Mapping[str, JobState | None]


class Condition(StrEnum):
    """The way in which a run must end. Every end except SUCCEEDED is a failure, including a
    cancellation.
    """

    OK = "ok"
    ANY = "any"
    FAIL = "fail"


class Dependency(Frozen):
    """A run of another job that must end first."""

    #: The id of the job that must end first.
    job: str
    on: Condition = Condition.OK
    #: The number of the run among the job's runs, as the user gave it. None means the latest run at
    #: the submission.
    number: int | None = None
    #: The first run id of the other job's workflow. It is empty until `submit` has looked it up.
    run_id: str = ""
    #: True if the user wrote a job name without a user, in a program that runs in a job. Such a
    #: name is first looked up among the children of that job. `bare` becomes False when `submit`
    #: looks the job up.
    bare: bool = Field(default=False, exclude=True)

    def __str__(self) -> str:
        return f"{self.name} to {_WHAT[self.on]}"

    @property
    def name(self) -> str:
        return self.job if self.number is None else f"{self.job}#{self.number}"

    def allows(self, end: JobState | None) -> bool:
        """Returns whether the job may start after the run ended in this state.

        Args:
            end: the state; None if Temporal no longer knows the run.
        """
        match self.on:
            case Condition.ANY:
                return True
            case Condition.OK:
                return end is JobState.SUCCEEDED
            case Condition.FAIL:
                return end is not None and end is not JobState.SUCCEEDED


_WHAT = {Condition.OK: "succeed", Condition.ANY: "end", Condition.FAIL: "fail"}


def parse_dependencies(
    text: str, on: Condition, user: str, *, in_job: bool = False
) -> tuple[Dependency, ...]:
    """Parses `JOB[,JOB…]`. Each JOB is `NAME`, `USER/NAME` or `USER/NAME/CHILD`, or one run of it:
    `NAME#2`.

    Args:
        user: the owner of a job without a user.
        in_job: whether the program runs in a job. A bare name can then mean a child of that job.

    Raises:
        InvalidValue: a part has another form.
    """
    parsed = (_parsed(part.strip(), user, on) for part in text.split(","))
    return tuple(each.model_copy(update={"bare": in_job and bare}) for bare, each in parsed)


def _parsed(text: str, user: str, on: Condition) -> tuple[bool, Dependency]:
    """Parses one dependency. Returns whether its name is bare, and the dependency."""
    job, mark, number = text.partition("#")
    if mark and re.fullmatch("[1-9][0-9]{0,8}", number) is None:
        raise InvalidValue(
            "after", text, "does not name a run", "write NAME#NUMBER, as `iris jobs --all` shows it"
        )
    if ":" in job:
        remedy = f"write {job.partition(':')[0]}, for all of its tasks"
        raise InvalidValue("after", text, "is a task; a job waits for whole jobs", remedy)
    path = job.split("/") if "/" in job else [user, job]
    for part in path:
        names.check_name("after", part)
    return "/" not in job, Dependency(
        job="/".join(path), on=on, number=int(number) if mark else None
    )


def check_dependencies(after: Sequence[Dependency]) -> None:
    """Checks that the dependencies do not exclude each other.

    Raises:
        InvalidValue: the job must start after the success and after the failure of the same run.
    """
    succeeds = {(each.job, each.number) for each in after if each.on is Condition.OK}
    for each in after:
        if each.on is Condition.FAIL and (each.job, each.number) in succeeds:
            why = "cannot both succeed and fail, so the job would never start"
            raise InvalidValue("after", each.name, why, "use --after-any to wait for its end")


def is_met(after: Sequence[Dependency], ends: Ends) -> bool:
    """Returns whether all dependencies allow the job to start."""
    return all(each.run_id in ends and each.allows(ends[each.run_id]) for each in after)


def refusal(after: Sequence[Dependency], ends: Ends) -> str:
    """Returns why the job can never start; empty if it may start, now or later."""
    for each in after:
        if each.run_id in ends and not each.allows(end := ends[each.run_id]):
            known = f"that ended {end}" if end is not None else "how that ended is no longer known"
            return f"it starts only if {each.name} {_WHAT[each.on]}s, and {known}"
    return ""


def waiting_for(after: Sequence[Dependency], ends: Ends) -> str:
    """Returns the reason of a waiting job, such as `waits for ada/train to succeed`."""
    parts = [str(each) for each in after if each.run_id not in ends]
    return f"waits for {_listed(parts)}"


def listed(after: Sequence[Dependency], ends: Ends) -> str:
    """Returns the dependencies for a column of a list, such as `after ada/train`."""
    parts = [each.name for each in after if each.run_id not in ends]
    return f"after {_listed(parts)}"


def _listed(parts: Sequence[str]) -> str:
    shown = [*parts[:SHOWN], *([f"{len(parts) - SHOWN} more"] if len(parts) > SHOWN else [])]
    return " and ".join([part for part in (", ".join(shown[:-1]), shown[-1]) if part])
