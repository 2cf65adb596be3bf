"""Writes job files, and their JSON schema for editors."""

from collections.abc import Iterable
from typing import Any

import click
import yaml

from iris.cli.submit.read_file import NULL, PAIRS, SHELL, JobDocument, parameters

_TEXT = {"type": ["string", "number", "boolean"]}


def dump_jobs(documents: Iterable[JobDocument]) -> str:
    """Returns the job file of the documents. The keys are in the order of `iris submit --help`, the
    command is last.
    """
    text = yaml.dump_all(
        [_tree(each) for each in documents],
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=120,
    )
    return str(text)


def job_schema() -> dict[str, Any]:
    """Returns the JSON schema of one document of a job file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Iris job",
        "description": (
            "A job for `iris submit -f`. Values may have ${VAR} or ${VAR:-default}, but not the"
            " command."
        ),
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _property(name, param) for name, param in parameters().items()},
    }


def _property(name: str, param: click.Parameter) -> dict[str, Any]:
    if not isinstance(param, click.Option):
        text = "The program and its arguments as a list of words, or a script for sh -e."
        return {
            "description": text,
            "anyOf": [{"type": "string"}, {"type": "array", "items": _TEXT, "minItems": 1}],
        }
    description = {"description": " ".join((param.help or "").replace(" Repeatable.", "").split())}
    if param.is_flag:
        return {**description, "type": "boolean"}
    if name in PAIRS:
        mapping = {"type": "object", "additionalProperties": _TEXT}
        return {
            **description,
            **(mapping if name == "env" else {"anyOf": [mapping, *_one_or_more()]}),
        }
    if param.multiple:
        return {**description, "anyOf": _one_or_more()}
    if isinstance(param.type, click.Choice):
        return {
            **description,
            "anyOf": [{"enum": list(param.type.choices)}, {"type": "string", "pattern": r"\$\{"}],
        }
    return {**description, **_TEXT}


def _one_or_more() -> list[dict[str, Any]]:
    return [_TEXT, {"type": "array", "items": _TEXT}]


class _Words(list[str]):
    """A list of words that is written on one line of the job file."""


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes texts without quotes. A job file reads each scalar as a text,
    whatever type YAML gives it.
    """

    def represent_text(self, text: str) -> yaml.ScalarNode:
        # PyYAML's stubs lack the method's types.
        tag = self.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        return self.represent_scalar(
            "tag:yaml.org,2002:str" if tag == NULL else tag, text, "|" if "\n" in text else None
        )

    def represent_words(self, words: list[str]) -> yaml.SequenceNode:
        return self.represent_sequence("tag:yaml.org,2002:seq", words, flow_style=True)


_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(_Words, _Dumper.represent_words)


def _tree(document: JobDocument) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, param in parameters().items():
        if name not in document.keys:
            continue
        values = document.keys[name].values
        if name == "command":
            tree[name] = values[-1] if values[:-1] == SHELL else _Words(values)
        elif isinstance(param, click.Option) and param.is_flag:
            tree[name] = values == ("true",)
        else:
            tree[name] = _written(
                name, [value.replace("${", "$${") for value in values], many=bool(param.multiple)
            )
    return tree


def _written(name: str, values: list[str], *, many: bool) -> Any:
    if name == "env":
        return dict(value.split("=", 1) for value in values)
    return _Words(values) if many else values[-1]
