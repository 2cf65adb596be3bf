"""Gives a child job what it inherits from its parent."""

from collections.abc import Collection
from typing import Any

from pydantic import ValidationError

from iris.client.build.conflicts import invalid_job
from iris.model.host.constraints import REGION, ZONE
from iris.model.job.environments import SETUP_TIMEOUT, EnvironmentSpec
from iris.model.job.spec import JobSpec


def inherit(child: JobSpec, parent: JobSpec, *, given: Collection[str]) -> JobSpec:
    """Returns the child with what it has from its parent: all but the resources, the devices, the
    times and the numbers.

    Args:
        given: what was chosen for the child, among `files`, `workdir` and `priority`. Other options
            count as chosen if they differ from the default.

    Raises:
        InvalidJob: both together are not a valid job.
    """
    changes: dict[str, Any] = {
        "env": (
            {name: value for name, value in parent.env.items() if name not in child.secrets}
            | child.env
        ),
        "secrets": (
            {name: source for name, source in parent.secrets.items() if name not in child.env}
            | child.secrets
        ),
        "image": child.image or parent.image,
        "band": child.band if "priority" in given else parent.band,
    }
    if not any(each.key in (REGION, ZONE) for each in child.constraints):
        changes["constraints"] = (
            *child.constraints,
            *(each for each in parent.constraints if each.key in (REGION, ZONE)),
        )
    if "files" not in given:
        changes |= {
            "bundle": parent.bundle,
            "environment": _environment(child.environment, parent.environment),
        }
        changes["workdir"] = parent.workdir if changes["image"] == parent.image else None
    elif "workdir" not in given and child.image is None and parent.image is not None:
        changes["workdir"] = None  # a directory of the host, which the container does not have
    try:
        return JobSpec(
            **{**{name: getattr(child, name) for name in JobSpec.model_fields}, **changes}
        )
    except ValidationError as error:
        raise invalid_job(error) from None


def _environment(child: EnvironmentSpec, parent: EnvironmentSpec) -> EnvironmentSpec:
    """Returns the parent's environment, or the child's own for the parent's project."""
    limit = child.setup_timeout
    if child == EnvironmentSpec(setup_timeout=limit):
        return (
            parent if limit == SETUP_TIMEOUT else parent.model_copy(update={"setup_timeout": limit})
        )
    return child.model_copy(update={"project": parent.project, "build_env": parent.build_env})
