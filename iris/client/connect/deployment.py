"""The version of Iris that a worker reports to Temporal."""

from functools import cache
from importlib.metadata import version

from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.common import WorkerDeploymentVersion
from temporalio.worker import WorkerDeploymentConfig

#: The deployment name that workers of Iris report to Temporal. Other workers report other names, or
#: no name.
_NAME = "iris"


@cache
def own_version() -> str:
    """Returns the version of this installation of Iris."""
    return version("iris-temporal")


def deployment() -> WorkerDeploymentConfig:
    """Returns the version that a worker reports. Temporal does not route tasks by it: a worker of
    any version may continue a workflow.
    """
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=_NAME, build_id=own_version()),
        use_worker_versioning=False,
    )


def version_in(report: WorkerHeartbeat) -> str | None:
    """Returns the version of the process that sent the report; None if it has no version."""
    reported = report.deployment_version
    return reported.build_id if reported.deployment_name == _NAME else None
