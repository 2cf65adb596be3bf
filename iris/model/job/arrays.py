"""Arrays: jobs with a task for each index of a set, and perhaps a row of parameters for each. Pure.

An index is the number of the task wherever a task is named: `train:17`. So an array that has only
the tasks 3 and 17 of an earlier one gives each of them the same index, row and size as before.
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

#: The most tasks of an array.
MAX_TASKS = 10_000
#: The most tasks that one workflow starts. A larger array has parts of this size.
PART_TASKS = 250
#: The most characters of a task's reason that the job of a large array keeps; the task's own
#: workflow has all of it. The status of ten thousand tasks is one answer to a query, which may have
#: 2 MiB after compression.
MAX_KEPT_REASON = 100
#: The largest index.
MAX_INDEX = 999_999
#: The file of an array's table, which has one JSON object of texts in each line. The line's number
#: is the task's index.
ROWS_FILE = "rows.jsonl"
#: Memo of a job whose tasks do not have the numbers from 0 without gaps.
MEMO_ARRAY = "iris_array"
#: The kind of the workflows of parts, as those in `iris.model.names`.
KIND_PART = "part"
#: The place for the task's index in a command. No column of a table may have this name.
INDEX = "index"
ENV_ARRAY_INDEX = "IRIS_ARRAY_INDEX"
ENV_ARRAY_COUNT = "IRIS_ARRAY_COUNT"
_ENV_PARAM = "IRIS_PARAM_"
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?")
_LIMIT = re.compile(r"(.*)%([^%/]*)", re.DOTALL)
#: `{{name}}`, or `{name}` that is not a variable of a shell.
_PLACE = re.compile(r"\{\{([^{}]*)\}\}|(?<!\$)\{([^{}]*)\}")
_REMEDY = (
    "write indices such as 0-99, 0-99:10 or 1,3,7, and perhaps %10 for at most 10 tasks at once"
)


class Array(Frozen):
    """The tasks of an array."""

    #: The indices of the tasks, as `format_indices` writes them.
    indices: str
    #: The number of tasks of the array. A job that runs only some of them again has fewer.
    size: int = Field(ge=1)
    #: The most tasks that have hosts or wait for hosts at the same time. None: as many as the
    #: cluster allows.
    limit: int | None = Field(None, ge=1)
    #: The rows of the tasks' parameters (`ROWS_FILE`). None: there are none, or they are the
    #: arguments of a function.
    table: Bundle | None = None
    #: The names of the parameters.
    columns: tuple[str, ...] = ()
    #: The most tasks that one workflow starts. It is stored with the job, which an other version
    #: may continue.
    part: int = Field(PART_TASKS, ge=1, le=PART_TASKS)

    @field_validator("indices")
    @classmethod
    def _are_indices(cls, indices: str) -> str:
        parse_indices(indices)
        return indices

    def has_parts(self, tasks: int) -> bool:
        """Returns whether so many tasks run in parts, each with a workflow of its own."""
        return tasks > self.part

    def only(self, indices: Iterable[int]) -> "Array":
        """Returns the array with only these tasks."""
        return self.model_copy(update={"indices": format_indices(indices)})


def check_array(array: Array, replicas: int, *, coscheduled: bool) -> None:
    """Checks that a job can have this array.

    Raises:
        InvalidValue: its tasks are not that many, or are a gang.
    """
    if coscheduled:
        remedy = "leave one of them out: tasks of an array start one by one"
        raise InvalidValue("array", array.indices, "does not go with coscheduling", remedy)
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
    """Returns the task with this index, if there is one. The tasks are in the order of their
    indices.
    """
    place = bisect_left(tasks, index, key=lambda task: task.index)
    return tasks[place] if place < len(tasks) and tasks[place].index == index else None


def split_limit(text: str) -> tuple[str, int | None]:
    """Splits `%N` from the text of an array.

    Raises:
        InvalidValue: N is not a number of tasks.
    """
    found = _LIMIT.fullmatch(text)
    if found is None:
        return text, None
    return found[1], check_limit(found[2], text)


def check_limit(limit: int | str, shown: str) -> int:
    """Returns the most tasks at once.

    Args:
        shown: what the user wrote.

    Raises:
        InvalidValue: it is not a number of tasks.
    """
    if not str(limit).isascii() or not str(limit).isdecimal() or int(limit) < 1:
        raise InvalidValue(
            "array",
            shown,
            f"has {limit!r} as its most tasks at once",
            "write 1 or more after %, such as 0-99%10",
        )
    return int(limit)


def is_indices(text: str) -> bool:
    """Returns whether the text is meant as indices, and not as the name of a file."""
    return re.fullmatch(r"[0-9,:\s-]*", text) is not None


def parse_indices(text: str) -> tuple[int, ...]:
    """Returns the indices of a text such as `0-99`, `0-99:10` or `1,3,7`, in ascending order.

    Raises:
        InvalidValue: it is not such a text, repeats an index, or has too many.
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
    """Returns the error about an array with too many tasks."""
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
            f"has the index {max(first, last):,}",
            f"the largest index is {MAX_INDEX:,}",
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
    """Returns the shortest text with ranges that `parse_indices` reads as these indices."""
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
    """Returns the id of the workflow of a part of a large array."""
    return f"{cluster}/{KIND_PART}/{job}:{number}"


def param_variable(column: str) -> str:
    """Returns the environment variable of a column."""
    return _ENV_PARAM + re.sub("[^A-Z0-9]", "_", column.upper())


def substituted(word: str, values: Mapping[str, str]) -> str:
    """Returns the word of a command with the values in their places.

    Only the name of a value in braces is a place: other braces, as in JSON or awk, and `${name}` of
    a shell stay as they are. `{{name}}` becomes `{name}`.
    """

    def value(found: re.Match[str]) -> str:
        escaped, name = found.groups()
        if escaped is not None:
            return f"{{{escaped}}}" if escaped in values else found[0]
        return values.get(name, found[0])

    return _PLACE.sub(value, word)


def task_values(index: int, row: Mapping[str, str]) -> dict[str, str]:
    """Returns the values of a task by the names that its command has for them."""
    return {**row, INDEX: str(index)}


def misspelt(command: Iterable[str], columns: Collection[str]) -> Iterator[str]:
    """Yields a sentence for each name in braces that resembles a column. The command may mean it:
    it is no error.
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
