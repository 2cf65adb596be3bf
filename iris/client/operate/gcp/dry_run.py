"""Builds the requests that a start would send to Google, as the JSON of Google's APIs. Sends
nothing.
"""

from typing import Any

from iris.config import ClusterConfig, machine_groups, scale_groups_of
from iris.config.controller_settings import GcpControllerConfig
from iris.model import names
from iris.model.slice.keys import KEY_BYTES
from iris.model.slice.provisioning import SliceRequest
from iris.platforms.gcp.controller_vm import insert_request
from iris.platforms.gcp.create_requests import create_request, printed
from iris.platforms.gcp.settings import gcp_settings
from iris.platforms.gcp.startup import host_script

#: The placeholder, in the printed requests of a dry run, for a value that is unknown before the
#: start of the cluster.
UNKNOWN = "unknown-before-the-start"
#: The placeholder, in the printed requests of a dry run, for the random token in each slice's id.
TOKEN = "00000000"  # noqa: S105 - not a secret
#: The placeholder, in the printed requests of a dry run, for the private key of each slice.
SAMPLE_KEY = "00" * KEY_BYTES


def shown_requests(config: ClusterConfig, text: str) -> dict[str, Any]:
    """Returns the requests for the control plane's machine and for one slice of each group, with
    the list of machines over SSH.

    Args:
        text: the configuration as it was written.

    Raises:
        InvalidValue: the configuration is not for Google Cloud.
        PlatformError: Google would refuse a request.
    """
    settings = gcp_settings(config, UNKNOWN, text=text, address=_internal_address(config))
    shown = {}
    machines = {name: list(group.hosts) for name, group in machine_groups(config).items()}
    for group in scale_groups_of(config):
        if group.name in machines:
            continue
        request = SliceRequest(
            slice_id=names.slice_id(config.slice_prefix, group.name, TOKEN),
            cluster=config.name,
            zone=group.zones[0],
            token=UNKNOWN,
            group=group,
        )
        shown[group.name] = printed(
            create_request(settings, request, host_script(settings, request), SAMPLE_KEY)
        )
    requests = {
        "controller": printed(insert_request(settings, config.controller, UNKNOWN)),
        "slices": shown,
    }
    return {**requests, "machines": machines} if machines else requests


def _internal_address(config: ClusterConfig) -> str:
    """Returns the address that hosts use for the control plane: the internal address of its
    machine, which Google chooses.
    """
    if config.controller.temporal is not None:
        return config.controller.temporal.address
    return f"{UNKNOWN}:{(config.controller.gcp or GcpControllerConfig()).port}"
