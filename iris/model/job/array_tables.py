"""Reads tables of parameters, from CSV or JSON lines. A table has one row for each task of an
array.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from iris.model.errors import InvalidValue
from iris.model.job.arrays import INDEX, MAX_TASKS, param_variable, too_many
from iris.model.units import KIB, MIB, format_bytes

#: The size limit of a table's file.
MAX_TABLE = 16 * MIB
#: The limits on the columns of a table, and on the bytes of a row. A task gets its row in
#: environment variables, whose size Linux limits.
MAX_COLUMNS, MAX_ROW = 200, 32 * KIB
MAX_COLUMN_NAME = 100


class Table(NamedTuple):
    """The parameters of an array: one row for each task. All values are text, and each row has a
    value for each column.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def lines(self) -> Iterator[str]:
        """Yields each row as a line of JSON, the form that hosts read."""
        for row in self.rows:
            yield json.dumps(dict(zip(self.columns, row, strict=True)), ensure_ascii=False)


def parse_table(name: str, content: bytes) -> Table:
    """Parses the table in a file whose name ends with `.csv`, `.tsv`, `.jsonl` or `.ndjson`.

    Raises:
        InvalidValue: the file has another type, is too large, or has an invalid line.
    """
    kind = name.rpartition(".")[2].lower()
    if kind not in ("csv", "tsv", "jsonl", "ndjson"):
        remedy = (
            "write indices such as 0-99%10, or the path of a .csv, .tsv or .jsonl file with a row"
            " for each task"
        )
        raise InvalidValue("array", name, "is neither indices nor a table", remedy)
    if len(content) > MAX_TABLE:
        size, most = format_bytes(len(content)), format_bytes(MAX_TABLE)
        raise InvalidValue(
            "array", name, f"has {size}", f"use at most {most}: pass paths of large data"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InvalidValue(
            "array", name, f"is not UTF-8 in line {line}", "save it as UTF-8"
        ) from None
    rows = (
        _csv_rows(name, text, "\t" if kind == "tsv" else ",")
        if kind in ("csv", "tsv")
        else _json_rows(name, text)
    )
    return _table(name, rows)


def table_of(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the table of the parameters that a Python program gives.

    Raises:
        InvalidValue: the rows have different names, or a row is not a mapping.
    """
    numbered = ((f"row {number}", row) for number, row in enumerate(rows))
    return _table("params", _uniform("params", numbered))


def check_params(rows: Sequence[Mapping[str, Any]]) -> None:
    """Checks the keyword arguments that a Python program gives for each task of a function.

    Raises:
        InvalidValue: there are no rows or too many, or a row is not a mapping of names to values.
    """
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or not all(isinstance(key, str) for key in row):
            raise InvalidValue(
                "params",
                row,
                f"is row {number}, and not a mapping of names to values",
                "write {'lr': 0.1}",
            )
    _check_number("params", len(rows))


#: A row of texts, and its place in the file for error messages. The first row contains the names of
#: the columns.
_Row = tuple[str, Sequence[str]]


def _csv_rows(name: str, text: str, delimiter: str) -> Iterator[_Row]:
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True
    )
    columns: Sequence[str] | None = None
    try:
        for row in reader:
            if not row or (len(row) == 1 and not row[0].strip() and columns is None):
                continue  # the line is empty
            if columns is None:
                columns = row = [cell.strip() for cell in row]
            if len(row) != len(columns):
                problem = (
                    f"has {len(row)} values for {len(columns)} columns in line {reader.line_num}"
                )
                raise InvalidValue(
                    "array",
                    name,
                    problem,
                    "give each row a value for each column; quote values with commas",
                )
            yield f"line {reader.line_num}", row
    except csv.Error as error:
        raise InvalidValue(
            "array",
            name,
            f"is not CSV in line {reader.line_num}: {error}",
            'quote values as "a, b"',
        ) from None


def _json_rows(name: str, text: str) -> Iterator[_Row]:
    def objects() -> Iterator[tuple[str, Any]]:
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            try:
                # The parser keeps numbers as texts, so that they stay as written.
                yield (
                    f"line {number}",
                    json.loads(
                        line, parse_float=_Number, parse_int=_Number, object_pairs_hook=_unique
                    ),
                )
            except (ValueError, RecursionError) as error:
                remedy = 'write a JSON object in each line, such as {"lr": 0.1}'
                raise InvalidValue(
                    "array", name, f"is not JSON in line {number}: {error}", remedy
                ) from None

    return _uniform(name, objects())


class _Number(str):
    """A JSON number, kept as the text in which it was written."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)!r} is repeated")
    return found


def _uniform(name: str, objects: Iterable[tuple[str, Any]]) -> Iterator[_Row]:
    """Yields the columns of the first object, and then the values of each object."""
    field = "params" if name == "params" else "array"
    columns: tuple[str, ...] = ()
    for where, row in objects:
        if not isinstance(row, Mapping) or not all(isinstance(key, str) for key in row):
            raise InvalidValue(
                field,
                name,
                f"has in {where} no mapping of names to values",
                'write an object: {"lr": 0.1}',
            )
        if not columns:
            columns = tuple(row)
            yield where, columns
        if row.keys() != set(columns):
            lacks, other = (
                [each for each in columns if each not in row],
                [each for each in row if each not in columns],
            )
            problem = (
                f"lacks {lacks[0]!r}" if lacks else f"has {other[0]!r}, which earlier rows lack"
            )
            raise InvalidValue(
                field,
                name,
                f"is not a table: {where} {problem}",
                "give all rows the same names; null is an empty text",
            )
        yield where, [_text(row[column]) for column in columns]


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, str) else _compact(value)


def _compact(value: object) -> str:
    """Returns the value as JSON. Numbers stay as written."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, Mapping):
        return (
            "{"
            + ",".join(f"{_compact(str(key))}:{_compact(each)}" for key, each in value.items())
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_compact, value)) + "]"
    return json.dumps(value, ensure_ascii=False, default=str)


def _table(name: str, rows: Iterator[_Row]) -> Table:
    field = "params" if name == "params" else "array"
    where, columns = next(rows, ("", ()))
    _check_columns(field, name, columns)
    found = []
    for where, row in rows:
        if any("\0" in value for value in row):
            raise InvalidValue(
                field,
                name,
                f"has a NUL byte in {where}",
                "remove the NUL byte: an environment variable cannot contain it",
            )
        if (size := sum(len(value.encode()) for value in row)) > MAX_ROW:
            problem = f"has {format_bytes(size)} in {where}; the limit is {format_bytes(MAX_ROW)}"
            raise InvalidValue(
                field, name, problem, "write the data into files, and their paths into the table"
            )
        found.append(tuple(map(str, row)))
    _check_number(name, len(found))
    return Table(tuple(columns), tuple(found))


def _check_number(name: str, rows: int) -> None:
    field = "params" if name == "params" else "array"
    if not rows:
        raise InvalidValue(
            field,
            name,
            "has no rows",
            "give a row for each task"
            + (", below the first line, which names the columns" * (field == "array")),
        )
    if rows > MAX_TASKS:
        raise too_many(name, rows)


def _check_columns(field: str, name: str, columns: Sequence[str]) -> None:
    if not columns:
        raise InvalidValue(
            field, name, "is empty", "give the names of the columns and a row for each task"
        )
    if len(columns) > MAX_COLUMNS:
        raise InvalidValue(
            field, name, f"has {len(columns):,} columns", f"use at most {MAX_COLUMNS}"
        )
    seen: dict[str, str] = {}
    for number, column in enumerate(columns, 1):
        if (
            not column
            or not column.isprintable()
            or set("{}") & set(column)
            or len(column) > MAX_COLUMN_NAME
        ):
            problem = f"has {column[:40]!r} as the name of column {number}"
            raise InvalidValue(
                field,
                name,
                problem,
                f"use 1 to {MAX_COLUMN_NAME} characters without braces, such as lr",
            )
        if column == INDEX:
            raise InvalidValue(
                field,
                name,
                f"has a column {INDEX!r}, which is the number of the task",
                "rename the column",
            )
        variable = param_variable(column)
        if variable in seen:
            same = (
                f"the column {column!r} twice"
                if seen[variable] == column
                else f"columns {seen[variable]!r} and {column!r}"
            )
            raise InvalidValue(
                field,
                name,
                f"has {same}: both would be {variable}",
                "give each column a name of its own",
            )
        seen[variable] = column
