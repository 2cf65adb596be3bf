"""What an agent loads: every host of a fleet pays for it in memory and in the time until it takes
work.
"""

import json
import subprocess
import sys

import pytest

#: The packages that an agent needs besides the standard library. `google` has protobuf alone.
PACKAGES = {
    "click",
    "cryptography",
    "google",
    "iris",
    "nexusrpc",
    "obstore",
    "psutil",
    "pydantic",
    "pydantic_core",
    "temporalio",
    "uv",
}
#: Packages that only these import. Some are there only on some systems.
OF_THESE = {
    "_cffi_backend",
    "_openssl",
    "annotated_types",
    "grpc",
    "typing_extensions",
    "typing_inspection",
}


@pytest.mark.long
def test_an_agent_loads_no_library_and_no_code_of_other_roles() -> None:
    """The libraries of Google, of container registries and of terminals would double its memory;
    secrets import Google's late.
    """
    script = """
import json, sys
import iris.cli.processes.agent, iris.worker_agents.host.agent
print(json.dumps(sorted(name for name in sys.modules if not name.startswith("_"))))
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    modules = set(json.loads(ran.stdout))

    packages = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - OF_THESE
    assert packages - {"cython_runtime"} <= PACKAGES
    assert not {
        name
        for name in modules
        if name.startswith(("google.cloud", "google.api_core", "google.auth"))
    }
    assert not {
        name
        for name in modules
        if name.startswith(("iris.config", "iris.platforms."))
        and name not in ("iris.platforms.base", "iris.platforms.gcp")  # a package, no module of it
    }
    planners = (
        "iris.worker_agents.control_plane",
        "iris.worker_agents.local",
        "iris.scheduling.ledger.ledger",
        "iris.workflows.scheduler.scheduler",
    )
    assert not {name for name in modules if name in planners}
