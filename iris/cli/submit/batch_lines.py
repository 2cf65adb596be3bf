"""Reads the lines of `iris submit --batch`: each has the options and the command of one job, quoted
as for a shell.
"""

import hashlib
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from iris.cli.submit.options import job_command, make_spec, parse_words
from iris.cli.submit.workspace import files_options
from iris.client.jobs.submit.dependencies import among
from iris.model.errors import InvalidValue, IrisError
from iris.model.job.demand_limits import check_demands
from iris.model.job.spec import JobSpec

if TYPE_CHECKING:
    from iris.client.build.parent import EnclosingJob

#: The most wrong lines that one error lists.
MAX_PROBLEMS = 20


@dataclass(frozen=True)
class BatchJob:
    """The job of one line.

    Args:
        line: the number of the line, from 1.
        options: the line's options, for its files.
        key: identifies the job among all jobs: the same line of a repeated batch has the same key.
    """

    line: int
    spec: JobSpec
    options: dict[str, Any]
    key: str


def decoded(content: bytes) -> str:
    """Returns the text of a batch.

    Raises:
        click.UsageError: it is not UTF-8.
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
    """Returns the jobs of a batch. Skips empty lines and those that begin with `#`.

    Args:
        given: the options of the command itself: each line's defaults. A line adds to those that
            are repeatable.
        batch_key: part of the jobs' keys, to submit the same lines again.
        shares_files, within: as for `make_spec`.

    Raises:
        click.UsageError: lines are wrong, or there are none; the message lists them.
    """
    jobs: list[BatchJob] = []
    problems: list[str] = []
    seen: Counter[str] = Counter()
    named: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            options = _options_of(line, given)
            spec = make_spec(options, shares_files=shares_files, within=within)
            check_demands(spec)
            if options["name"] is not None and spec.name in named:
                raise InvalidValue(
                    "name",
                    spec.name,
                    f"is the name of line {named[spec.name]}",
                    "give each job its own",
                )
        except click.UsageError as error:
            problems.append(f"line {number}: {error.format_message()}")
            continue
        except IrisError as error:
            problems.append(f"line {number}: {error}")
            continue
        content = _content(spec, named=options["name"] is not None, batch_key=batch_key)
        key = hashlib.sha256(f"{seen[content]} {content}".encode()).hexdigest()
        seen[content] += 1
        if options["name"] is None:
            spec = spec.model_copy(update={"name": f"job-{key[:12]}"})
        named[spec.name] = number
        jobs.append(BatchJob(number, spec, files_options(options, within), key))
    specs, late = among([(f"line {job.line}", job.spec) for job in jobs])
    if problems := [*problems, *late]:
        more = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
        raise click.UsageError(
            "\n".join(["nothing was submitted:", *problems[:MAX_PROBLEMS], *more])
        )
    if not jobs:
        raise click.UsageError(
            "the batch has no jobs; write the options and the command of one on each line"
        )
    return [replace(job, spec=spec) for job, spec in zip(jobs, specs, strict=True)]


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
    """Returns what identifies a line: all that it asks for but its files, which may have changed
    when a batch is repeated.

    Defaults are left out, so that a later version with further options finds the same.
    """
    left_out = {"bundle", "parent"} if named else {"bundle", "parent", "name"}
    if spec.parent is not None:
        batch_key = (
            f"{batch_key} {spec.parent.run_id}"  # each attempt of the parent submits the same
        )
    return f"{batch_key} {spec.model_dump_json(exclude=left_out, exclude_defaults=True)}"
