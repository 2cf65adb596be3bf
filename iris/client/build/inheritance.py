"""Gives a child job the settings that it inherits from its parent."""

from collections.abc import Collection
from typing import Any

from pydantic import ValidationError

from iris.client.build.conflicts import invalid_job
from iris.model.host.constraints import REGION, ZONE
from iris.model.job.environments import SETUP_TIMEOUT, EnvironmentSpec
from iris.model.job.spec import JobSpec


def inherit(child: JobSpec, parent: JobSpec, *, given: Collection[str]) -> JobSpec:
    """Returns the child with the parent's settings that it does not choose itself: files,
    environment, variables, secrets, image, directory, priority, and the region and zone.

    Args:
        given: the settings that the child chooses among `files`, `workdir` and `priority`. It
            chooses another setting if the value differs from the default.

    Raises:
        InvalidJob: the child with these settings is not a valid job.
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
        changes["workdir"] = None  # the container does not have a directory of the host
    try:
        return JobSpec(
            **{**{name: getattr(child, name) for name in JobSpec.model_fields}, **changes}
        )
    except ValidationError as error:
        raise invalid_job(error) from None


def _environment(child: EnvironmentSpec, parent: EnvironmentSpec) -> EnvironmentSpec:
    """Returns the parent's environment. If the child has its own, returns that one for the parent's
    project.
    """
    limit = child.setup_timeout
    if child == EnvironmentSpec(setup_timeout=limit):
        return (
            parent if limit == SETUP_TIMEOUT else parent.model_copy(update={"setup_timeout": limit})
        )
    return child.model_copy(update={"project": parent.project, "build_env": parent.build_env})
