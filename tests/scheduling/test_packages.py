"""The order of the packages of `iris.scheduling`."""

import pytest

from tests.test_architecture import ROOT, facts

#: Each package may import those before it.
ORDER = ("quotas", "placement", "reasons", "ledger", "jobs")


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_those_before_it(package: str) -> None:
    """Placement can be understood without the ledger, and the ledger without the jobs."""
    later = tuple(f"iris.scheduling.{each}." for each in ORDER[ORDER.index(package) + 1 :])
    files = sorted((ROOT / "iris/scheduling" / package).glob("*.py"))

    assert files
    assert [
        (file.name, module)
        for file in files
        for module in facts(file.read_text()).imports
        if module.startswith(later)
    ] == []
