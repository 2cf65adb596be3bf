"""Builds and sets the search attributes and the memo by which workflows are listed."""

from collections.abc import Mapping, Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from iris.model import names
from iris.model.job.arrays import MEMO_ARRAY
from iris.model.job.cancelling import MEMO_CANCELLING, MEMO_GRACE, Cancelling
from iris.model.job.demand_limits import cut
from iris.model.job.spec import DEFAULT_GRACE, Band, JobSpec
from iris.model.job.tags import MEMO_NOTE, POOL_MARK, indexed
from iris.model.states import JobState
from iris.workflows import web_ui

#: The maximum number of bytes of a reason that is shown in lists of jobs.
MOST_REASON = 300


def keywords(values: Mapping[str, str | Sequence[str]]) -> TypedSearchAttributes:
    """Returns the values as search attributes: texts as keywords, and sequences of texts as lists
    of keywords.
    """
    return TypedSearchAttributes([_pair(name, value) for name, value in values.items()])


def _pair(name: str, value: str | Sequence[str]) -> SearchAttributePair[Any]:
    if isinstance(value, str):
        return SearchAttributePair(SearchAttributeKey.for_keyword(name), value)
    return SearchAttributePair(SearchAttributeKey.for_keyword_list(name), value)


def job_facts(cluster: str, spec: JobSpec) -> tuple[dict[str, Any], dict[str, str | Sequence[str]]]:
    """Returns the memo and the search attributes with which a job starts."""
    memo: dict[str, Any] = {
        names.MEMO_COMMAND: web_ui.summary(spec),
        names.MEMO_TASKS: spec.replicas,
    }
    if spec.resources.device is not None:
        memo[names.MEMO_DEVICE] = str(spec.resources.device)
    if spec.array is not None and spec.indices != tuple(range(spec.replicas)):
        memo[MEMO_ARRAY] = True
    if spec.commit:
        memo[names.MEMO_COMMIT] = spec.commit
    if spec.grace != DEFAULT_GRACE:
        memo[MEMO_GRACE] = spec.grace.total_seconds()
    if spec.note:
        memo[MEMO_NOTE] = spec.note
    if spec.call is not None:
        memo[names.MEMO_FUNCTION] = True
    attributes: dict[str, str | Sequence[str]] = {
        names.SA_CLUSTER: cluster,
        names.SA_KIND: names.KIND_JOB,
        names.SA_USER: spec.user,
        names.SA_PRIORITY: spec.band,
    }
    if spec.parent is not None:
        memo[names.MEMO_PARENT] = spec.parent.model_dump(mode="json")
        attributes[names.SA_PARENT] = spec.parent.job
    is_pool = spec.call is not None and spec.command == (names.POOL_WORKER,)
    if spec.tags or is_pool:
        attributes[names.SA_TAGS] = [*indexed(spec.tags), *[POOL_MARK] * is_pool]
    return memo, attributes


def show_state(state: str) -> None:
    """Sets this workflow's state in lists: one event and one write to the visibility store."""
    workflow.upsert_search_attributes(
        [SearchAttributeKey.for_keyword(names.SA_STATE).value_set(state)]
    )


class ListEntry:
    """The state, the reason and the priority that lists of jobs show for one job. Each change adds
    an event to the history, so unchanged values are not set again.

    Args:
        band: the priority that lists show already.
    """

    def __init__(self, band: Band) -> None:
        self._band = band
        #: The state that lists show; None if none was set. A short job that succeeds sets none, to
        #: save events.
        self.state: JobState | None = None
        self._reason: tuple[JobState, str] | None = None

    def show(self, state: JobState) -> None:
        if state is not self.state:
            self.state = state
            show_state(state)

    def show_band(self, band: Band) -> None:
        if band is not self._band:
            self._band = band
            show_band(band)

    def show_reason(self, state: JobState, reason: str) -> None:
        """Shows the reason of the state. It goes into the memo, because Temporal does not encrypt
        search attributes.
        """
        if reason and (state, reason) != self._reason:
            self._reason = state, reason
            workflow.upsert_memo(
                {names.MEMO_REASON: {"state": state, "reason": cut(reason, MOST_REASON)}}
            )

    def show_cancelling(self, cancelling: Cancelling) -> None:
        """Shows that the job is being cancelled, beside its state."""
        short = cancelling.model_copy(update={"reason": cut(cancelling.reason, MOST_REASON)})
        workflow.upsert_memo({MEMO_CANCELLING: short.model_dump(mode="json")})


def show_band(band: Band) -> None:
    """Sets this workflow's priority in lists."""
    workflow.upsert_search_attributes(
        [SearchAttributeKey.for_keyword(names.SA_PRIORITY).value_set(band)]
    )
