"""Implements a platform on Google Cloud: TPU nodes, queued resources, virtual machines, and the
machine of the control plane.

Open `platform.py` first: `GcpPlatform` implements the five calls. `controller_ops.py` operates the
control plane's machine. Code here must not touch machines without this cluster's uid label, nor
machines marked as manual.
"""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.platforms.gcp import platform as platform
    from iris.platforms.gcp import secret_manager as secret_manager
else:
    __getattr__ = modules_of(__name__)
