"""Finds out how a client in a program reaches the program's own cluster."""

from iris.client.connect.clusters import read_record
from iris.client.connect.paths import state_dir
from iris.model import names


def contact_env(address: str, namespace: str, cluster: str) -> dict[str, str]:
    """Returns the variables by which `iris` in a program finds the cluster. They hold no
    credentials.

    Args:
        address: that of the cluster's Temporal service, as this agent reaches it.
    """
    contact = {names.ENV_ADDRESS: f"{address}/{cluster}"}
    if namespace != "default":
        contact[names.ENV_NAMESPACE] = namespace
    record = read_record(cluster)
    if record is not None and record.supervisor is not None and record.address == address:
        # The path finds a cluster of this machine, also if its user has moved the directory.
        contact[names.ENV_STATE_DIR] = str(state_dir())
    return contact
