"""Sends a configuration to a cluster's scheduler and autoscaler."""

from temporalio.client import Client

from iris.config import ClusterConfig, quotas_of, rules_of, scale_groups_of
from iris.messages.autoscaler import ScalingSettings
from iris.messages.scheduler import Batch, Configure
from iris.model import names


def scaling_settings(config: ClusterConfig) -> ScalingSettings:
    """Converts a configuration to the autoscaler's settings."""
    return ScalingSettings(
        groups=scale_groups_of(config),
        prefix=config.slice_prefix,
        evaluation_interval=config.autoscaler.evaluation_interval,
        observe_interval=config.autoscaler.observe_interval,
    )


async def configure_planners(client: Client, cluster: str, config: ClusterConfig) -> None:
    """Sends the scheduler its rules, quotas and scale groups, and the autoscaler its settings.
    Sending the same configuration again changes nothing.
    """
    scheduler = client.get_workflow_handle(names.scheduler_workflow(cluster))
    settings = scaling_settings(config)
    scheduling = Configure(rules=rules_of(config), groups=settings.groups, quotas=quotas_of(config))
    await scheduler.signal("deliver", Batch(messages=(scheduling,)))
    autoscaler = client.get_workflow_handle(names.autoscaler_workflow(cluster))
    await autoscaler.signal("configure", settings)
