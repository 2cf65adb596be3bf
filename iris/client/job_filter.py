"""Selects jobs for a list; writes and reads what the list has of each."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from iris.model import names
from iris.model.jobs import MAX_REPLICAS, JobSpec
from iris.model.states import JobState
from iris.workflows import web_ui


@dataclass(frozen=True)
class JobFilter:
    """Which jobs a list has; by default all.

    Args:
        live_only: leaves out ended jobs.
        states: only jobs in these states; empty: in any state.
        user: only jobs of this user; empty: of all.
        since: only jobs submitted at this time or later.
    """

    live_only: bool = False
    states: Collection[JobState] = ()
    user: str = ""
    since: datetime | None = None

    def query(self) -> str:
        """Returns the conditions that the service checks, for the end of a visibility query. It does not check the states.

        Raises:
            InvalidValue: no user can have this name.
        """
        conditions = ["ExecutionStatus != 'ContinuedAsNew'"]
        # No ended workflow shows a live state, and the service knows those of a month.
        if self.live_only or (self.states and not any(state.ended for state in self.states)):
            conditions.append("ExecutionStatus = 'Running'")
        if self.user:
            conditions.append(f"{names.SA_USER} = '{names.check_name('user', self.user)}'")
        if self.since is not None:
            conditions.append(f"StartTime >= '{self.since.astimezone(UTC).isoformat()}'")
        return " AND ".join(conditions)


def memo_for(spec: JobSpec) -> dict[str, Any]:
    """Returns the memo of a job: what a list and the readers of its logs and results need of it."""
    memo = {names.MEMO_COMMAND: web_ui.summary(spec), names.MEMO_TASKS: spec.replicas}
    return memo | ({names.MEMO_FUNCTION: True} if spec.call is not None else {})


def tasks_in(memo: Mapping[str, Any]) -> int:
    """Returns the number of a job's tasks by its memo; 1 if the memo has none: any client can start a workflow with any memo."""
    tasks = memo.get(names.MEMO_TASKS)
    return tasks if isinstance(tasks, int) and 0 < tasks <= MAX_REPLICAS else 1
