"""Search attributes: what workflows can be listed by."""

from collections.abc import Mapping

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from iris import names
from iris.jobs import Band


def keywords(values: Mapping[str, str]) -> TypedSearchAttributes:
    """Search attributes of the kind that all of Iris' have."""
    return TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in values.items()]
    )


def show_state(state: str) -> None:
    """Let this workflow be listed under a new state: one event and one write to the visibility store."""
    workflow.upsert_search_attributes([SearchAttributeKey.for_keyword(names.SA_STATE).value_set(state)])


def show_band(band: Band) -> None:
    """Make this the workflow's priority in lists."""
    workflow.upsert_search_attributes([SearchAttributeKey.for_keyword(names.SA_PRIORITY).value_set(band)])
