"""Who may import whom: the table of docs/architecture.md, enforced over the sources as they are.

`problems(path, source)` is the guard; the first tests show that it sees each kind of breach, the
last ones turn it on every file.
"""

import ast
import graphlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROLES = ("workflows", "activities", "platforms", "worker_agents")
#: Everything that could be meant by a flat name.
FLAT = {*ROLES, *(path.name for path in (ROOT / "iris").iterdir() if path.is_dir())} - {
    "__pycache__"
}
#: A file is one subject, usually of 80 to 350 lines. The bound finds files that hold several.
TOO_LONG = 600

CLOCKS_AND_DICE = {"time", "random", "secrets"}
PROCESS = {"os", "socket", "subprocess"}
CALLS_OF_THE_CLOCK = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}

#: The pure packages, in their order: each may import those to its left.
PURE = ("model", "config", "scheduling", "autoscaling", "messages")
#: The package that a file of a pure package may import besides pydantic: it reads a text or
#: computes, and nothing else.
OUTSIDE_OF_A_FILE = {
    "iris/config/bounded_yaml.py": "yaml",
    "iris/config/load.py": "yaml",
    "iris/config/edit_hosts.py": "yaml",
    "iris/model/slice/keys.py": "cryptography",
    "iris/model/sealed.py": "cryptography",
}
#: For each other ring, the rings that it may import besides the pure packages and itself. `None`:
#: all of them.
MAY_IMPORT: dict[str, set[str] | None] = {
    "concurrency": set(),
    "storage": {"concurrency"},
    "retrying": set(),
    "platforms": {"retrying"},
    "activities": {"storage", "concurrency", "retrying"},
    "workflows": {"activities"},
    "client": {"storage", "concurrency", "retrying", "platforms", "activities", "workflows"},
    "worker_agents": None,
    "cli": None,
}
#: The only places where the client knows a process: those that start and stop the cluster on this
#: machine.
LOCAL_CLUSTER = {"iris/client/operate/cleanup.py", "iris/client/operate/local/controller.py"}
#: The ring of each package and module of `iris`.
RINGS = (*PURE, *MAY_IMPORT)


def ring_of(path: str) -> str:
    """The ring that a file belongs to, by its path from the root; `iris` is the file that exports
    the public names.
    """
    parts = Path(path).with_suffix("").parts
    return parts[1] if parts[0] == "iris" and parts[1] != "__init__" else parts[0]


def ring_of_module(module: str) -> str | None:
    """The ring that a module of ours belongs to, or None when it is nobody's of ours."""
    parts = module.split(".")
    return parts[1] if parts[0] == "iris" and len(parts) > 1 and parts[1] in RINGS else None


def within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def imports(tree: ast.AST) -> Iterator[str]:
    """Every imported module or member, in full; a relative import begins with a dot. Imports inside
    functions count too.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (
                f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names
            )


def calls(tree: ast.AST) -> Iterator[str]:
    """Every call of something with a dotted name, by its last two parts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield ".".join(ast.unparse(node.func).split(".")[-2:])


def may_not_import(path: str, module: str) -> str | None:
    """Why this file may not import this, or None when it may."""
    top = module.partition(".")[0]
    if top == "":
        return "a relative import: write iris.…"
    if top in FLAT and top not in sys.stdlib_module_names:
        return "a flat name: write iris.…"
    ring, other = ring_of(path), ring_of_module(module)
    stdlib = top in sys.stdlib_module_names
    if ring in PURE:
        if other is not None and (other not in PURE or PURE.index(other) > PURE.index(ring)):
            return (
                f"{ring} knows only the pure packages before it:"
                f" {', '.join(PURE[: PURE.index(ring)]) or 'none'}"
            )
        if not stdlib and top not in {"iris", "pydantic", OUTSIDE_OF_A_FILE.get(path)}:
            return "a pure package knows nothing but pydantic"
        if top in CLOCKS_AND_DICE | PROCESS:
            return "a pure package has no clock, no chance and no I/O"
        return None
    allowed = MAY_IMPORT[ring] if ring != "iris" else None
    if allowed is not None and other is not None and other not in {*allowed, *PURE, ring}:
        base = ring == "activities" and within(module, "iris.platforms.base")
        if not base and not (other == "worker_agents" and path in LOCAL_CLUSTER):
            return (
                f"{ring} may import the pure packages and:"
                f" {', '.join(sorted(allowed)) or 'nothing else'}"
            )
    if (
        top == "google"
        and not path.startswith("platforms/gcp/")
        and ring not in ("client", "worker_agents", "cli")
    ):
        return "google only in platforms/gcp/"
    if top in ("stamina", "tenacity") and ring != "retrying":
        return "stamina only in iris/retrying.py, which makes it silent and loads it late"
    if top == "asyncssh" and not path.startswith("platforms/manual"):
        return "asyncssh only in platforms/manual"
    match ring:
        case "storage":
            if (not stdlib and top not in {"iris", "pydantic", "obstore"}) or (
                other in PURE and other != "model"
            ):
                return "storage knows the model and obstore"
        case "platforms":
            if top == "temporalio":
                return "platforms know nothing of Temporal"
        case "activities":
            if within(module, "temporalio.workflow", "temporalio.worker"):
                return "activities know temporalio.activity and temporalio.client"
        case "workflows":
            if within(
                module,
                "temporalio.client",
                "temporalio.worker",
                "temporalio.service",
                "temporalio.activity",
            ):
                return "workflows know temporalio.workflow"
            if not stdlib and top not in {"iris", "pydantic", "temporalio"}:
                return "workflows touch nothing"
            if top in CLOCKS_AND_DICE | PROCESS or module == "asyncio.sleep":
                return "a workflow is replayed: time and chance come from temporalio.workflow"
    return None


def may_not_call(path: str, call: str) -> str | None:
    """Why this file may not make this call, or None when it may."""
    ring = ring_of(path)
    if ring in (*PURE, "workflows") and call in CALLS_OF_THE_CLOCK:
        return "the clock is an argument"
    if ring == "workflows" and call == "asyncio.sleep":
        return "workflow.sleep shows its summary in the Web UI"
    return None


def problems(path: str, source: str) -> list[str]:
    """Everything that is wrong with a file of this path, one line each."""
    tree = ast.parse(source)
    found = [
        f"{path} imports {module}: {why}"
        for module in imports(tree)
        if (why := may_not_import(path, module))
    ]
    found += [
        f"{path} calls {call}(): {why}" for call in calls(tree) if (why := may_not_call(path, call))
    ]
    return found


def sources(*folders: str) -> list[str]:
    """The python files below the folders, links not followed, as paths from the root."""
    return sorted(
        str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py")
    )


SOURCES = sources("iris", *ROLES)
OTHERS = sources(
    "tests",
    *(folder for folder in ("benchmarks", "examples", "scripts") if (ROOT / folder).is_dir()),
)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("iris/model/job/spec.py", "import temporalio"),
        ("iris/model/job/spec.py", "import click"),
        ("iris/model/job/spec.py", "from google.cloud import tpu_v2"),
        ("iris/model/job/spec.py", "import yaml"),
        ("iris/model/job/spec.py", "import obstore"),
        ("iris/model/job/spec.py", "import time"),
        ("iris/model/job/spec.py", "from random import choice"),
        ("iris/model/job/spec.py", "from os import environ"),
        ("iris/model/job/spec.py", "from iris.storage import object_store"),
        ("iris/model/job/spec.py", "from iris.storage.object_store import Store"),
        ("iris/model/job/spec.py", "from iris.client.client import AsyncIrisClient"),
        ("iris/model/job/spec.py", "from iris import workflows"),
        ("iris/model/job/spec.py", "started = datetime.now(UTC)"),
        ("iris/model/job/spec.py", "started = datetime.datetime.utcnow()"),
        ("iris/storage/object_store.py", "import temporalio"),
        ("platforms/local.py", "import temporalio.client"),
        ("platforms/local.py", "from iris.workflows.jobs.job import JobWorkflow"),
        ("platforms/local.py", "from iris.activities import fleet"),
        ("platforms/local.py", "from google.cloud import compute_v1"),
        ("platforms/local.py", "import asyncssh"),
        ("activities/control/observe.py", "import google.auth"),
        (
            "activities/control/observe.py",
            "from iris.workflows.scheduler.scheduler import SchedulerWorkflow",
        ),
        ("activities/control/observe.py", "from iris.platforms.gcp import tpu"),
        ("activities/control/observe.py", "from iris.client.client import AsyncIrisClient"),
        ("activities/control/observe.py", "from temporalio import workflow"),
        ("workflows/jobs/job.py", "from iris.platforms import base"),
        ("workflows/jobs/job.py", "from iris.storage.object_store import Store"),
        ("workflows/jobs/job.py", "from iris.worker_agents import probe"),
        ("workflows/jobs/job.py", "import google.auth"),
        ("workflows/jobs/job.py", "import time"),
        ("workflows/jobs/job.py", "import random"),
        ("workflows/jobs/job.py", "import os.path"),
        ("workflows/jobs/job.py", "from temporalio.client import Client"),
        ("workflows/jobs/job.py", "from asyncio import sleep"),
        ("workflows/jobs/job.py", "async def run():\n    await asyncio.sleep(1)"),
        ("workflows/jobs/job.py", "now = datetime.now(UTC)"),
        ("workflows/jobs/job.py", "def late():\n    import time"),
        ("worker_agents/host/agent.py", "from activities.tasks import Tasks"),
        ("worker_agents/host/agent.py", "import workflows"),
        ("iris/cli/main.py", "from . import jobs"),
        ("iris/client/client.py", "from .logs import read"),
        ("iris/model/job/spec.py", "from model.names import job_id"),
        ("iris/model/job/spec.py", "from iris.scheduling.ledger.ledger import Ledger"),
        ("iris/config/schema.py", "from iris.scheduling.placement.place import place"),
        ("iris/scheduling/ledger/ledger.py", "from iris.autoscaling.plan import plan"),
        ("iris/scheduling/ledger/ledger.py", "from iris.messages.scheduler import Ask"),
        ("iris/storage/object_store.py", "from iris.config import load_config"),
        ("iris/client/client.py", "from iris.worker_agents.host.agent import serve"),
        ("iris/client/client.py", "from iris.cli.main import main"),
        ("iris/client/client.py", "import stamina"),
        ("iris/model/job/spec.py", "from iris.retrying import retry"),
        ("iris/storage/object_store.py", "from iris.retrying import retry"),
        ("workflows/jobs/job.py", "from iris.retrying import retry"),
    ],
)
def test_the_guard_sees_the_breach(path: str, line: str) -> None:
    """A guard that lets everything pass would look just as green."""
    assert problems(path, line)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("iris/model/job/spec.py", "from datetime import datetime, timedelta"),
        ("iris/model/job/spec.py", "from iris import names"),
        ("iris/config/load.py", "import yaml"),
        ("iris/storage/object_store.py", "from obstore.store import from_url"),
        ("platforms/gcp/tpu.py", "from google.cloud import tpu_v2"),
        ("platforms/manual.py", "import asyncssh"),
        ("platforms/gcp/tpu.py", "from iris.retrying import retry"),
        ("iris/retrying.py", "import stamina"),
        ("platforms/local.py", "from iris.resources import Resources"),
        ("activities/control/observe.py", "from iris.platforms.base import Platform"),
        ("activities/control/observe.py", "from iris.messages.scheduler import Ask"),
        ("activities/control/observe.py", "from iris.storage.object_store import Store"),
        ("activities/control/observe.py", "import time"),
        ("workflows/jobs/job.py", "from iris.activities.host.attempt.run_task import Tasks"),
        ("workflows/jobs/job.py", "now = workflow.now()"),
        ("iris/cli/main.py", "from iris.worker_agents.host.agent import serve"),
        ("worker_agents/host/agent.py", "import platform"),
    ],
)
def test_the_guard_lets_pass_what_the_design_allows(path: str, line: str) -> None:
    """A guard that cries without cause is soon switched off."""
    assert problems(path, line) == []


def test_the_guard_looks_at_every_ring() -> None:
    """Moved folders must not leave it staring at nothing."""
    assert {ring_of(path) for path in SOURCES} == {"iris", *RINGS}


@pytest.mark.parametrize("path", SOURCES)
def test_a_source_file_imports_only_what_its_ring_may(path: str) -> None:
    """Decisions stay pure and replayable, technology stays at the edge: the table of the design,
    for this file.
    """
    assert problems(path, (ROOT / path).read_text()) == []


def test_no_two_packages_import_each_other() -> None:
    """Whoever wants to understand a package of a circle has to understand all of the circle."""
    found: dict[str, set[str]] = {}
    packages = {str(Path(path).parent).removeprefix("iris/").replace("/", ".") for path in SOURCES}
    for path in SOURCES:
        package = str(Path(path).parent).removeprefix("iris/").replace("/", ".")
        for module in imports(ast.parse((ROOT / path).read_text())):
            parts = module.removeprefix("iris.").split(".")
            others = [
                ".".join(parts[:end])
                for end in range(len(parts), 0, -1)
                if ".".join(parts[:end]) in packages
            ]
            if module.startswith("iris.") and others and others[0] != package:
                found.setdefault(package, set()).add(others[0])
    try:
        tuple(graphlib.TopologicalSorter(found).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("path", OTHERS)
def test_no_other_file_uses_a_flat_name_either(path: str) -> None:
    """Two packages on PyPI own the flat name `workflows`; from the root of the repository the wrong
    import would even work.
    """
    assert [
        module
        for module in imports(ast.parse((ROOT / path).read_text()))
        if module.partition(".")[0] in {*ROLES, ""}
    ] == []


@pytest.mark.parametrize("path", SOURCES)
def test_a_source_file_is_short_enough_to_be_read(path: str) -> None:
    """Beyond this a file has two subjects."""
    assert len((ROOT / path).read_text().splitlines()) < TOO_LONG
