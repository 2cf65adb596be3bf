"""What the commands of every day load, from their start to the answer of the cluster.

Their CPU is nearly all imports. The tests of the command line import the modules of commands; a
running command imports more.
"""

import re
import subprocess
import sys

import pytest

from tests.e2e.cluster import Cluster

#: Beyond what the standard library and `import temporalio.client` load.
OTHER_PACKAGES = {
    "iris",
    "click",
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_inspection",
}
#: The packages of Iris that `jobs` and `status` load anything of.
PACKAGES = {
    "activities",
    "autoscaling",
    "cli",
    "client",
    "lazy",
    "messages",
    "model",
    "retrying",
    "scheduling",
    "storage",
}
#: What they may load of the packages that hold more than a client needs.
PARTS = {
    "activities": {"control", "control.service"},
    "autoscaling": {"liveness"},
    "messages": {"compression", "submission", "wire"},
    "planners": {"pacing"},
    "scheduling": {"placement", "placement.refusals"},
    "storage": {"files"},
    "workflows": {"policies", "search_attributes", "web_ui"},
}


def loaded(errors: str) -> set[str]:
    """Returns the names of the modules that Python has reported on standard error."""
    return set(re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", errors, re.MULTILINE))


def packages(modules: set[str]) -> set[str]:
    tops = {module.partition(".")[0] for module in modules} - set(sys.stdlib_module_names)
    return {top for top in tops if not top.startswith("_")}


@pytest.fixture(scope="module", autouse=True)
def _a_job(cluster: Cluster) -> None:
    cluster.iris("submit", "-n", "loaded", "--", "true")


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "more"),
    [
        (("jobs",), set()),
        (("status", "loaded"), set()),
        (("submit", "-d", "-q", "--", "true"), {"workflows", "planners", "concurrency"}),
    ],
    ids=["jobs", "status", "submit -d"],
)
def test_a_command_loads_what_it_needs_and_none_of_the_rest(
    cluster: Cluster, command: tuple[str, ...], more: set[str]
) -> None:
    """No worker, no platform, and no `rich`, which only a terminal needs. Of the workflows, a
    submit loads what it sets.
    """
    client = [sys.executable, "-X", "importtime", "-c", "import temporalio.client"]
    floor = subprocess.run(client, capture_output=True, text=True, check=True, timeout=120)

    modules = loaded(cluster.iris(*command, PYTHONPROFILEIMPORTTIME="1").err)

    assert packages(modules) - packages(loaded(floor.stderr)) == OTHER_PACKAGES
    assert {module for module in modules if module.startswith("temporalio.worker")} == set()
    own = [
        module.partition(".")[2].partition(".") for module in modules if module.startswith("iris.")
    ]
    assert {package for package, _, _ in own} == PACKAGES | more
    assert {
        f"{package}.{part}"
        for package, _, part in own
        if part and part not in PARTS.get(package, {part})
    } == set()
