"""Telling a cluster's planners what its configuration says."""

from temporalio.client import Client

from iris import names
from iris.config import ClusterConfig, groups, rules
from iris.workflows.fleet_messages import ScalingSettings
from iris.workflows.messages import Batch, Configure


def scaling_settings(config: ClusterConfig) -> ScalingSettings:
    """What the autoscaler is to do."""
    return ScalingSettings(
        groups=groups(config),
        prefix=config.slice_prefix,
        evaluation_interval=config.autoscaler.evaluation_interval,
        observe_interval=config.autoscaler.observe_interval,
    )


async def tell_planners(client: Client, cluster: str, config: ClusterConfig) -> None:
    """Let the scheduler know its rules and what can be made, and the autoscaler what it may make. Saying it again changes
    nothing."""
    scheduler = client.get_workflow_handle(names.scheduler_workflow(cluster))
    settings = scaling_settings(config)
    await scheduler.signal("deliver", Batch(messages=(Configure(rules=rules(config), groups=settings.groups),)))
    autoscaler = client.get_workflow_handle(names.autoscaler_workflow(cluster))
    await autoscaler.signal("configure", settings)
