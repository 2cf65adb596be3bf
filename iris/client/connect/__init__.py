"""Finds a cluster, connects to its Temporal service and opens the SSH tunnel where one is needed.
Open `connection.py` first, then `cluster_ref.py`, which decides which cluster a command acts on.
Must not start or stop a cluster: `iris.client.operate` does that."""
