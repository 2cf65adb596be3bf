"""Tags and notes: what a job may have, and what lists find by it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from iris.model.errors import InvalidValue
from iris.model.job.tags import (
    MAX_BYTES,
    MAX_NOTE,
    MAX_PART,
    MAX_TAGS,
    has_tags,
    indexed,
    parse_tag,
    tags_in,
)
from tests.builders import a_spec

#: What Temporal accepts: bytes of the value of a search attribute, and characters of each of its
#: texts in its SQL stores.
MOST_BYTES, MOST_CHARACTERS = 2_048, 255

KEYS = st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9._/-]{0,61}[a-zA-Z0-9])?", fullmatch=True)
VALUES = st.from_regex(r"[a-zA-Z0-9._/:+@%~-]{0,63}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("sweep=lr", ("sweep", "lr")),
        ("baseline", ("baseline", "")),
        ("baseline=", ("baseline", "")),
        ("lr=3e-4", ("lr", "3e-4")),
        ("model=meta-llama/Llama-3.1-8B", ("model", "meta-llama/Llama-3.1-8B")),
        ("a.b/c-d_e=gs://bucket/x@2+1%~", ("a.b/c-d_e", "gs://bucket/x@2+1%~")),
    ],
)
def test_a_tag_is_a_key_with_or_without_a_value(text: str, tag: tuple[str, str]) -> None:
    """Names of models, paths and numbers are what people write there."""
    assert parse_tag(text) == tag


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no valid key; write KEY=VALUE or KEY"),
        ("=x", "has no valid key"),
        ("-a=x", "has no valid key"),
        ("sweep!=lr", "has no valid key"),
        ("k" * (MAX_PART + 1), "has no valid key"),
        (
            "note=two words",
            (
                "has no valid value; use up to 63 letters, digits or . _ - / : + @ % ~, and --note"
                " for a text"
            ),
        ),
        ("a=b=c", "has no valid value"),
        ("a=o'clock", "has no valid value"),
        ("a=" + "v" * (MAX_PART + 1), "has no valid value"),
        ("a=\n", "has no valid value"),
        ("ключ=1", "has no valid key"),
    ],
)
def test_what_no_query_can_find_is_refused_with_the_remedy(text: str, problem: str) -> None:
    """The service's queries have no way to write a quote."""
    with pytest.raises(InvalidValue) as refused:
        parse_tag(text)
    assert str(refused.value).startswith("tag: ")
    assert problem in str(refused.value)


@given(st.dictionaries(KEYS, VALUES, max_size=40))
def test_the_tags_of_a_job_fit_into_the_service_and_are_found_by_their_keys_and_by_their_values(
    tags: dict[str, str],
) -> None:
    """A job whose tags the service refuses would be refused by an error of Temporal's."""
    if len(tags) > MAX_TAGS or len(json.dumps(indexed(tags))) > MAX_BYTES:
        with pytest.raises(
            ValidationError, match=r"are too many|bytes as a search attribute of Temporal"
        ):
            a_spec(tags=tags)
        return
    spec = a_spec(tags=tags)
    values = indexed(spec.tags)

    assert len(json.dumps(values).encode()) <= MOST_BYTES
    assert all(len(value) <= MOST_CHARACTERS for value in values)
    assert tags_in(values) == tags
    for key, value in tags.items():
        assert key in values
        assert f"{key}={value}".removesuffix("=") in values


def test_all_wanted_tags_must_be_there() -> None:
    """A tag without a value stands for any value of the key, and letters count as they are."""
    tags = {"sweep": "lr", "baseline": ""}
    for wanted in ("sweep", "sweep=lr", "baseline", "sweep=lr baseline", ""):
        assert has_tags(tags, map(parse_tag, wanted.split()))
    for unwanted in ("Sweep", "sweep=LR", "baseline=1", "sweep=lr other"):
        assert not has_tags(tags, map(parse_tag, unwanted.split()))


def test_texts_of_somebody_else_are_no_tags() -> None:
    """Any client can start a workflow with any search attributes, and a terminal would show
    them.
    """
    assert tags_in(["a=1", "\x1b[2J", "a b", "", "a"]) == {"a": "1"}


@pytest.mark.parametrize(
    ("note", "problem"),
    [
        ("x" * (MAX_NOTE + 1), "has 501 characters; write at most 500"),
        ("a\nb", "contains control characters; write one line"),
        ("\x1b[2J", "contains control"),
        ("right\u202eleft", "contains control"),
    ],
)
def test_a_note_is_one_line_that_a_terminal_can_show(note: str, problem: str) -> None:
    """Other users read it in their terminals."""
    with pytest.raises(ValidationError, match=problem):
        a_spec(note=note)
    assert a_spec(note="größer – erster Versuch 🙂").note
