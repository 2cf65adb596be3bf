"""Selects jobs for a list, and reads what the list has of each."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from iris.model import names
from iris.model.arrays import MAX_TASKS
from iris.model.jobs import MAX_REPLICAS
from iris.model.states import JobState
from iris.model.tags import MEMO_NOTE, check_tag, has_tags, written


@dataclass(frozen=True)
class JobFilter:
    """Which jobs a list has; by default all.

    Args:
        live_only: leaves out ended jobs.
        states: only jobs in these states; empty: in any state.
        user: only jobs of this user; empty: of all.
        since: only jobs submitted at this time or later.
        text: only jobs with this text in their id, command, state, reason, tags or note, in small or capital letters.
        below: only jobs that belong to this job, or to one of those; empty: all.
        prefix: only jobs whose ids begin with this, in which there is no quote and no backslash; empty: all.
        tags: only jobs with all these tags: keys with a value, or with an empty one for any value.
    """

    live_only: bool = False
    states: Collection[JobState] = ()
    user: str = ""
    since: datetime | None = None
    text: str = ""
    below: str = ""
    prefix: str = ""
    tags: Collection[tuple[str, str]] = ()

    @property
    def needs_all(self) -> bool:
        """Returns whether the service cannot check all conditions, so that more jobs must be read than are shown."""
        return bool(self.states or self.text or self.tags)

    @property
    def only_running(self) -> bool:
        """Returns whether no job that has ended is wanted. No ended workflow shows a live state."""
        return self.live_only or (bool(self.states) and not any(state.ended for state in self.states))

    def takes(self, *texts: str, tags: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Returns whether one of a job's texts has the text, and the job all the tags.

        The service has looked for the tags too, but Temporal's dev server takes small and capital letters for the same.
        """
        return has_tags(tags, self.tags) and self.text.casefold() in " ".join(texts).casefold()

    def query(self) -> str:
        """Returns the conditions that the service checks, for the end of a visibility query. It does not check states and text.

        Raises:
            InvalidValue: no user can have this name, or no job such a tag.
        """
        conditions = ["ExecutionStatus != 'ContinuedAsNew'"]
        if self.only_running:
            conditions.append("ExecutionStatus = 'Running'")
        if self.user:
            conditions.append(f"{names.SA_USER} = '{names.check_name('user', self.user)}'")
        for key, value in self.tags:
            check_tag(key, value)
            conditions.append(f"{names.SA_TAGS} = '{written(key, value)}'")
        if self.since is not None:
            conditions.append(f"StartTime >= '{self.since.astimezone(UTC).isoformat()}'")
        return " AND ".join(conditions)


def device_in(memo: Mapping[str, Any]) -> str:
    """Returns the accelerators of each of a job's tasks by its memo; empty if the memo has none."""
    device = memo.get(names.MEMO_DEVICE)
    return device if isinstance(device, str) else ""


def commit_in(memo: Mapping[str, Any]) -> str:
    """Returns the git commit of a job's files by its memo; empty if the memo has none."""
    commit = memo.get(names.MEMO_COMMIT)
    return commit if isinstance(commit, str) else ""


def note_in(memo: Mapping[str, Any]) -> str:
    """Returns what a job's user has noted, by the job's memo; empty if the memo has nothing."""
    note = memo.get(MEMO_NOTE)
    return note if isinstance(note, str) else ""


def reason_in(memo: Mapping[str, Any], state: JobState) -> str:
    """Returns the reason of a job's state by its memo; empty if the memo has none, or that of another state."""
    shown = memo.get(names.MEMO_REASON)
    reason = shown.get("reason") if isinstance(shown, dict) and shown.get("state") == state else None
    return reason if isinstance(reason, str) else ""


def tasks_in(memo: Mapping[str, Any]) -> int:
    """Returns the number of a job's tasks by its memo; 1 if the memo has none: any client can start a workflow with any memo."""
    tasks = memo.get(names.MEMO_TASKS)
    return tasks if isinstance(tasks, int) and 0 < tasks <= max(MAX_REPLICAS, MAX_TASKS) else 1
