"""Selects jobs for a list."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from iris.model import names
from iris.model.states import JobState


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
        """Returns the conditions that the service checks, for the end of a visibility query. It cannot check the states.

        Raises:
            InvalidValue: no user can have this name.
        """
        conditions = ["ExecutionStatus != 'ContinuedAsNew'"]
        if self.live_only:
            conditions.append("ExecutionStatus = 'Running'")
        if self.user:
            conditions.append(f"{names.SA_USER} = '{names.check_name('user', self.user)}'")
        if self.since is not None:
            conditions.append(f"StartTime >= '{self.since.astimezone(UTC).isoformat()}'")
        return " AND ".join(conditions)
