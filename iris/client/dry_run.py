"""What Google would be asked for by a start, as its APIs' own JSON. Nobody is asked anything."""

from typing import Any

from iris import names
from iris.config import ClusterConfig, groups
from iris.config_models import GcpController
from iris.machines import SliceRequest
from iris.platforms.gcp.controller_vm import insert_request
from iris.platforms.gcp.requests import create_request, printed
from iris.platforms.gcp.settings import gcp_settings
from iris.platforms.gcp.startup import host_script

#: In the place of what is only known of a cluster that was started.
UNKNOWN = "unknown-before-the-start"
#: In the place of what is chosen for each slice.
TOKEN = "00000000"


def shown_requests(config: ClusterConfig, text: str) -> dict[str, Any]:
    """The control plane's machine, and a slice of each group.

    Args:
        text: the configuration as it was written.

    Raises:
        InvalidValue: the configuration is not for Google Cloud.
        PlatformError: Google would not take it.
    """
    settings = gcp_settings(config, UNKNOWN, text=text, address=_internal_address(config))
    shown = {}
    for group in groups(config):
        request = SliceRequest(
            slice_id=names.slice_id(config.slice_prefix, group.name, TOKEN),
            cluster=config.name,
            zone=group.zones[0],
            token=UNKNOWN,
            group=group,
        )
        shown[group.name] = printed(create_request(settings, request, host_script(settings, request)))
    return {"controller": printed(insert_request(settings, config.controller, UNKNOWN)), "slices": shown}


def _internal_address(config: ClusterConfig) -> str:
    """As hosts reach the control plane: its machine's address in the network, which Google chooses."""
    if config.controller.temporal is not None:
        return config.controller.temporal.address
    return f"{UNKNOWN}:{(config.controller.gcp or GcpController()).port}"
