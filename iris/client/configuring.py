"""Telling a cluster's planners what its configuration says."""

from temporalio.client import Client

from iris import names
from iris.config import ClusterConfig, groups
from iris.placement import Rules
from iris.workflows.fleet_messages import ScalingSettings
from iris.workflows.messages import Batch, Configure


def scaling_settings(config: ClusterConfig) -> ScalingSettings:
    """What the autoscaler is to do."""
    gcp = config.platform.gcp
    return ScalingSettings(
        groups=groups(config),
        prefix=gcp.label_prefix if gcp is not None else "",
        evaluation_interval=config.autoscaler.evaluation_interval,
        observe_interval=config.autoscaler.observe_interval,
    )


async def tell_planners(client: Client, cluster: str, config: ClusterConfig, rules: Rules | None = None) -> None:
    """Let the scheduler know what can be made, and the autoscaler what it may make. Saying it again changes nothing.

    Args:
        rules: the scheduler's; None: those that it has.
    """
    scheduler = client.get_workflow_handle(names.scheduler_workflow(cluster))
    await scheduler.signal("deliver", Batch(messages=(Configure(rules=rules, groups=groups(config)),)))
    autoscaler = client.get_workflow_handle(names.autoscaler_workflow(cluster))
    await autoscaler.signal("configure", scaling_settings(config))
