"""The list of jobs: the filter of an address, and the tree."""

from datetime import timedelta

import pytest

from iris.client.jobs.rows import JobRow
from iris.dashboard.pages.jobs import MOST_SIBLINGS, filter_of, tree
from iris.model.errors import InvalidValue
from iris.model.states import JobState
from tests.builders import NOON, at


def rows(*ids: str) -> list[JobRow]:
    """Jobs, the newest first."""
    return [
        JobRow(
            id=each,
            state=JobState.RUNNING,
            user=each.partition("/")[0],
            submitted_at=at(-place),
            command="true",
            run_id=f"run {place}",
        )
        for place, each in enumerate(ids)
    ]


def outline(*ids: str) -> list[str]:
    return [f"{'  ' * line.depth}{line.name}" for line in tree(rows(*ids))]


def test_children_are_below_their_parent_the_oldest_first() -> None:
    """As `iris jobs --tree` shows them."""
    found = outline("ada/b", "ada/a/y", "ada/a/x/deep", "ada/a/x", "ada/a", "bob/c")
    assert found == ["ada/b", "ada/a", "  x", "    deep", "  y", "bob/c"]


def test_siblings_whose_parent_is_elsewhere_share_a_line_with_its_name() -> None:
    """The parent of a sweep is older than a page of its children. A single child needs no line."""
    assert outline("ada/a/y", "bob/c/z", "ada/a/x") == ["ada/a", "  x", "  y", "bob/c/z"]


def test_many_children_are_counted_with_their_states() -> None:
    """A sweep of hundreds must not hide the other jobs."""
    ids = [f"ada/a/{n}" for n in range(40)]
    lines = list(tree(rows(*ids, "ada/a", "bob/b")))

    assert len(lines) == 1 + MOST_SIBLINGS + 1 + 1
    (more,) = [line for line in lines if line.more]
    assert (more.parent, dict(more.more)) == ("ada/a", {"RUNNING": 40 - MOST_SIBLINGS})


def test_every_job_of_a_page_is_shown_or_counted_once() -> None:
    """A job that is missing from the list would be missed by its user."""
    ids = [f"u/{a}/{b}/{c}" for a in "ab" for b in "cd" for c in range(9)] + ["u/a", "u/b/d"]
    lines = list(tree(rows(*ids)))

    shown = [line.row.id for line in lines if line.row is not None]
    counted = sum(sum(line.more.values()) for line in lines)
    assert len(shown) == len(set(shown))
    assert len(shown) + counted == len(ids)


def test_an_address_has_the_whole_filter() -> None:
    """People save the addresses of lists."""
    query = {
        "state": "failed",
        "user": "ada",
        "tag": "exp=lr",
        "text": "x",
        "since": "2h",
        "top": "1",
    }
    found = filter_of(query, NOON + timedelta(seconds=30))

    assert found.states == (JobState.FAILED,)
    assert (found.user, found.text, found.tags, found.top_level) == (
        "ada",
        "x",
        (("exp", "lr"),),
        True,
    )
    assert found.since == NOON - timedelta(hours=2)
    assert filter_of({"state": "live"}, NOON).live_only


@pytest.mark.parametrize(
    "query", [{"state": "odd"}, {"tag": "' OR 1"}, {"since": "soon"}, {"below": "a' OR 'b"}]
)
def test_a_wrong_filter_is_refused(query: dict[str, str]) -> None:
    """The address comes from anybody, and becomes a query."""
    with pytest.raises(InvalidValue):
        filter_of(query, NOON)
