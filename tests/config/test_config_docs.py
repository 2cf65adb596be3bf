"""docs/configuration.md matches the schema, and the schema matches what the loader accepts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from iris.config import ClusterConfig, load_config

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text()
SCHEMA = ClusterConfig.model_json_schema()


def sections() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every section by its path, with its part of the schema."""

    def below(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        yield path, schema
        for key, field in schema["properties"].items():
            if (inner := section_of(field)) is not None:
                yield from below(f"{path}.{key}".lstrip("."), inner)
            elif "$ref" in str(field.get("additionalProperties")):
                yield from below(
                    f"{path}.{key}.NAME".lstrip("."), defined(field["additionalProperties"]["$ref"])
                )
            elif "properties" in (item := item_of(field)):
                yield from below(f"{path}.{key}.N".lstrip("."), item)

    return below("", SCHEMA)


def defined(reference: str) -> dict[str, Any]:
    return SCHEMA["$defs"][reference.rpartition("/")[2]]


def item_of(field: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a list's items; nothing if they are values, or the field is no list."""
    reference = field.get("items", {}).get("$ref")
    return defined(reference) if reference else {}


def section_of(field: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the schema of a section; None if the field is a value."""
    for choice in [field, *field.get("anyOf", [])]:
        if "$ref" in choice and "properties" in defined(choice["$ref"]):
            return defined(choice["$ref"])
    return None


def table(schema: dict[str, Any]) -> str:
    """Returns the table of a section's values as the page must show it."""
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, field in schema["properties"].items():
        if section_of(field) is None and "$ref" not in str(field.get("additionalProperties")):
            default = "required" if key in schema.get("required", []) else shown(field["default"])
            lines.append(f"| `{key}` | {takes(field)} | {default} | {field['description']} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def takes(field: dict[str, Any]) -> str:
    """What may be written there, in a word or two."""
    if "$ref" in field:
        return ", ".join(f"`{each}`" for each in defined(field["$ref"])["enum"])
    choices = field.get("anyOf", [])
    if {"type": "null"} in choices:
        return takes(next(choice for choice in choices if choice != {"type": "null"}))
    if any("properties" in choice for choice in choices):
        return "duration"
    if choices:
        return "size" if any(choice.get("type") == "integer" for choice in choices) else "cores"
    if field["type"] in ("integer", "number"):
        least, most = field.get("minimum"), field.get("maximum")
        return (
            "number"
            if least is None
            else f"{least} to {most}"
            if most is not None
            else f"number, {least} or more"
        )
    if field.get("format") == "date":
        return "day"
    return {"string": "text", "boolean": "true, false", "array": "list", "object": "mapping"}[
        field["type"]
    ]


def shown(default: Any) -> str:
    return (
        "–"
        if default in ("", [], {}, None)
        else f"`{default if isinstance(default, str) else json.dumps(default)}`"
    )


@pytest.mark.parametrize(
    ("path", "schema"), [*sections()], ids=lambda each: each if isinstance(each, str) else ""
)
def test_the_page_names_every_key_with_its_default(path: str, schema: dict[str, Any]) -> None:
    """An outdated page is worse than none; on failure this prints the correct table."""
    assert table(schema) in PAGE
    assert not path or f"### `{path}`" in PAGE


def test_every_key_has_a_description() -> None:
    """An editor shows the schema's descriptions."""
    fields = [
        (path, key, field)
        for path, schema in sections()
        for key, field in schema["properties"].items()
    ]
    assert [
        (path, key)
        for path, key, field in fields
        if not (section_of(field) or field).get("description")
    ] == []


def test_the_schema_refuses_what_the_loader_refuses() -> None:
    """An editor that accepts a misspelt key misleads users."""
    assert all(schema["additionalProperties"] is False for _, schema in sections())


def test_the_example_of_the_page_loads() -> None:
    """Users copy it first."""
    blocks = PAGE.split("```yaml\n")[1:]
    assert blocks
    for block in blocks:
        text = block.split("```")[0]
        assert load_config(text).scale_groups or not yaml.safe_load(text).get("scale_groups")
