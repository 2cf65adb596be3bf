"""Reads job files: YAML documents whose keys are the options of `iris submit`, one for each job."""

import difflib
import functools
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import click
import yaml

from iris.cli.submit.options import WORDS, job_command, parse_words
from iris.config.bounded_yaml import BoundedLoader
from iris.model.errors import InvalidJob

#: Groups of options that exclude each other. An option on the command line replaces all options of
#: its group that the file contains.
_EXCLUSIVE = (("tpu", "gpu", "device"), ("workspace", "no_workspace"))
#: The repeatable options whose values on the command line are added to the values in the file. For
#: `region` and `zone`, the command line replaces the values in the file.
_ADDED = (
    *("port", "env", "secret", "file", "extra", "pip", "setup", "constraint", "prefer"),
    *("after", "after_any", "after_fail", "tag", "limit", "notify"),
)
#: The options whose values are pairs of a name and a value. A job file contains them as a mapping.
PAIRS = ("env", "secret", "tag", "limit")
_VARIABLE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\})?")
#: The program that runs a command that is a single text. As in most CI systems, the script stops at
#: the first command that fails.
SHELL = ("sh", "-ec")
_NO_COMMAND = "there is no command; add the key command, or give the command after --"
#: The YAML tag of an empty value.
NULL = "tag:yaml.org,2002:null"


class Key(NamedTuple):
    """One key of a job document. It corresponds to an option of the command line.

    Args:
        line: the line of the key, from 1. It is 0 for an option of the command line.
        values: the texts of a sequence, or a single text. A pair is `NAME=VALUE`.
    """

    line: int
    values: tuple[str, ...]


class Problem(NamedTuple):
    """An error in a job document.

    Args:
        text: the problem and the remedy.
        line: the line of the problem, from 1. It is 0 if the problem has no line.
        key: the key whose value is wrong. Empty if the problem is not about one value.
    """

    text: str
    line: int = 0
    key: str = ""

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass(frozen=True)
class JobDocument:
    """One document of a job file, which describes one job.

    Args:
        where: the file, and the number of the document if there are several.
        keys: the keys by the names of the options. The values of `command` are the words of the
            command.
        problems: the unknown keys of the document, and the values that a key cannot have.
    """

    where: str
    keys: Mapping[str, Key]
    problems: tuple[Problem, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words after `iris submit` that describe the same job."""
        options = [word for name, key in self.keys.items() for word in _words(name, key)]
        return [*options, "--", *self.keys["command"].values]


def read_jobs(content: bytes, name: str, variables: Mapping[str, str]) -> list[JobDocument]:
    """Returns the documents of a job file. Empty ones are skipped.

    Replaces `${VAR}` and `${VAR:-default}` in all values except the command, which a shell in the
    task reads. `$${` stands for `${`.

    A key that is unknown, repeated, without a value or of the wrong kind is a problem of its
    document. So is a variable that is not set.

    Args:
        name: the name of the file, for errors.
        variables: the values of `${VAR}`.

    Raises:
        InvalidJob: the file is not valid YAML, or has no job.
    """
    try:
        nodes = [
            node
            for node in yaml.compose_all(content.decode("utf-8-sig"), BoundedLoader)
            if not _is_null(node)
        ]
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InvalidJob(f"{name}, line {line}: this is not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InvalidJob(
            f"{name}{where}: " + ", ".join(part for part in (error.context, error.problem) if part)
        ) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidJob(f"{name}: invalid YAML: {' '.join(str(error).split())}") from None
    if not nodes:
        raise InvalidJob(
            f"{name}: the file has no job; write the options of iris submit as keys, and the"
            " command below the key command"
        )
    return [
        _document(name if len(nodes) == 1 else f"{name}, document {number}", node, variables)
        for number, node in enumerate(nodes, start=1)
    ]


def keys_given(ctx: click.Context) -> dict[str, Key]:
    """Returns the options and the command of a command line as keys of a file."""
    given, _, _ = ctx.command.make_parser(ctx).parse_args(list(ctx.meta[WORDS]))
    keys = {}
    for name, value in given.items():
        if name not in parameters():
            continue
        if isinstance(value, bool):
            keys[name] = Key(0, ("true" if value else "false",))
        elif isinstance(value, str):
            keys[name] = Key(0, (value,))
        elif isinstance(value, list | tuple) and value:
            keys[name] = Key(0, tuple(value))
    return keys


def overridden(document: JobDocument, given: Mapping[str, Key]) -> JobDocument:
    """Returns the document with the options of the command line, which override the file's."""
    replaced = {
        name for group in _EXCLUSIVE if any(each in given for each in group) for name in group
    }
    if "gpu" in given or "device" in given:
        replaced.add("slices")  # they belong to the file's TPU
    keys = {name: key for name, key in document.keys.items() if name not in replaced}
    for name, key in given.items():
        keys[name] = (
            Key(keys[name].line, (*keys[name].values, *key.values))
            if name in _ADDED and name in keys
            else key
        )
    return JobDocument(document.where, keys, document.problems)


def key_problems(document: JobDocument) -> list[Problem]:
    """Returns the problems of single keys of a document, and a missing command."""
    problems = list(document.problems)
    for name, key in document.keys.items():
        try:
            parse_words([*_words(name, key), "--", "true"])
        except click.UsageError as error:
            text = (
                error.message if isinstance(error, click.BadParameter) else error.format_message()
            )
            problems.append(Problem(f"{name}: {text.removeprefix(f'{name}: ')}", key.line, name))
    if "command" not in {*document.keys, *(each.key for each in problems)}:
        problems.append(Problem(_NO_COMMAND))
    return problems


def without(document: JobDocument, wrong: Collection[str]) -> JobDocument:
    """Returns the document without the wrong keys, and with any command, for further checks."""
    keys = {name: key for name, key in document.keys.items() if name not in wrong}
    keys.setdefault("command", Key(0, ("true",)))
    return JobDocument(document.where, keys)


def refused(found: Sequence[tuple[JobDocument, Sequence[Problem]]]) -> InvalidJob | None:
    """Returns the error that lists the problems of documents by their lines. Returns None if there
    are no problems.
    """
    parts = []
    for document, problems in found:
        if problems:
            in_order = sorted(problems, key=lambda each: each.line or sys.maxsize)
            parts.append("\n  ".join([f"{document.where} is not valid:", *map(str, in_order)]))
    if not parts:
        return None
    return InvalidJob("\n".join(parts if len(found) == 1 else ["the jobs are not valid:", *parts]))


def job_options(document: JobDocument) -> dict[str, Any]:
    """Returns the parsed options of the document's job.

    Raises:
        InvalidJob: keys are wrong, or there is no command; the message lists the problems with
            their lines.
    """
    if error := refused([(document, key_problems(document))]):
        raise error
    return parse_words(document.words)


def _document(where: str, node: yaml.Node, variables: Mapping[str, str]) -> JobDocument:
    problems: list[Problem] = []
    keys = {}
    for key, line, value in _entries(node, problems):
        try:
            keys[key] = Key(line, _values(key, value, variables))
        except _Wrong as wrong:
            problems.append(Problem(f"{key}: {wrong}", wrong.line or line, key))
    return JobDocument(where, keys, tuple(problems))


class _Wrong(Exception):
    """Raised if a value in a job document is invalid.

    Args:
        line: the line of the value. None means the line of the value's key.
    """

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.line = line


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == NULL and node.style is None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _entries(node: yaml.Node, problems: list[Problem]) -> Iterator[tuple[str, int, yaml.Node]]:
    """Yields the known keys of a document with their lines and values. Adds a problem for each
    other key.
    """
    if not isinstance(node, yaml.MappingNode):
        text = "the document is not a mapping; write the options of iris submit as keys"
        problems.append(Problem(text, _line(node)))
        return
    options = parameters()
    lines: dict[str, int] = {}
    for key, value in node.value:
        name, line = str(key.value) if isinstance(key, yaml.ScalarNode) else "?", _line(key)
        if name in lines:
            text = f"the key {name!r} is repeated; it is first set in line {lines[name]}"
            problems.append(Problem(text, line))
        elif name not in options:
            near = difflib.get_close_matches(name.replace("-", "_"), options, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            problems.append(Problem(f"there is no option {name!r}{meant}", line))
        elif _is_null(value):
            text = f"{name} has no value; give it one or remove the key"
            problems.append(Problem(text, line, name))
        else:
            yield name, line, value
        lines.setdefault(name, line)


@functools.cache
def parameters() -> dict[str, click.Parameter]:
    """Returns the options that describe a job, and `command`, by their names in a file."""
    return {str(param.name): param for param in job_command.params}


def _values(name: str, node: yaml.Node, variables: Mapping[str, str]) -> tuple[str, ...]:
    if name == "command":
        if isinstance(node, yaml.ScalarNode):
            return (*SHELL, node.value)
        if not node.value:
            raise _Wrong("the list is empty; write the program and its arguments")
        return tuple(_scalars(node, "a shell script or a list of words"))
    option = parameters()[name]
    if name in PAIRS and isinstance(node, yaml.MappingNode):
        return tuple(_pairs(node, variables))
    if name == "env":
        raise _Wrong("write a mapping of names to values")
    if isinstance(option, click.Option) and option.is_flag:
        if not isinstance(node, yaml.ScalarNode) or node.value not in ("true", "false"):
            raise _Wrong("write true or false")
        return (node.value,)
    if not option.multiple and not isinstance(node, yaml.ScalarNode):
        raise _Wrong("write one value")
    return tuple(
        _replaced(text, variables) for text in _scalars(node, "a value or a list of values")
    )


def _scalars(node: yaml.Node, wanted: str) -> list[str]:
    nodes: Sequence[yaml.Node] = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for each in nodes:
        if not isinstance(each, yaml.ScalarNode) or _is_null(each):
            raise _Wrong(f"write {wanted}", _line(each))
    return [str(each.value) for each in nodes]


def _pairs(node: yaml.MappingNode, variables: Mapping[str, str]) -> Iterator[str]:
    seen = set()
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or not isinstance(value, yaml.ScalarNode):
            raise _Wrong("write a mapping of names to values", _line(key))
        if _is_null(value):
            raise _Wrong(f'{key.value} has no value; for an empty one write ""', _line(key))
        if key.value in seen:
            raise _Wrong(f"{key.value} is repeated", _line(key))
        seen.add(key.value)
        yield f"{key.value}={_replaced(value.value, variables, _line(key))}"


def _replaced(text: str, variables: Mapping[str, str], line: int | None = None) -> str:
    """Returns the text with the values of its variables."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        name, default = found["name"], found["default"]
        if name is None:
            raise _Wrong(
                f"{text!r} has no variable after ${{; write ${{NAME}} or ${{NAME:-default}}, or"
                " $${ for the text",
                line,
            )
        if variables.get(name):
            return variables[name]
        if default is None:
            remedy = f"set it, or write a default: ${{{name}:-VALUE}}"
            raise _Wrong(f"the variable {name} is not set here; {remedy}", line)
        return str(default[2:])

    return _VARIABLE.sub(value, text)


def _words(name: str, key: Key) -> list[str]:
    """Returns the words of one option on the command line."""
    if name == "command":
        return []
    option = parameters()[name]
    if isinstance(option, click.Option) and option.is_flag:
        return [option.opts[0]] if key.values == ("true",) else list(option.secondary_opts[:1])
    return [f"{max(option.opts, key=len)}={value}" for value in key.values]
