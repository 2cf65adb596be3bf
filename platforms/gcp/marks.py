"""What Iris writes on everything that it makes: labels, by which it is found, and metadata, by which it knows itself.

Labels may have lower-case letters, digits, dashes and underscores only; whatever else there is to say is metadata.
"""

import re
from collections.abc import Mapping

from iris import names
from iris.machines import SliceRequest
from iris.platforms.gcp.settings import GcpSettings

#: Label: the cluster's uid. What has another, or none, is somebody else's.
UID = "iris-uid"
#: Label: the cluster's name, for people who look at a bill.
CLUSTER = "iris-cluster"
#: Label: the slice's id, which is the resource's name, too.
SLICE = "iris-slice"
#: Label: the scale group, as far as labels can spell it.
GROUP = "iris-group"
#: Label: `host` or `controller`.
ROLE = "iris-role"
#: Label that people put on what is theirs, whatever else is on it: with `true` it is neither listed nor deleted.
MANUAL = "iris-manual"

#: Metadata of a host: its slice's token, its group as it is written, and how many hosts the slice has.
TOKEN_KEY, GROUP_KEY, HOSTS_KEY = "iris-token", "iris-group", "iris-hosts"
#: Metadata of a host: `host:port` of the cluster's Temporal service. Workers find the control plane by it.
ADDRESS_KEY = "iris-address"
#: Metadata of the control plane's machine: a hash of what it was made of, so that a restart knows whether it is another.
BUILD_KEY = "iris-build"
#: Metadata of the control plane's machine: what it was made with and keeps, as JSON by keys of the configuration.
MADE_KEY = "iris-made-with"
#: Metadata of the control plane's machine: the configuration as YAML, as it is now.
CONFIG_KEY = "iris-config"
STARTUP_KEY = "startup-script"

_UNFIT = re.compile("[^a-z0-9_-]+")


def label(value: str) -> str:
    """The text as a label's value can spell it."""
    return _UNFIT.sub("-", value.lower())[:63].strip("-_")


def owner_labels(settings: GcpSettings, role: str) -> dict[str, str]:
    """The labels of everything that the cluster makes; the prefix is for people's own filters and for firewalls."""
    return {UID: settings.uid, CLUSTER: label(settings.cluster), ROLE: role, f"{settings.label_prefix}-managed": "true"}


def slice_labels(settings: GcpSettings, request: SliceRequest) -> dict[str, str]:
    """The labels of a slice's machines."""
    return {**owner_labels(settings, "host"), SLICE: request.slice_id, GROUP: label(request.group.name)}


def is_ours(settings: GcpSettings, labels: Mapping[str, str]) -> bool:
    """Whether the cluster made it, and nobody has said that it is theirs."""
    return labels.get(UID) == settings.uid and labels.get(MANUAL) != "true"


def controller_name(settings: GcpSettings) -> str:
    """The name of the control plane's machine."""
    return names.controller_machine(settings.label_prefix, settings.cluster)
