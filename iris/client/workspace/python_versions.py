"""Reads the versions of Python that a project allows: `requires-python` and `.python-version`."""

import re

#: A number that is larger than the number of releases of any minor version of Python.
_MOST_RELEASES = 60
_CLAUSE = re.compile(r"(~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?")
_PIN = re.compile(r"(?:c?python[-@]?)?(\d+)\.(\d+)(?:\.\d+)?")


def admits(requires: str, version: tuple[int, int]) -> bool:
    """Returns whether a release of this minor version satisfies a specifier such as `>=3.11,<3.13`.

    Only plain comparisons of releases are checked. The resolver checks other clauses.
    """
    clauses = [
        match.groups() for each in requires.split(",") if (match := _CLAUSE.fullmatch(each.strip()))
    ]
    releases = ((*version, micro) for micro in range(_MOST_RELEASES))
    return any(all(_holds(release, *clause) for clause in clauses) for release in releases)


def pinned(text: str) -> tuple[int, int] | None:
    """Returns the first minor version in the text of a file `.python-version`. Returns None if the
    text names no version of CPython.
    """
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    match = _PIN.fullmatch(first)
    return (int(match[1]), int(match[2])) if match is not None else None


def _holds(release: tuple[int, ...], operator: str, text: str, star: str | None) -> bool:
    named = tuple(map(int, text.split(".")))
    wanted = (*named, 0, 0)[: max(3, len(named))]
    matches = release[: len(named)] == named if star else release == wanted
    match operator:
        case "==":
            return matches
        case "!=":
            return not matches
        case "~=":
            return release >= wanted and release[: len(named) - 1] == named[:-1]
        case ">=":
            return release >= wanted
        case "<=":
            return release <= wanted
        case ">":
            return release > wanted
        case _:
            return release < wanted
