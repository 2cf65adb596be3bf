"""Tags and notes of jobs: texts of the user that help to find and to recognise a job. They do not
affect how it runs.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import AfterValidator

from iris.model.errors import InvalidValue

#: The limit on tags of a job.
MAX_TAGS = 32
#: The limit on characters of a tag's key, and of a tag's value. It is the limit of a Kubernetes
#: label. A search attribute contains the key and the value together, and must stay below the 255
#: characters that Temporal's SQL stores index.
MAX_PART = 63
#: The limit on bytes of a job's tags together as a search attribute. Temporal's limit is 2,048.
MAX_BYTES = 2_000
#: The limit on characters of a note.
MAX_NOTE = 500
#: The entry in the search attribute of tags for a job whose tasks are workers of a pool. No tag has
#: this text, because the key of a tag cannot begin with `@`.
POOL_MARK = "@pool"
#: The key of the memo field with a job's note. A job without a note has no such field.
MEMO_NOTE = "iris_note"

#: Matches the key of a tag. Its characters are safe in a visibility query, which cannot escape a
#: quote.
_KEY = re.compile(rf"[a-zA-Z0-9](?:[a-zA-Z0-9._/-]{{0,{MAX_PART - 2}}}[a-zA-Z0-9])?")
#: Matches the value of a tag. Its characters are safe in a visibility query, which cannot escape a
#: quote.
_VALUE = re.compile(rf"[a-zA-Z0-9._/:+@%~-]{{0,{MAX_PART}}}")


def parse_tag(text: str) -> tuple[str, str]:
    """Parses `KEY=VALUE` and returns both. A tag `KEY` has an empty value.

    Raises:
        InvalidValue: the text is not a tag.
    """
    key, _, value = text.partition("=")
    check_tag(key, value)
    return key, value


def check_tag(key: str, value: str) -> None:
    """Checks a tag.

    Raises:
        InvalidValue: a job cannot have this tag.
    """
    text = written(key, value)
    if _KEY.fullmatch(key) is None:
        remedy = (
            f"write KEY=VALUE or KEY; a key has up to {MAX_PART} letters, digits, . _ - or /, a"
            " letter or digit at both ends"
        )
        raise InvalidValue("tag", text, "has no valid key", remedy)
    if _VALUE.fullmatch(value) is None:
        remedy = f"use up to {MAX_PART} letters, digits or . _ - / : + @ % ~, and --note for a text"
        raise InvalidValue("tag", text, "has no valid value", remedy)


def check_tags(tags: dict[str, str]) -> dict[str, str]:
    """Returns the tags unchanged.

    Raises:
        InvalidValue: there are too many tags, or one is not valid.
    """
    for key, value in tags.items():
        check_tag(key, value)
    if len(tags) > MAX_TAGS:
        raise InvalidValue(
            "tag", f"{len(tags)} tags", "are too many", f"give a job at most {MAX_TAGS}"
        )
    if (size := len(json.dumps(indexed(tags)))) > MAX_BYTES:
        problem = (
            f"take {size:,} bytes as a search attribute of Temporal, over the limit of"
            f" {MAX_BYTES:,}"
        )
        raise InvalidValue("tag", f"{len(tags)} tags", problem, "use fewer or shorter ones")
    return tags


def written(key: str, value: str) -> str:
    """Returns a tag as users write it: `KEY=VALUE` or `KEY`."""
    return f"{key}={value}" if value else key


def format_tags(tags: Mapping[str, str]) -> list[str]:
    """Returns the tags as users write them."""
    return [written(key, value) for key, value in tags.items()]


def indexed(tags: Mapping[str, str]) -> list[str]:
    """Returns the values of the search attribute: each tag, and each tag's key alone."""
    return [
        text for key, value in tags.items() for text in dict.fromkeys((key, written(key, value)))
    ]


def tags_in(values: Iterable[str]) -> dict[str, str]:
    """Returns the tags in a job's search attribute. Invalid texts are left out, because any client
    can write any text there.
    """
    tags: dict[str, str] = {}
    for text in values:
        try:
            key, value = parse_tag(text)
        except InvalidValue:
            continue
        tags[key] = value or tags.get(key, "")
    return tags


def has_tags(tags: Mapping[str, str], wanted: Iterable[tuple[str, str]]) -> bool:
    """Returns whether a job has all the wanted tags. A wanted tag without a value matches every
    value.
    """
    return all(key in tags and value in ("", tags[key]) for key, value in wanted)


def check_note(note: str) -> str:
    """Returns the note unchanged.

    Raises:
        InvalidValue: the note is too long, or has control characters.
    """
    if len(note) > MAX_NOTE:
        raise InvalidValue(
            "note", f"{note[:20]}…", f"has {len(note):,} characters", f"write at most {MAX_NOTE:,}"
        )
    if any(not character.isprintable() for character in note):
        raise InvalidValue(
            "note", repr(note[:60]), "contains control characters", "write one line of text"
        )
    return note


#: The tags of a job, by their keys.
Tags = Annotated[dict[str, str], AfterValidator(check_tags)]
#: One line of text that a user writes about a job.
Note = Annotated[str, AfterValidator(check_note)]
