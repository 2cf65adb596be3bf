"""Reads the lines of `iris submit --batch`. Each line has the options and the command of one job,
quoted as for a shell.
"""

import hashlib
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from iris.cli.submit.job_from_options import plan_job
from iris.cli.submit.options import job_command, parse_words
from iris.client.build.draft import PlannedJob
from iris.client.jobs.submit.dependencies import among
from iris.model.errors import InvalidValue, IrisError
from iris.model.job.spec import JobSpec

if TYPE_CHECKING:
    from iris.client.build.parent import EnclosingJob

#: The maximum number of invalid lines that one error lists.
MAX_PROBLEMS = 20


@dataclass(frozen=True)
class BatchJob:
    """The job that one line of a batch describes.

    Attributes:
        line: the number of the line, from 1.
        key: identifies the job. If the batch is submitted again, the line has the same key, so that
            its job is not started twice.
    """

    line: int
    planned: PlannedJob
    key: str

    @property
    def spec(self) -> JobSpec:
        return self.planned.spec


def decoded(content: bytes) -> str:
    """Returns the text of a batch.

    Raises:
        click.UsageError: the text is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise click.UsageError(f"line {line} of the batch is not UTF-8") from None


def jobs_of(
    text: str,
    given: Mapping[str, Any],
    *,
    batch_key: str,
    shares_files: bool,
    within: "EnclosingJob | None" = None,
) -> list[BatchJob]:
    """Returns the jobs of a batch. Skips empty lines and lines that begin with `#`.

    Args:
        given: the options of the command itself, which are the defaults of each line. A line adds
            its values to the values of a repeatable option.
        batch_key: a part of the jobs' keys. Another key submits the same lines again.
        shares_files, within: as for `plan`.

    Raises:
        click.UsageError: lines are wrong, or there are none; the message lists them.
    """
    batch = _Batch(batch_key)
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            options = _options_of(line, given)
            planned = plan_job(options, shares_files=shares_files, within=within)
            batch.add(number, planned, named=options["name"] is not None)
        except click.UsageError as error:
            problems.append(f"line {number}: {error.format_message()}")
        except IrisError as error:
            problems.append(f"line {number}: {error}")
    specs, late = among([(f"line {job.line}", job.spec) for job in batch.jobs])
    _refuse([*problems, *late])
    if not batch.jobs:
        raise click.UsageError(
            "the batch has no jobs; write the options and the command of one on each line"
        )
    return [
        replace(job, planned=job.planned.with_spec(spec))
        for job, spec in zip(batch.jobs, specs, strict=True)
    ]


class _Batch:
    """Collects the jobs of a batch, line by line."""

    def __init__(self, batch_key: str) -> None:
        self.jobs: list[BatchJob] = []
        self._batch_key = batch_key
        #: The number of jobs read so far with each content. It distinguishes equal jobs, so that
        #: each of them gets its own key.
        self._same: Counter[str] = Counter()
        #: The number of the line that describes each job, by the job's name.
        self._lines: dict[str, int] = {}

    def add(self, line: int, planned: PlannedJob, *, named: bool) -> None:
        """Adds the job of a line. A job without a name is named after its key, so that a repeated
        batch gives it the same name.
        """
        spec = planned.spec
        if named and spec.name in self._lines:
            problem = f"is the name of line {self._lines[spec.name]}"
            raise InvalidValue("name", spec.name, problem, "give each job its own")
        content = _content(spec, named=named, batch_key=self._batch_key)
        key = hashlib.sha256(f"{self._same[content]} {content}".encode()).hexdigest()
        self._same[content] += 1
        if not named:
            spec = spec.model_copy(update={"name": f"job-{key[:12]}"})
        self._lines[spec.name] = line
        self.jobs.append(BatchJob(line, planned.with_spec(spec), key))


def _refuse(problems: Sequence[str]) -> None:
    """Raises the error that lists the problems, if there are any."""
    if not problems:
        return
    more = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
    raise click.UsageError("\n".join(["nothing was submitted:", *problems[:MAX_PROBLEMS], *more]))


def line_ranges(numbers: Sequence[int]) -> str:
    """Returns ascending line numbers as ranges, such as `lines 1-3, 7`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    noun = "line" if len(numbers) == 1 else "lines"
    return f"{noun} " + ", ".join(
        str(first) if first == last else f"{first}-{last}" for first, last in ranges
    )


def _options_of(line: str, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise click.UsageError(f"the quotes are wrong: {str(error).lower()}") from None
    if words[:1] == ["iris"]:
        raise click.UsageError("begins with 'iris'; write only the options and the command")
    repeatable = {param.name for param in job_command.params if param.multiple}
    defaults = {name: value for name, value in given.items() if name not in repeatable}
    try:
        params = parse_words(words, defaults)
    except click.NoSuchOption as error:
        hint = "" if "--" in words else "; put -- before the command"
        raise click.UsageError(f"{error.format_message()}{hint}") from None
    return {
        name: (*given.get(name, ()), *value) if name in repeatable else value
        for name, value in params.items()
    }


def _content(spec: JobSpec, *, named: bool, batch_key: str) -> str:
    """Returns the text that identifies a line: all options other than its files, which may have
    changed when a batch is repeated.

    Defaults are left out, so that a version with further options makes the same text.
    """
    left_out = {"bundle", "parent"} if named else {"bundle", "parent", "name"}
    if spec.parent is not None:
        # All attempts of one run of the parent submit the same batch.
        batch_key = f"{batch_key} {spec.parent.run_id}"
    return f"{batch_key} {spec.model_dump_json(exclude=left_out, exclude_defaults=True)}"
