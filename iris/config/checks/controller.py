"""Checks the section `controller` against the platform and the name of the cluster."""

import re
from collections.abc import Iterator

from iris.config.checks.values import gcp_zone
from iris.config.controller_settings import TemporalService
from iris.config.schema import ClusterConfig
from iris.model import names
from iris.model.errors import InvalidValue

#: The limit on characters of a VM's name. Source: the field `name` in
#: cloud.google.com/compute/docs/reference/rest/v1/instances
_MAX_MACHINE = 63
#: Matches the URL of a bucket, or the `file:///` URL of a directory.
_STORE = re.compile(r"file:///.|(?!file:)[a-z][a-z0-9+.-]*://[^/]")
_LAST_PORT = 65535


def controller_problems(config: ClusterConfig) -> Iterator[InvalidValue]:
    """Yields the errors of the section `controller`. The defaults must have been applied."""
    yield from _kind(config)
    if config.controller.temporal is not None:
        yield from _temporal(config, config.controller.temporal)
    if config.platform.gcp is None:
        yield from _keys_outside_google(config)
    if config.controller.kind == "gcp":
        yield from _machine(config)
    yield from _store(config)


def _kind(config: ClusterConfig) -> Iterator[InvalidValue]:
    """Yields an error if the chosen control plane cannot serve the hosts of the platform."""
    kind, platform = config.controller.kind, config.platform
    elsewhere = f"does not work with platform.{platform.kind}"
    if not kind:
        remedy = "add local: {} to run it on the machine that starts the cluster"
        yield InvalidValue("controller", "", "does not say where the control plane runs", remedy)
    if kind == "gcp" and platform.gcp is None:
        remedy = "use another controller, or use platform.gcp"
        yield InvalidValue("controller.gcp", "gcp", elsewhere, remedy)
    if kind == "local" and platform.gcp is not None:
        remedy = "use gcp; iris cluster start --local runs any configuration locally"
        problem = "does not work with platform.gcp, whose hosts have to reach the control plane"
        yield InvalidValue("controller.local", "local", problem, remedy)
    if kind == "manual" and platform.manual is None:
        remedy = "use another controller, or use platform.manual"
        yield InvalidValue("controller.manual", "manual", elsewhere, remedy)


def _temporal(config: ClusterConfig, temporal: TemporalService) -> Iterator[InvalidValue]:
    if config.platform.gcp is None and temporal.tls:
        problem = f"does not work with platform.{config.platform.kind}"
        remedy = (
            "remove it and its credentials; set Temporal's environment variables for the machines"
        )
        yield InvalidValue("controller.temporal.tls", "true", problem, remedy)


def _keys_outside_google(config: ClusterConfig) -> Iterator[InvalidValue]:
    """Yields an error for each reference to keys that works only on Google Cloud."""
    controller = config.controller
    problem = f"does not work with platform.{config.platform.kind}"
    if controller.payload_keys:
        remedy = f"remove it and set {names.ENV_PAYLOAD_KEYS}=FILE where you start the cluster"
        yield InvalidValue("controller.payload_keys", controller.payload_keys, problem, remedy)
    if controller.secret_keys:
        remedy = "remove it: the control plane makes its keys for users' secrets itself"
        yield InvalidValue("controller.secret_keys", controller.secret_keys, problem, remedy)


def _machine(config: ClusterConfig) -> Iterator[InvalidValue]:
    """Yields the errors of the control plane's virtual machine on Google Cloud."""
    machine = names.controller_machine(config.slice_prefix, config.name)
    if len(machine) > _MAX_MACHINE:
        problem = f"makes the name of the control plane's machine, {machine}, too long"
        surplus = len(machine) - _MAX_MACHINE
        remedy = f"shorten it, or platform.gcp.label_prefix, by {surplus} characters"
        yield InvalidValue("name", config.name, problem, remedy)
    if not config.controller.image:
        problem = "is required by controller.gcp"
        yield InvalidValue("controller.image", "", problem, "set a container image")
    settings = config.controller.gcp
    if settings is None:
        return
    if config.platform.gcp is not None and (
        "zone" in settings.model_fields_set or not settings.zone
    ):
        yield from gcp_zone("controller.gcp.zone", settings.zone)
    if settings.port == _LAST_PORT:
        problem = "leaves no port for the Web UI, which uses the next port"
        remedy = f"use a port from 1 to {_LAST_PORT - 1}"
        yield InvalidValue("controller.gcp.port", settings.port, problem, remedy)


def _store(config: ClusterConfig) -> Iterator[InvalidValue]:
    """Yields an error if the object store is missing or not reachable for all hosts."""
    prefix, kind, field = (
        config.controller.bundle_prefix,
        config.controller.kind,
        "controller.bundle_prefix",
    )
    if not prefix and kind == "gcp":
        remedy = "set a URL, such as gs://bucket/path"
        yield InvalidValue(field, "", "is required by controller.gcp", remedy)
    elif not prefix and kind in ("local", "manual") and config.platform.manual is not None:
        remedy = (
            "set a place that every host reaches: s3://bucket/path, gs://bucket/path, or"
            " file:///PATH of a shared directory"
        )
        yield InvalidValue(field, "", "is required by platform.manual", remedy)
    elif prefix and _STORE.match(prefix) is None:
        remedy = "use a URL such as gs://bucket/path or s3://bucket/path"
        yield InvalidValue(field, prefix, "is not the URL of an object store", remedy)
