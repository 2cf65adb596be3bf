"""The control plane and hosts on the user's own machines, over SSH."""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.client.operate.manual import controller as controller
    from iris.client.operate.manual import start as start
else:
    __getattr__ = modules_of(__name__)
