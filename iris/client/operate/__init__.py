"""Starts, stops, inspects and repairs clusters. `controller.py` has the interface of a control
plane, and `make_controller.py` makes the control plane of a cluster. Must not print or prompt:
callers pass a function that receives progress messages.
"""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.client.operate import cluster_manager as cluster_manager
    from iris.client.operate import key_rotation as key_rotation
    from iris.client.operate import make_controller as make_controller
else:
    __getattr__ = modules_of(__name__)
