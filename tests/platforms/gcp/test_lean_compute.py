"""The client of Compute without the services that Iris does not use."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys

def services():
    prefix = "google.cloud.compute_v1.services."
    return {name.removeprefix(prefix).split(".")[0] for name in sys.modules if name.startswith(prefix)}

import iris.platforms.gcp.platform
import iris.client.operate.gcp.controller
from iris.platforms.gcp.lean_compute import InstancesClient, compute_v1 as ours
print(*sorted(services()))

from google.cloud import compute_v1
print(compute_v1.types.Instance is ours.Instance, *sorted(services()))
print(compute_v1.Disk is ours.Disk, compute_v1.InstancesClient is InstancesClient)
print(compute_v1.DisksClient.__name__, hasattr(compute_v1, "Nothing"))
"""


@pytest.mark.long
def test_iris_imports_two_services_of_compute_and_a_users_program_gets_all_of_them() -> None:
    """The others take most of a second of CPU in each command about Google. A program that uses
    Iris as a library finds the package whole, with the same classes.
    """
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (ran.stderr, ran.stdout.splitlines()) == (
        "",
        [
            "instances zone_operations",
            "True instances zone_operations",
            "True True",
            "DisksClient False",
        ],
    )
