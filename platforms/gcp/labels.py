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

#: The label with the cluster's uid. A resource with another uid, or without a uid, does not belong
#: to the cluster.
UID = "iris-uid"
#: The label with the cluster's name, for people who read a bill.
CLUSTER = "iris-cluster"
#: The label with the slice's id, which is also the resource's name.
SLICE = "iris-slice"
#: The label with the name of the scale group, which `label` converts to a valid label value.
GROUP = "iris-group"
#: The label with the role of the machine: `host` or `controller`.
ROLE = "iris-role"
#: The label that people set to `true` to keep a resource. Iris then neither lists nor deletes the
#: resource, whatever its other labels are.
MANUAL = "iris-manual"

#: The entries in a host's metadata with the private and the public key of its slice. The machine's
#: agent signs its reports with the private key.
PRIVATE_KEY, PUBLIC_KEY = "iris-private-key", "iris-public-key"
#: The entries in a host's metadata with the token that identifies the request for its slice, the
#: exact name of its scale group, and the number of hosts of its slice.
TOKEN_KEY, GROUP_KEY, HOSTS_KEY = "iris-token", "iris-group", "iris-hosts"
#: The metadata key of a host for the `host:port` of the cluster's Temporal service. The host's
#: agent connects to the control plane there.
ADDRESS_KEY = "iris-address"
#: The metadata key of the control plane's machine for a hash of the machine's definition. A restart
#: compares the hash to see whether the definition has changed.
BUILD_KEY = "iris-build"
#: The metadata key of the control plane's machine for the settings that cannot change after its
#: creation, as JSON by configuration key.
MADE_KEY = "iris-made-with"
#: The metadata key of the control plane's machine for the current configuration, as YAML.
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
