"""Defines the labels and metadata keys of the resources that Iris creates: Iris finds a resource by
its labels, and a machine reads its own facts from its metadata.

Labels allow only lower-case letters, digits, dashes and underscores. All other text goes into
metadata.
"""

import re
from collections.abc import Mapping

from iris.model import names
from iris.model.slice.provisioning import SliceRequest
from iris.platforms.gcp.settings import GcpSettings

#: Label: the cluster's uid. A resource with another uid, or without one, does not belong to the
#: cluster.
UID = "iris-uid"
#: Label: the cluster's name, for people who read a bill.
CLUSTER = "iris-cluster"
#: Label: the slice's id, which is also the resource's name.
SLICE = "iris-slice"
#: Label: the name of the scale group, as `label` converts it.
GROUP = "iris-group"
#: Label: `host` or `controller`.
ROLE = "iris-role"
#: Label that people set to `true` to keep a resource: Iris then neither lists nor deletes it,
#: whatever its other labels are.
MANUAL = "iris-manual"

#: Metadata of a host: the private key of its slice, which the machine's agent signs its reports
#: with, and the public key.
PRIVATE_KEY, PUBLIC_KEY = "iris-private-key", "iris-public-key"
#: Metadata of a host: the token of its slice's request, the exact name of its group, and the number
#: of hosts of the slice.
TOKEN_KEY, GROUP_KEY, HOSTS_KEY = "iris-token", "iris-group", "iris-hosts"
#: Metadata of a host: `host:port` of the cluster's Temporal service. The host's worker finds the
#: control plane with it.
ADDRESS_KEY = "iris-address"
#: Metadata of the control plane's machine: a hash of its definition. A restart compares it to see
#: whether the definition changed.
BUILD_KEY = "iris-build"
#: Metadata of the control plane's machine: the settings that it keeps from its creation on, as JSON
#: by configuration key.
MADE_KEY = "iris-made-with"
#: Metadata of the control plane's machine: the current configuration as YAML.
CONFIG_KEY = "iris-config"
STARTUP_KEY = "startup-script"

_UNFIT = re.compile("[^a-z0-9_-]+")


def label(value: str) -> str:
    """Converts a text to a valid label value."""
    return _UNFIT.sub("-", value.lower())[:63].strip("-_")


def owner_labels(settings: GcpSettings, role: str) -> dict[str, str]:
    """Returns the labels of all resources that the cluster creates. The prefixed one is for users'
    filters and firewall rules.
    """
    return {
        UID: settings.uid,
        CLUSTER: label(settings.cluster),
        ROLE: role,
        f"{settings.label_prefix}-managed": "true",
    }


def slice_labels(settings: GcpSettings, request: SliceRequest) -> dict[str, str]:
    """Returns the labels of a slice's machines."""
    return {
        **owner_labels(settings, "host"),
        SLICE: request.slice_id,
        GROUP: label(request.group.name),
    }


def is_ours(settings: GcpSettings, labels: Mapping[str, str]) -> bool:
    """Returns True if the labels carry this cluster's uid and are not marked as manual."""
    return labels.get(UID) == settings.uid and labels.get(MANUAL) != "true"


def controller_name(settings: GcpSettings) -> str:
    """Returns the name of the control plane's machine."""
    return names.controller_machine(settings.label_prefix, settings.cluster)
