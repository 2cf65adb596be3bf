"""The messages and the two clients of `google.cloud.compute_v1` that Iris uses.

The package imports the clients of all of Compute's 110 services, 1,000 modules, which take most of
a second of CPU: every command about a cluster on Google would pay it. Here it stays without its
content until somebody else asks it for more, such as a program of the user.
"""

import importlib.util
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

PACKAGE = "google.cloud.compute_v1"


class _Deferred(ModuleType):
    """A package that runs its `__init__` only when a program reads an attribute that is not one of
    the package's modules.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":  # which Python asks any module for
            raise AttributeError(name)
        try:
            return import_module(f"{self.__name__}.{name}")
        except ModuleNotFoundError:
            self.__class__ = ModuleType  # type: ignore[assignment]  # nothing is deferred any more
            assert self.__spec__ is not None
            assert self.__spec__.loader is not None
            self.__spec__.loader.exec_module(self)
            return getattr(self, name)


def _defer() -> None:
    """Makes the package known without running its `__init__`."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or PACKAGE in sys.modules:
        return  # it is missing, which the import says, or it is there
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _Deferred
    sys.modules[PACKAGE] = package
    parent, _, name = PACKAGE.rpartition(".")
    setattr(sys.modules[parent], name, package)


_defer()

from google.cloud.compute_v1.services.instances import InstancesClient  # noqa: E402
from google.cloud.compute_v1.services.instances.pagers import AggregatedListPager  # noqa: E402
from google.cloud.compute_v1.services.zone_operations import ZoneOperationsClient  # noqa: E402
from google.cloud.compute_v1.types import compute as compute_v1  # noqa: E402

__all__ = ["AggregatedListPager", "InstancesClient", "ZoneOperationsClient", "compute_v1"]
