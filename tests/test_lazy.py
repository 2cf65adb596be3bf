"""Packages whose modules are imported at their first use."""

import subprocess
import sys

import pytest

from iris.client import fleet
from iris.lazy import modules_of


def test_a_module_is_imported_at_its_first_use() -> None:
    """A command must not pay for the modules of other commands."""
    script = """
import sys
from iris.client import fleet
assert "iris.client.fleet.slices" not in sys.modules
assert fleet.slices is sys.modules["iris.client.fleet.slices"]
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_package_has_no_other_attributes() -> None:
    """`hasattr` and pickle ask for names that no module has."""
    assert not hasattr(fleet, "slises")


def test_a_module_that_needs_a_missing_library_names_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error would otherwise be that the package has no such module."""
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    monkeypatch.delitem(sys.modules, "iris.platforms.manual.connections", raising=False)
    with pytest.raises(ModuleNotFoundError, match="asyncssh"):
        modules_of("iris.platforms.manual")("connections")
