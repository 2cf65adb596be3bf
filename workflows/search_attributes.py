"""Builds and sets what workflows are listed by and with."""

from collections.abc import Mapping
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from iris.model import names
from iris.model.jobs import Band, JobSpec
from iris.workflows import web_ui


def keywords(values: Mapping[str, str]) -> TypedSearchAttributes:
    """Returns the values as keyword search attributes, the type that all of Iris' have."""
    return TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in values.items()]
    )


def job_facts(cluster: str, spec: JobSpec) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the memo and the search attributes with which a job starts."""
    memo: dict[str, Any] = {names.MEMO_COMMAND: web_ui.summary(spec), names.MEMO_TASKS: spec.replicas}
    if spec.resources.device is not None:
        memo[names.MEMO_DEVICE] = str(spec.resources.device)
    if spec.call is not None:
        memo[names.MEMO_FUNCTION] = True
    attributes = {
        names.SA_CLUSTER: cluster,
        names.SA_KIND: names.KIND_JOB,
        names.SA_USER: spec.user,
        names.SA_PRIORITY: spec.band,
    }
    if spec.parent is not None:
        memo[names.MEMO_PARENT] = spec.parent.model_dump(mode="json")
        attributes[names.SA_PARENT] = spec.parent.job
    return memo, attributes


def show_state(state: str) -> None:
    """Sets this workflow's state in lists: one event and one write to the visibility store."""
    workflow.upsert_search_attributes([SearchAttributeKey.for_keyword(names.SA_STATE).value_set(state)])


def show_band(band: Band) -> None:
    """Sets this workflow's priority in lists."""
    workflow.upsert_search_attributes([SearchAttributeKey.for_keyword(names.SA_PRIORITY).value_set(band)])
