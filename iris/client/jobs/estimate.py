"""Forecasts when a job would run, and estimates what it would cost, before it is submitted."""

from datetime import UTC, datetime

from iris.client.connect.rpc import Connection
from iris.client.fleet.autoscaler import AutoscalerClient
from iris.client.fleet.cluster_store import store_of
from iris.client.fleet.usage_report import read_accounting, read_budgets
from iris.client.jobs.trial import trial_request
from iris.model.job.spec import JobSpec
from iris.scheduling.placement.catalog import Catalog
from iris.scheduling.reasons.forecast import Forecast
from iris.usage.budgets import BudgetUse
from iris.usage.estimate import Estimate, estimate


async def forecast_of(connection: Connection, spec: JobSpec) -> Forecast:
    """Returns what the scheduler would do with the job if it were submitted now.

    Raises:
        InvalidValue: the job demands more of its hosts than the scheduler can represent.
        Unreachable: no control plane answers.
    """
    return await connection.query(connection.scheduler, "forecast", Forecast, trial_request(spec))


async def estimate_of(connection: Connection, spec: JobSpec) -> Estimate | None:
    """Returns what the job costs at most if each of its tasks runs once until its time limit. None
    if it has no time limit, or if no scale group that could run it has a price.

    Raises:
        InvalidValue: the job demands more of its hosts than the scheduler can represent.
        Unreachable: no control plane or no store answers.
        IrisError: the store cannot be read.
    """
    if spec.timeout is None or not connection.record.store:
        return None
    request = trial_request(spec)
    accounting = await read_accounting(store_of(connection), connection.record.name)
    if not accounting.rates:
        return None
    settings = (await AutoscalerClient(connection).status()).settings
    candidates = Catalog(settings.groups if settings else ()).candidates(request)
    return estimate(
        ((each.group, each.zones) for each in candidates),
        request.resources,
        request.tasks if spec.coscheduling else spec.replicas,
        spec.timeout,
        accounting,
        datetime.now(UTC),
    )


async def budgets_of(connection: Connection, user: str) -> tuple[BudgetUse, ...]:
    """Returns how much is used of each budget that counts the user's jobs.

    Raises:
        Unreachable, IrisError: the store does not answer.
    """
    if not connection.record.store:
        return ()
    found = await read_budgets(store_of(connection), connection.record.name)
    return tuple(use for use in found if user in use.users)
