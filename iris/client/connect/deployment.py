"""The version by which Temporal's lists know the processes of a cluster."""

from functools import cache
from importlib.metadata import version

from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.common import WorkerDeploymentVersion
from temporalio.worker import WorkerDeploymentConfig

#: Reports of other workers have other names, or none.
_NAME = "iris"


@cache
def own_version() -> str:
    """Returns the version of this installation of Iris."""
    return version("iris-temporal")


def deployment() -> WorkerDeploymentConfig:
    """Returns what a worker reports as its version. Tasks are not routed by it: any version may
    continue a workflow.
    """
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=_NAME, build_id=own_version()),
        use_worker_versioning=False,
    )


def version_in(report: WorkerHeartbeat) -> str | None:
    """Returns the version of the process that sent the report; None: it reports none."""
    reported = report.deployment_version
    return reported.build_id if reported.deployment_name == _NAME else None
