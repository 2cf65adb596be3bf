"""Makes the array of a job from indices, from the file of a table, or from rows of a Python
program.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from iris.model.errors import InvalidValue
from iris.model.job.array_tables import MAX_TABLE, Table, check_params, parse_table
from iris.model.job.arrays import (
    Array,
    check_limit,
    format_indices,
    is_indices,
    parse_indices,
    split_limit,
)


class GivenArray(NamedTuple):
    """The array of a job that is not submitted yet. Its table of rows is not in the store yet."""

    array: Array
    #: The rows of the array. None if the array consists only of indices.
    table: Table | None = None


def parse_array(text: str) -> GivenArray:
    """Returns the array of a text such as `0-99%10` or `params.csv%10`. Reads the file.

    Raises:
        InvalidValue: the text is neither indices nor a file with a table.
    """
    rest, limit = (text, None) if Path(text).is_file() else split_limit(text)
    if is_indices(rest):
        return GivenArray(_array(parse_indices(rest), limit))
    try:
        with Path(rest).open("rb") as file:
            content = file.read(MAX_TABLE + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        remedy = "write indices such as 0-99%10, or the path of a .csv, .tsv or .jsonl file"
        raise InvalidValue("array", rest, f"cannot be read: {reason}", remedy) from None
    table = parse_table(rest, content)
    return GivenArray(_array(range(len(table.rows)), limit, table.columns), table)


def array_of(
    given: str | Iterable[int] | None,
    params: Sequence[Mapping[str, Any]] | None,
    max_running: int | None,
) -> Array | None:
    """Returns the array that a Python program asks for. Returns None if it asks for no array.

    Raises:
        InvalidValue: an option is not valid, or the options exclude each other.
    """
    if given is not None and params is not None:
        raise InvalidValue(
            "array",
            given,
            "does not go with params, which has a row for each task",
            "give one of them",
        )
    if given is None and params is None:
        if max_running is not None:
            raise InvalidValue(
                "max_running", max_running, "is only for arrays", "give array or params, too"
            )
        return None
    limit = None if max_running is None else check_limit(max_running, f"max_running={max_running}")
    if params is not None:
        check_params(params)
        return _array(range(len(params)), limit, params[0])
    text = given if isinstance(given, str) else ",".join(map(str, given or ()))
    rest, in_text = split_limit(text)
    if limit is not None and in_text not in (None, limit):
        problem = f"differs from the limit after % in the array {text}"
        raise InvalidValue("max_running", limit, problem, "give the limit once")
    return _array(parse_indices(rest), limit or in_text)


def _array(indices: Sequence[int], limit: int | None, columns: Iterable[str] = ()) -> Array:
    return Array(
        indices=format_indices(indices), size=len(indices), limit=limit, columns=tuple(columns)
    )
