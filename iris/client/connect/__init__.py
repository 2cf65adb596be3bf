"""Finds a cluster, connects to its Temporal service and opens the SSH tunnel where one is needed.
Open `connection.py` first, then `clusters.py` for the records of known clusters.
Must not start or stop a cluster: `iris.client.operate` does that."""
