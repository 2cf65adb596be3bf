"""Checks the sections `bootstrap` and `defaults.bootstrap`: variables, directories, secrets, users
and images of tasks.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from iris.config.checks.values import raised_by
from iris.config.schema import ClusterConfig
from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.host import mounts
from iris.model.host.run_as import parse_run_as
from iris.model.job.environments import has_digest
from iris.model.job.secrets import check_pattern

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def bootstrap_problems(config: ClusterConfig) -> Iterator[InvalidValue]:
    """Yields the errors of the bootstrap sections and of the groups' images of tasks. The defaults
    must have been applied.
    """
    sections = {"defaults.bootstrap": config.defaults.bootstrap, "bootstrap": config.bootstrap}
    for path, bootstrap in sections.items():
        yield from _variables(f"{path}.env_vars", bootstrap.env_vars)
    closed = _closed(config)
    for path, bootstrap in sections.items():
        yield from _mounts(f"{path}.mounts", bootstrap.mounts, closed)
    for path, bootstrap in sections.items():
        for pattern in bootstrap.secrets:
            yield from raised_by(check_pattern, f"{path}.secrets", pattern)
        if bootstrap.run_as:
            yield from raised_by(
                lambda field, text: parse_run_as(text, field), f"{path}.run_as", bootstrap.run_as
            )
    if config.bootstrap.require_image_digests:
        for path, bootstrap in sections.items():
            if "task_image" in bootstrap.model_fields_set:
                yield from _image(f"{path}.task_image", bootstrap.task_image)
        for name, group in config.scale_groups.items():
            if "task_image" in group.model_fields_set:
                yield from _image(f"scale_groups.{name}.task_image", group.task_image)


def _image(path: str, image: str) -> Iterator[InvalidValue]:
    if image and not has_digest(image):
        remedy = "write NAME@sha256:…, or set bootstrap.require_image_digests: false"
        yield InvalidValue(path, image, "names the image by a tag", remedy)


def _variables(path: str, variables: dict[str, str]) -> Iterator[InvalidValue]:
    for name, value in variables.items():
        if "\0" in value:
            yield InvalidValue(
                f"{path}.{name}", value, "has a NUL character, which ends a variable", "remove it"
            )
        if _VARIABLE.fullmatch(name) is None:
            yield InvalidValue(
                f"{path}.{name}",
                name,
                "is not a valid name of a variable",
                "use letters, digits and underscores",
            )
        elif name.startswith(names.RESERVED_PREFIX):
            yield InvalidValue(
                f"{path}.{name}",
                name,
                "is reserved for Iris",
                f"use a name without the prefix {names.RESERVED_PREFIX}",
            )


def _mounts(
    path: str, directories: Sequence[str], closed: Mapping[Path, str]
) -> Iterator[InvalidValue]:
    for directory in directories:
        if not directory.startswith("/"):
            yield InvalidValue(
                path,
                directory,
                "is not an absolute path",
                f"write /{posixpath.normpath(directory)}",
            )
        elif posixpath.normpath(directory).strip("/") == "":
            yield InvalidValue(
                path,
                directory,
                "is the root of the host's file system",
                "list the directories that containers need",
            )
        elif ".." in directory.split("/"):
            yield InvalidValue(
                path, directory, "contains '..'", f"write {posixpath.normpath(directory)}"
            )
        elif why := mounts.why_not(_path(directory), closed):
            yield InvalidValue(
                path, directory, why, "list a directory that has only files for jobs"
            )


def _closed(config: ClusterConfig) -> Mapping[Path, str]:
    """Returns the directories of hosts that no container may mount, each with a clause that says
    what it contains.
    """
    store = urlsplit(config.controller.bundle_prefix)
    own = {
        _path(config.bootstrap.cache_dir): "where the agent has its caches (bootstrap.cache_dir)"
    }
    if store.scheme == "file":
        own[_path(unquote(store.path))] = (
            "where the cluster has its store (controller.bundle_prefix)"
        )
    return mounts.CLOSED | own


def _path(text: str) -> Path:
    return Path("/" + posixpath.normpath(text).strip("/"))
