"""Estimates what a job costs, from the cluster's prices and scale groups."""

from datetime import UTC, datetime, timedelta

from iris.client.connect.rpc import Connection
from iris.client.fleet.autoscaler import AutoscalerClient
from iris.client.fleet.cluster_store import store_of
from iris.client.fleet.usage_report import read_accounting
from iris.model.job.requests import Request
from iris.model.job.spec import JobSpec
from iris.scheduling.placement.catalog import Catalog
from iris.usage.estimate import Estimate, estimate


async def estimate_of(
    connection: Connection, spec: JobSpec, limit: timedelta, request: Request
) -> Estimate | None:
    """Returns what the job costs at most; None if no scale group that could run it has a price.

    Args:
        limit: the time limit of an attempt.
        request: the request of the job's gang, or of its first task.

    Raises:
        Unreachable: no control plane or no store answers.
        IrisError: the store cannot be read.
    """
    accounting = await read_accounting(store_of(connection), connection.record.name)
    if not accounting.rates:
        return None
    settings = (await AutoscalerClient(connection).status()).settings
    candidates = Catalog(settings.groups if settings else ()).candidates(request)
    return estimate(
        ((each.group, each.zones) for each in candidates),
        request.resources,
        request.tasks if spec.coscheduling else spec.replicas,
        limit,
        accounting,
        datetime.now(UTC),
    )
