"""Lists all errors of a configuration at once, one line each: path, value, rule and remedy."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from iris.config.schema import ClusterConfig
from iris.model.errors import InvalidValue, Rejected

#: A path in a configuration: the keys that lead to a value.
Where = tuple[str | int, ...]

#: Matches the beginning of an error message about the YAML syntax. Such a message names its line
#: itself.
_IN_LINE = re.compile(r"line (\d+), column ")
#: The problem and the remedy for each of Pydantic's error types. A name in braces, such as `{ge}`
#: or `{expected}`, stands for the value that Pydantic's error has under this name.
_TEXTS = {
    "string_type": ("is not text", "put it in quotes"),
    "string_too_short": ("is empty", "set a value or remove it"),
    "int_type": ("is not a whole number", "write one without quotes"),
    "float_type": ("is not a number", "write one without quotes"),
    "float_parsing": ("is not a number", "write one without quotes"),
    "bool_type": ("is not a boolean", "write true or false"),
    "enum": ("is not a known value", "use {expected}"),
    "literal_error": ("is not allowed here", "use {expected}"),
    "tuple_type": ("is not a list", "write it as [a, b]"),
    "dict_type": ("is not a mapping", "write keys and values below it"),
    "model_type": ("is not a mapping", "write keys and values below it"),
    "greater_than_equal": ("is less than {ge}", "write {ge} or more"),
    "less_than_equal": ("is more than {le}", "write {le} or less"),
}


class InvalidConfig(Rejected):
    """The configuration is invalid. `problems` has one line for each error.

    Args:
        lines: the number of each key's line in the file, by the key's path. If it is given, the
            message of the error shows the problems with their lines, in the order of the lines.
    """

    def __init__(
        self,
        problems: Iterable[str],
        source: str = "the configuration",
        lines: Mapping[str, int] | None = None,
    ) -> None:
        self.problems = tuple(problems)
        self.source = source
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        shown = _with_lines(self.problems, lines or {})
        super().__init__("\n  ".join([f"{source} has {count}:", *shown]))


def _with_lines(problems: Iterable[str], lines: Mapping[str, int]) -> list[str]:
    found = ((_line_of(each, lines), each) for each in problems)
    return [
        problem if line == 0 or _IN_LINE.match(problem) else f"line {line}: {problem}"
        for line, problem in sorted(found, key=lambda each: each[0])
    ]


def _line_of(problem: str, lines: Mapping[str, int]) -> int:
    """Returns the line of a problem; 0 if it is not known. A problem begins with its line or with
    the path of a key. If the key is missing in the file, the line is that of the section.
    """
    if in_line := _IN_LINE.match(problem):
        return int(in_line[1])
    path = problem.partition(": ")[0]
    while path and path not in lines:
        path = path.rpartition(".")[0]
    return lines.get(path, 0)


def dotted(path: Where) -> str:
    """Returns the path with dots: `scale_groups.tpu.zones.0`."""
    return ".".join(str(part) for part in path)


def shape_problems(
    error: ValidationError, root: type[BaseModel] = ClusterConfig
) -> dict[Where, str]:
    """Returns all errors that pydantic found, in words for the user, by path.

    Args:
        root: the class of the file.
    """
    found: dict[Where, str] = {}
    for each in error.errors(include_url=False):
        path = _plain(each["loc"])
        found.setdefault(path, _problem(path, each, root))
    return found


def _plain(path: Where) -> Where:
    """Removes pydantic's additions to a path: the mark of a key, and the names of union
    alternatives (`attributes.team.str`).
    """
    path = tuple(part for part in path if part != "[key]")
    return path[:4] if path[:1] == ("scale_groups",) and path[2:3] == ("attributes",) else path


def _problem(path: Where, each: Mapping[str, Any], root: type[BaseModel]) -> str:
    context = each.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, InvalidValue):
        return f"{dotted(path)}: {str(cause).removeprefix(f'{cause.field}: ')}"
    if each["type"] == "extra_forbidden":
        return unknown_key(path, root)
    if each["loc"][-1:] == ("[key]",) or each["type"] == "invalid_key":
        return f"{dotted(path)}: the key {path[-1]!r} is not text; put it in quotes"
    if each["type"] == "missing":
        section = section_at(path[:-1], root)
        meaning = section.model_fields[str(path[-1])].description if section else None
        return f"{dotted(path)}: is required" + (
            f" ({meaning[0].lower()}{meaning[1:].rstrip('.')})" if meaning else ""
        )
    if "attributes" in path[2:3] and len(path) > 3:
        return str(
            InvalidValue(
                dotted(path),
                each["input"],
                "is not an attribute value",
                "use text, a number, true or false",
            )
        )
    problem, remedy = _TEXTS.get(
        each["type"], (f"is not valid: {each['msg']}", "see docs/configuration.md")
    )
    return str(
        InvalidValue(
            dotted(path), each["input"], problem.format(**context), remedy.format(**context)
        )
    )


def unknown_key(path: Where, root: type[BaseModel] = ClusterConfig) -> str:
    """Returns the problem line for an unknown key, with the key that the user probably meant."""
    known = list(known_keys(path[:-1], root))
    key = str(path[-1])
    near = get_close_matches(key, known, n=1) or get_close_matches(
        key.lower().replace("-", "_"), known, n=1
    )
    where = dotted(path[:-1]) or ("the configuration" if root is ClusterConfig else "the file")
    remedy = (
        f"did you mean {near[0]!r}?" if near else f"{where} has {', '.join(known) or 'no keys'}"
    )
    return f"{dotted(path)}: unknown key; {remedy}"


def known_keys(path: Where, root: type[BaseModel] = ClusterConfig) -> Iterable[str]:
    """Returns the keys that the section at this path may have."""
    section = section_at(path, root)
    return section.model_fields if section is not None else ()


def section_at(path: Where, root: type[BaseModel] = ClusterConfig) -> type[BaseModel] | None:
    """Returns the class of the section at this path, or None if the path is not a section."""
    here: Any = root
    for part in path:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(part))
            here = field.annotation if field else None
        else:
            # use the type of the mapping's values, or of the list's items
            here = next(iter(get_args(here)[1 if _is_mapping(here) else 0 :]), None)
        here = (
            here
            if _is_mapping(here) or _is_list(here)
            else next((each for each in get_args(here) if _is_section(each)), here)
        )
    return here if _is_section(here) else None


def _is_section(of: Any) -> bool:
    return isinstance(of, type) and issubclass(of, BaseModel)


def _is_mapping(of: Any) -> bool:
    return getattr(of, "__origin__", None) is dict


def _is_list(of: Any) -> bool:
    return getattr(of, "__origin__", None) is tuple
