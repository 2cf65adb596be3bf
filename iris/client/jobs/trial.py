"""The request that a job would send to the scheduler if it were submitted now."""

from datetime import UTC, datetime

from iris.client.connect.rpc import Connection
from iris.model.frozen import Frozen
from iris.model.job.demand_limits import check_demands
from iris.model.job.requests import Request, request_for
from iris.model.job.spec import JobSpec
from iris.scheduling.placement.refusals import Refusal


class _Feasibility(Frozen):
    """The scheduler's answer to the question whether a job can ever run. `refusal` is None if it
    can. This class reads the messages that the scheduler writes as `Answer`; the module of `Answer`
    is not imported here, because it imports the scheduler's state.
    """

    refusal: Refusal | None = None


async def why_infeasible(connection: Connection, spec: JobSpec) -> Refusal | None:
    """Returns why no existing host can ever run the job. Returns None if a host can.

    Raises:
        InvalidValue: the job demands more of its hosts than the scheduler can represent.
        Unreachable: no control plane answers.
    """
    return (
        await connection.query(connection.scheduler, "never", _Feasibility, trial_request(spec))
    ).refusal


def trial_request(spec: JobSpec) -> Request:
    """Returns the request that the job would send to the scheduler. If its tasks are independent,
    this is the request of the first task.

    Raises:
        InvalidValue: the job demands more of its hosts than the scheduler can represent.
    """
    check_demands(spec)
    return request_for(
        spec,
        index=0,
        attempt=1,
        run_id="forecast",
        owner="forecast",
        submitted_at=datetime.now(UTC),
    )
