"""Array jobs: a job with one task for each index of a set, and optionally a row of parameters for
each task.

The index is the task's number everywhere: `train:17`. So if only the tasks 3 and 17 of an array run
again, each of them has the same index, row and array size as before.
"""

import difflib
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from pydantic import Field, field_validator

from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.job.bundles import Bundle

#: The limit on tasks of an array.
MAX_TASKS = 10_000
#: The limit on tasks that one workflow starts. A larger array is split into parts of this size.
PART_TASKS = 250
#: The limit on characters of a task's reason that the workflow of a large array keeps. The task's
#: own workflow keeps the whole reason. The status of ten thousand tasks has to fit into one answer
#: to a query, which is limited to 2 MiB after compression.
MAX_KEPT_REASON = 100
#: The largest index of a task.
MAX_INDEX = 999_999
#: The file with the rows of an array's table. Each line is a JSON object of texts, and the number
#: of the line is the task's index.
ROWS_FILE = "rows.jsonl"
#: The memo key that marks a job whose tasks are not numbered from 0 without gaps.
MEMO_ARRAY = "iris_array"
#: The kind of a workflow that runs a part of an array. `iris.model.names` contains the other kinds
#: of workflows.
KIND_PART = "part"
#: The name that stands for the task's index in a command. No column of a table may have this name.
INDEX = "index"
ENV_ARRAY_INDEX = "IRIS_ARRAY_INDEX"
ENV_ARRAY_COUNT = "IRIS_ARRAY_COUNT"
_ENV_PARAM = "IRIS_PARAM_"
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?")
_LIMIT = re.compile(r"(.*)%([^%/]*)", re.DOTALL)
#: Matches `{{name}}`, and `{name}` that is not a shell variable (`${name}`).
_PLACE = re.compile(r"\{\{([^{}]*)\}\}|(?<!\$)\{([^{}]*)\}")
_REMEDY = (
    "write indices such as 0-99, 0-99:10 or 1,3,7, and perhaps %10 for at most 10 tasks at once"
)


class Array(Frozen):
    """The tasks of an array job."""

    #: The indices of the tasks, in the form of `format_indices`.
    indices: str
    #: The number of tasks of the whole array. A job that reruns only some tasks of the array has
    #: fewer tasks.
    size: int = Field(ge=1)
    #: The limit on tasks that have hosts or wait for hosts at the same time. None means no limit.
    limit: int | None = Field(None, ge=1)
    #: The bundle with the rows of parameters (`ROWS_FILE`). It is None if the tasks have no
    #: parameters, or get them as arguments of a function.
    table: Bundle | None = None
    #: The names of the parameters.
    columns: tuple[str, ...] = ()
    #: The limit on tasks that one workflow starts. The job stores it, because another version of
    #: Iris may continue the job.
    part: int = Field(PART_TASKS, ge=1, le=PART_TASKS)

    @field_validator("indices")
    @classmethod
    def _are_indices(cls, indices: str) -> str:
        parse_indices(indices)
        return indices

    def has_parts(self, tasks: int) -> bool:
        """Returns whether this many tasks run in parts, each with a workflow of its own."""
        return tasks > self.part

    def only(self, indices: Iterable[int]) -> "Array":
        """Returns the array with only these tasks."""
        return self.model_copy(update={"indices": format_indices(indices)})


def check_array(array: Array, replicas: int, *, coscheduled: bool) -> None:
    """Checks that a job with this many tasks can have this array.

    Raises:
        InvalidValue: the array has another number of tasks, or the tasks are a gang.
    """
    if coscheduled:
        remedy = (
            "leave out array or coscheduling: the tasks of an array start one by one, not as a gang"
        )
        raise InvalidValue("array", array.indices, "cannot be combined with coscheduling", remedy)
    tasks = len(parse_indices(array.indices))
    if tasks != replicas:
        remedy = "leave replicas out: an array has a task for each index"
        raise InvalidValue(
            "replicas", replicas, f"differs from the {tasks:,} tasks of the array", remedy
        )


class _Numbered(Protocol):
    @property
    def index(self) -> int: ...


Task = TypeVar("Task", bound=_Numbered)


def find_task(tasks: Sequence[Task], index: int) -> Task | None:
    """Returns the task with this index, or None. The tasks must be sorted by index."""
    place = bisect_left(tasks, index, key=lambda task: task.index)
    return tasks[place] if place < len(tasks) and tasks[place].index == index else None


def split_limit(text: str) -> tuple[str, int | None]:
    """Splits the limit `%N` from the text of an array.

    Raises:
        InvalidValue: N is not a number of tasks.
    """
    found = _LIMIT.fullmatch(text)
    if found is None:
        return text, None
    return found[1], check_limit(found[2], text)


def check_limit(limit: int | str, shown: str) -> int:
    """Returns the limit on tasks that run at once.

    Args:
        shown: the text that the user wrote, for the error.

    Raises:
        InvalidValue: the limit is not a number of tasks.
    """
    if not str(limit).isascii() or not str(limit).isdecimal() or int(limit) < 1:
        raise InvalidValue(
            "array",
            shown,
            f"has {limit!r} as the limit on tasks at once",
            "write 1 or more after %, such as 0-99%10",
        )
    return int(limit)


def is_indices(text: str) -> bool:
    """Returns whether the user means indices, and not the name of a file."""
    return re.fullmatch(r"[0-9,:\s-]*", text) is not None


def parse_indices(text: str) -> tuple[int, ...]:
    """Returns the indices in a text such as `0-99`, `0-99:10` or `1,3,7`, in ascending order.

    Raises:
        InvalidValue: the text has another form, repeats an index, or has too many indices.
    """
    found: list[int] = []
    for part in text.split(","):
        indices = _range(part.strip(), text)
        if len(found) + len(indices) > MAX_TASKS:
            raise too_many(text, len(found) + len(indices))
        found += indices
    if len(set(found)) < len(found):
        twice = next(index for index in sorted(found) if found.count(index) > 1)
        raise InvalidValue(
            "array", text, f"has the index {twice} twice", "give each task an index of its own"
        )
    return tuple(sorted(found))


def too_many(text: str, tasks: int) -> InvalidValue:
    """Returns the error for an array with too many tasks."""
    remedy = (
        f"an array has at most {MAX_TASKS:,}: let each task do several of the steps, or submit"
        " several arrays"
    )
    return InvalidValue("array", text, f"has {tasks:,} tasks", remedy)


def _range(part: str, text: str) -> range:
    found = _RANGE.fullmatch(part) if part.isascii() else None
    if found is None:
        problem = f"has {part!r}, which is not an index or a range" if part else "lacks an index"
        raise InvalidValue("array", text, problem, _REMEDY)
    first, last, step = (None if number is None else int(number[:20]) for number in found.groups())
    assert first is not None
    last = first if last is None else last
    if max(first, last) > MAX_INDEX:
        raise InvalidValue(
            "array",
            text,
            f"has the index {max(first, last):,}, which is too large",
            f"use indices up to {MAX_INDEX:,}",
        )
    if last < first:
        raise InvalidValue(
            "array",
            text,
            f"has the range {part}, which ends before it begins",
            f"write {last}-{first}",
        )
    if step == 0:
        raise InvalidValue(
            "array", text, f"has the range {part} with the step 0", "give 1 or more as the step"
        )
    return range(first, last + 1, step or 1)


def format_indices(indices: Iterable[int]) -> str:
    """Returns the shortest text with ranges that `parse_indices` parses to these indices."""
    return ",".join(_ranges(sorted(indices)))


def _ranges(indices: Sequence[int]) -> Iterator[str]:
    at = 0
    while at < len(indices):
        end = at + 1
        step = indices[end] - indices[at] if end < len(indices) else 1
        while end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        if end - at < 3 and not (step == 1 and end - at == 2):
            yield str(indices[at])
            at += 1
            continue
        yield f"{indices[at]}-{indices[end - 1]}" + (f":{step}" if step > 1 else "")
        at = end


def part_workflow(cluster: str, job: str, number: int) -> str:
    """Returns the id of the workflow that runs a part of a large array."""
    return f"{cluster}/{KIND_PART}/{job}:{number}"


def param_variable(column: str) -> str:
    """Returns the environment variable in which a task gets its value of a column."""
    return _ENV_PARAM + re.sub("[^A-Z0-9]", "_", column.upper())


def substituted(word: str, values: Mapping[str, str]) -> str:
    """Returns a word of a command with each `{name}` replaced by its value.

    Only the name of a value in braces is replaced. Other braces, as in JSON or awk, and shell
    variables (`${name}`) stay unchanged. `{{name}}` becomes `{name}`.
    """

    def value(found: re.Match[str]) -> str:
        escaped, name = found.groups()
        if escaped is not None:
            return f"{{{escaped}}}" if escaped in values else found[0]
        return values.get(name, found[0])

    return _PLACE.sub(value, word)


def task_values(index: int, row: Mapping[str, str]) -> dict[str, str]:
    """Returns the values that a task's command can refer to, by name."""
    return {**row, INDEX: str(index)}


def misspelt(command: Iterable[str], columns: Collection[str]) -> Iterator[str]:
    """Yields a warning for each name in braces that is similar to a column. It is not an error,
    because the command may need these braces.
    """
    for word in command:
        for escaped, name in _PLACE.findall(word):
            if escaped or not name.isidentifier() or name in (*columns, INDEX):
                continue
            near = difflib.get_close_matches(
                name.lower(), {each.lower(): each for each in columns}, n=1, cutoff=0.75
            )
            if near:
                column = next(each for each in columns if each.lower() == near[0])
                yield (
                    f"{{{name}}} in the command is not a column of the table and stays as it is;"
                    f" did you mean {{{column}}}?"
                )
