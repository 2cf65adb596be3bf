"""What the recovery of the scheduler does with a workflow that cannot be queried, and with a server
that is away.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from iris.activities.control.notifier import PATIENT_ATTEMPTS
from iris.activities.control.recovery import RecoveryQueries
from iris.model import names
from iris.scheduling.ledger.recovery import GangReport, RecoveryCursor, RecoveryPage
from tests.builders import a_request


@dataclass
class Server:
    """Has two jobs that wait; some of them have an error instead of an answer."""

    errors: dict[str, Exception]
    current_page: Sequence[Any] = field(init=False)
    next_page_token: bytes | None = None

    def list_workflows(self, query: str, **settings: Any) -> "Server":
        self.current_page = [
            SimpleNamespace(id=names.job_workflow("here", job), run_id="run") for job in ("a", "b")
        ]
        return self

    async def fetch_next_page(self, *, page_size: int) -> None:
        pass

    def get_workflow_handle(self, workflow_id: str, *, run_id: str) -> "Handle":
        job = workflow_id.rpartition("/")[2]
        return Handle(job, self.errors.get(job))


@dataclass
class Handle:
    job: str
    error: Exception | None

    async def query(self, name: str, *, result_type: type) -> GangReport:
        if self.error is not None:
            raise self.error
        return GangReport(request=a_request(self.job))


async def recover(errors: dict[str, Exception], attempt: int = 1) -> list[str]:
    """Returns the keys of the requests that a page of the recovery reports."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt)
    page: RecoveryPage = await environment.run(
        RecoveryQueries(cast(Client, Server(errors))).query_page, RecoveryCursor(cluster="here")
    )
    return [report.request.key for report in page.claims if report.request is not None]


@pytest.mark.parametrize(
    "code",
    [RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.INTERNAL, RPCStatusCode.INVALID_ARGUMENT],
)
async def test_a_workflow_whose_answer_is_always_an_error_does_not_block_the_recovery(
    code: RPCStatusCode,
) -> None:
    """Nothing at all is placed before the recovery ends."""
    stuck = {"a": RPCError("cannot answer", code, b"")}
    with pytest.raises(RPCError):
        await recover(stuck, attempt=PATIENT_ATTEMPTS)

    assert await recover(stuck, attempt=PATIENT_ATTEMPTS + 1) == ["b"]


async def test_an_answer_that_cannot_be_read_does_not_block_the_recovery() -> None:
    """A workflow that another version started may answer in a way that this one does not know."""
    assert await recover({"a": ValueError("request: Field required")}) == ["b"]


async def test_a_server_that_is_away_is_no_reason_to_go_without_a_workflow() -> None:
    """A scheduler without the gangs that run would place others on their hosts."""
    with pytest.raises(RPCError):
        await recover({"a": RPCError("shutting down", RPCStatusCode.UNAVAILABLE, b"")}, attempt=100)
