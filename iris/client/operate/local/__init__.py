"""The control plane on this machine."""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.client.operate.local import controller as controller
else:
    __getattr__ = modules_of(__name__)
