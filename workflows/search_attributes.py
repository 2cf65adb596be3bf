"""Builds and sets the search attributes by which workflows are listed."""

from collections.abc import Mapping

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from iris.model import names
from iris.model.jobs import Band


def keywords(values: Mapping[str, str]) -> TypedSearchAttributes:
    """Returns the values as keyword search attributes, the type that all of Iris' have."""
    return TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in values.items()]
    )


def show_state(state: str) -> None:
    """Sets this workflow's state in lists: one event and one write to the visibility store."""
    workflow.upsert_search_attributes([SearchAttributeKey.for_keyword(names.SA_STATE).value_set(state)])


def show_band(band: Band) -> None:
    """Sets this workflow's priority in lists."""
    workflow.upsert_search_attributes([SearchAttributeKey.for_keyword(names.SA_PRIORITY).value_set(band)])
