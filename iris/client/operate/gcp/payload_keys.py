"""Checks that this machine and a cluster on Google Cloud encrypt payloads with the same keys."""

from iris.client.connect.encryption import payload_keys
from iris.config import ClusterConfig
from iris.model import names
from iris.model.errors import InvalidValue

#: The configuration key that names the secret with the keys.
_FIELD = "controller.payload_keys"


def check_payload_keys(config: ClusterConfig) -> None:
    """Checks the keys of a cluster on Google Cloud, before its machines cost anything.

    Raises:
        InvalidValue: the machines on Google Cloud or this machine could not decrypt what the other
            side encrypts; or the file of keys cannot be used.
    """
    keys, configured = payload_keys(), config.controller.payload_keys
    if keys is not None and not configured:
        problem = (
            "is only on this machine, and the machines on Google Cloud could not read what it"
            " encrypts"
        )
        remedy = (
            f"store the file in Secret Manager and set {_FIELD}: gcp:SECRET, or unset the variable"
        )
        raise InvalidValue(names.ENV_PAYLOAD_KEYS, keys.source, problem, remedy)
    if keys is None and configured:
        problem = (
            f"is empty, and this machine could not read what the cluster encrypts ({_FIELD} is set)"
        )
        raise InvalidValue(
            names.ENV_PAYLOAD_KEYS,
            "",
            problem,
            f"name the file with its keys: {names.ENV_PAYLOAD_KEYS}=FILE",
        )
