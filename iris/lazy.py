"""Imports the modules of a package at their first use.

A command or a program needs a few of Iris's modules, and imports are most of the time that a short
command takes. A package whose `__getattr__` is `modules_of(__name__)` is imported without its
modules: after `from iris.client import fleet`, the first use of `fleet.slices` imports
`iris.client.fleet.slices`, and later ones are attributes of the package (PEP 562). The package
names the modules that are used in this way for type checkers.
"""

import importlib
from collections.abc import Callable
from types import ModuleType


def modules_of(package: str) -> Callable[[str], ModuleType]:
    """Returns the function that imports a module of the package by its last name.

    Raises:
        AttributeError: the function raises it if the package has no such module.
    """

    def imported(name: str) -> ModuleType:
        module = f"{package}.{name}"
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None

    return imported
