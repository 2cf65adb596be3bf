"""Opens the store of a cluster."""

from iris.client.connect.rpc import Connection
from iris.model.errors import Rejected
from iris.storage.object_store import Store


def store_of(connection: Connection, without: str = "its use is not recorded") -> Store:
    """Returns the cluster's store.

    Args:
        without: what a cluster without a store lacks, for the error.

    Raises:
        Rejected: it has none.
    """
    record = connection.record
    if not record.store:
        raise Rejected(
            f"cluster {record.name} has no store, so {without}; start its control plane with one"
        )
    return Store(record.store)
