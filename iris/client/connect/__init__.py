"""Finds a cluster, connects to its Temporal service, and opens an SSH tunnel if the cluster needs
one. Open `connection.py` first, then `cluster_ref.py`, which decides which cluster a command acts
on. Must not start or stop a cluster: `iris.client.operate` does that.
"""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.client.connect import controller_vm as controller_vm
else:
    __getattr__ = modules_of(__name__)
