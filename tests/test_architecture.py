"""Who may import whom: the table of docs/architecture.md, enforced over the sources as they are.

`problems(path, source)` is the guard; the first tests show that it sees each kind of breach, the last ones turn it on every file.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROLES = ("workflows", "activities", "platforms", "worker_agents")
#: Everything that could be meant by a flat name.
FLAT = {*ROLES, "client", "cli", *(path.stem for path in (ROOT / "iris").glob("*.py"))} - {"__init__"}
#: Aim for 120, talk about it at 250, split by 400.
TOO_LONG = 400

CLOCKS_AND_DICE = {"time", "random", "secrets"}
PROCESS = {"os", "socket", "subprocess"}
CALLS_OF_THE_CLOCK = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}

RINGS = {f"iris.{ring}" for ring in (*ROLES, "client", "cli")}


def ring_of(path: str) -> str:
    """The ring a file belongs to, by its path from the root; `vocabulary` is iris/*.py."""
    parts = Path(path).parts
    if parts[0] != "iris":
        return parts[0]
    return "vocabulary" if len(parts) == 2 else parts[1]


def within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def imports(tree: ast.AST) -> Iterator[str]:
    """Every imported module or member, in full; a relative import begins with a dot. Imports inside functions count too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


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
    ring = ring_of(path)
    stdlib = top in sys.stdlib_module_names
    iris_ring = next((each for each in RINGS if within(module, each)), None)
    match ring:
        case "vocabulary":
            allowed = {"iris", "pydantic"}
            allowed |= {"iris/store.py": {"obstore"}, "iris/config.py": {"yaml"}}.get(path, set())
            if not stdlib and top not in allowed:
                return "the vocabulary knows nothing but pydantic"
            if iris_ring or within(module, "iris.store"):
                return "the vocabulary knows no ring around it"
            if top in CLOCKS_AND_DICE | PROCESS:
                return "the vocabulary has no clock, no dice and no world"
        case "platforms":
            if iris_ring not in (None, "iris.platforms") or within(module, "iris.store"):
                return "platforms know the vocabulary only"
            if top == "temporalio":
                return "platforms know nothing of Temporal"
            if top == "google" and not path.startswith("platforms/gcp/"):
                return "google only in platforms/gcp/"
            if top == "asyncssh" and not path.startswith("platforms/manual"):
                return "asyncssh only in platforms/manual"
        case "activities":
            if iris_ring not in (None, "iris.activities") and not within(
                module, "iris.platforms.base", "iris.workflows.messages", "iris.workflows.fleet_messages"
            ):
                return "activities know the vocabulary, platforms.base, workflows.messages and the store"
            if within(module, "temporalio.workflow", "temporalio.worker"):
                return "activities know temporalio.activity and temporalio.client"
            if top == "google":
                return "google only in platforms/gcp/"
        case "workflows":
            if iris_ring not in (None, "iris.workflows", "iris.activities") or within(module, "iris.store"):
                return "workflows know the vocabulary and the activities"
            if within(module, "temporalio.client", "temporalio.worker", "temporalio.service", "temporalio.activity"):
                return "workflows know temporalio.workflow"
            if not stdlib and top not in {"iris", "pydantic", "temporalio"}:
                return "workflows touch nothing"
            if top in CLOCKS_AND_DICE | PROCESS or module == "asyncio.sleep":
                return "a workflow is replayed: time and chance come from temporalio.workflow"
    return None


def may_not_call(path: str, call: str) -> str | None:
    """Why this file may not make this call, or None when it may."""
    ring = ring_of(path)
    if ring in ("vocabulary", "workflows") and call in CALLS_OF_THE_CLOCK:
        return "the clock is an argument"
    if ring == "workflows" and call == "asyncio.sleep":
        return "workflow.sleep shows its summary in the Web UI"
    return None


def problems(path: str, source: str) -> list[str]:
    """Everything that is wrong with a file of this path, one line each."""
    tree = ast.parse(source)
    found = [f"{path} imports {module}: {why}" for module in imports(tree) if (why := may_not_import(path, module))]
    found += [f"{path} calls {call}(): {why}" for call in calls(tree) if (why := may_not_call(path, call))]
    return found


def sources(*folders: str) -> list[str]:
    """The python files below the folders, links not followed, as paths from the root."""
    return sorted(str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py"))


SOURCES = sources("iris", *ROLES)
OTHERS = sources("tests", *(folder for folder in ("benchmarks", "examples", "scripts") if (ROOT / folder).is_dir()))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("iris/jobs.py", "import temporalio"),
        ("iris/jobs.py", "import click"),
        ("iris/jobs.py", "from google.cloud import tpu_v2"),
        ("iris/jobs.py", "import yaml"),
        ("iris/jobs.py", "import obstore"),
        ("iris/jobs.py", "import time"),
        ("iris/jobs.py", "from random import choice"),
        ("iris/jobs.py", "from os import environ"),
        ("iris/jobs.py", "from iris import store"),
        ("iris/jobs.py", "from iris.store import Store"),
        ("iris/jobs.py", "from iris.client.client import IrisClient"),
        ("iris/jobs.py", "from iris import workflows"),
        ("iris/jobs.py", "started = datetime.now(UTC)"),
        ("iris/jobs.py", "started = datetime.datetime.utcnow()"),
        ("iris/store.py", "import temporalio"),
        ("platforms/local.py", "import temporalio.client"),
        ("platforms/local.py", "from iris.workflows.messages import Ask"),
        ("platforms/local.py", "from iris.activities import fleet"),
        ("platforms/local.py", "from google.cloud import compute_v1"),
        ("platforms/local.py", "import asyncssh"),
        ("activities/fleet.py", "import google.auth"),
        ("activities/fleet.py", "from iris.workflows.scheduler import SchedulerWorkflow"),
        ("activities/fleet.py", "from iris.platforms.gcp import tpu"),
        ("activities/fleet.py", "from iris.client.client import IrisClient"),
        ("activities/fleet.py", "from temporalio import workflow"),
        ("workflows/job.py", "from iris.platforms import base"),
        ("workflows/job.py", "from iris.store import Store"),
        ("workflows/job.py", "from iris.worker_agents import probe"),
        ("workflows/job.py", "import google.auth"),
        ("workflows/job.py", "import time"),
        ("workflows/job.py", "import random"),
        ("workflows/job.py", "import os.path"),
        ("workflows/job.py", "from temporalio.client import Client"),
        ("workflows/job.py", "from asyncio import sleep"),
        ("workflows/job.py", "async def run():\n    await asyncio.sleep(1)"),
        ("workflows/job.py", "now = datetime.now(UTC)"),
        ("workflows/job.py", "def late():\n    import time"),
        ("worker_agents/host.py", "from activities.tasks import Tasks"),
        ("worker_agents/host.py", "import workflows"),
        ("iris/cli/main.py", "from . import jobs"),
        ("iris/client/client.py", "from .logs import read"),
        ("iris/jobs.py", "from names import job_id"),
    ],
)
def test_the_guard_sees_the_breach(path: str, line: str) -> None:
    """A guard that lets everything pass would look just as green."""
    assert problems(path, line)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("iris/jobs.py", "from datetime import datetime, timedelta"),
        ("iris/jobs.py", "from iris import names"),
        ("iris/config.py", "import yaml"),
        ("iris/store.py", "from obstore.store import from_url"),
        ("platforms/gcp/tpu.py", "from google.cloud import tpu_v2"),
        ("platforms/manual.py", "import asyncssh"),
        ("platforms/local.py", "from iris.resources import Resources"),
        ("activities/fleet.py", "from iris.platforms.base import Platform"),
        ("activities/fleet.py", "from iris.workflows.messages import Ask"),
        ("activities/fleet.py", "from iris.store import Store"),
        ("activities/fleet.py", "import time"),
        ("workflows/job.py", "from iris.activities.tasks import Tasks"),
        ("workflows/job.py", "now = workflow.now()"),
        ("iris/cli/main.py", "from iris.worker_agents.host import serve"),
        ("worker_agents/host.py", "import platform"),
    ],
)
def test_the_guard_lets_pass_what_the_design_allows(path: str, line: str) -> None:
    """A guard that cries without cause is soon switched off."""
    assert problems(path, line) == []


def test_the_guard_looks_at_every_ring() -> None:
    """Moved folders must not leave it staring at nothing."""
    assert {ring_of(path) for path in SOURCES} == {"vocabulary", "client", "cli", *ROLES}


@pytest.mark.parametrize("path", SOURCES)
def test_a_source_file_imports_only_what_its_ring_may(path: str) -> None:
    """Decisions stay pure and replayable, technology stays at the edge: the table of the design, for this file."""
    assert problems(path, (ROOT / path).read_text()) == []


@pytest.mark.parametrize("path", OTHERS)
def test_no_other_file_uses_a_flat_name_either(path: str) -> None:
    """Two packages on PyPI own the flat name `workflows`; from the root of the repository the wrong import would even work."""
    assert [module for module in imports(ast.parse((ROOT / path).read_text())) if module.partition(".")[0] in {*ROLES, ""}] == []


@pytest.mark.parametrize("path", SOURCES)
def test_a_source_file_is_short_enough_to_be_read(path: str) -> None:
    """Beyond this a file has two subjects."""
    assert len((ROOT / path).read_text().splitlines()) < TOO_LONG
