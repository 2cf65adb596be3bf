"""Writes values as CSV, for spreadsheets."""

import csv
import io
from collections.abc import Iterable, Sequence

#: The characters with which a formula begins in a spreadsheet, and the characters that a
#: spreadsheet skips before a formula. A text that begins with one of them must not become a
#: formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns rows as CSV. A text that a spreadsheet would take for a formula begins with an
    apostrophe. Numbers have six decimals at most.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_cell, head))
    writer.writerows([_cell(each) for each in row] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, float):
        return round(value, 6)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
