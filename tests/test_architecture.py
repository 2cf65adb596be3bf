"""Enforces the shape of the product: who may import whom (docs/architecture.md), no import circles,
and the sizes of folders, files, functions and lines.

`problems(path, source)` finds the imports and calls that a file may not have. The first tests show
that it finds each kind of breach, the others apply the rules to all files.
"""

import ast
import gc
import graphlib
import re
import sys
from collections import Counter
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
ROLES = ("workflows", "activities", "platforms", "worker_agents")
#: Everything that could be meant by a flat name.
FLAT = {*ROLES, *(path.name for path in (ROOT / "iris").iterdir() if path.is_dir())} - {
    "__pycache__"
}
#: A file is one subject, usually of 80 to 350 lines.
LONGEST_FILE = 600
LONGEST_FUNCTION = 60
#: The width of a line. The linter cannot shorten strings, comments and docstrings.
WIDEST_LINE = 100
FULLEST_FOLDER = 20

CLOCKS_AND_DICE = {"time", "random", "secrets"}
PROCESS = {"os", "socket", "subprocess"}
CALLS_OF_THE_CLOCK = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}

#: The pure packages, in their order: each may import those to its left.
PURE = (
    "model",
    "config",
    "access",
    "usage",
    "scheduling",
    "autoscaling",
    "messages",
    "planners",
    "simulation",
)
#: The package that a file of a pure package may import besides pydantic: it reads a text or
#: computes, and nothing else.
OUTSIDE_OF_A_FILE = {
    "iris/config/bounded_yaml.py": "yaml",
    "iris/config/load.py": "yaml",
    "iris/config/edit_hosts.py": "yaml",
    "iris/access/tokens.py": "cryptography",
    "iris/model/slice/keys.py": "cryptography",
    "iris/model/sealed.py": "cryptography",
}
#: For each other ring, the rings that it may import besides the pure packages and itself. `None`:
#: all of them.
MAY_IMPORT: dict[str, set[str] | None] = {
    "concurrency": set(),
    "lazy": set(),
    "storage": {"concurrency"},
    "retrying": set(),
    "processes": {"storage", "concurrency", "retrying"},
    "metrics": {"processes"},
    "tracing": set(),
    "platforms": {"lazy", "retrying", "metrics"},
    "activities": {"lazy", "storage", "concurrency", "retrying", "metrics", "tracing"},
    "workflows": {"activities"},
    "client": {
        "lazy",
        "storage",
        "concurrency",
        "retrying",
        "processes",
        "platforms",
        "activities",
        "workflows",
        "tracing",
    },
    "dashboard": {"client", "storage"},
    "worker_agents": None,
    "cli": None,
}
#: The only places where the client knows a process: those that start and stop the cluster on this
#: machine.
LOCAL_CLUSTER = {"iris/client/operate/cleanup.py", "iris/client/operate/local/controller.py"}
#: What workflows may import of a host's activities.
DECLARES_RUN_TASK = "iris.activities.host.attempt.activity"
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


class Facts(NamedTuple):
    """What a file does; kept instead of its tree, which has many thousand objects."""

    #: Every imported module or member, in full; a relative import begins with a dot. Imports inside
    #: functions count too.
    imports: tuple[str, ...]
    #: Every call of something with a dotted name, by its last two parts.
    calls: tuple[str, ...]
    #: The name of each function, and its length in lines.
    functions: tuple[tuple[str, int], ...]
    #: The lines that add what is awaited to an attribute.
    late_sums: tuple[int, ...]


def parsed(source: str) -> ast.Module:
    """Returns the tree of a file.

    No garbage is collected meanwhile: a finalizer of what other tests left may log a traceback,
    whose lines are parsed too, and CPython 3.11 counts the depth of both trees together and raises
    SystemError (python/cpython#106905).
    """
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.enable()


def called(function: ast.Attribute) -> str:
    """Returns the last two parts of the name of what is called."""
    owner = function.value
    before = {ast.Name: "id", ast.Attribute: "attr"}.get(type(owner))
    return f"{getattr(owner, before)}.{function.attr}" if before else function.attr


def facts(source: str) -> Facts:
    nodes = list(ast.walk(parsed(source)))
    return Facts(
        imports=tuple(name for node in nodes for name in imported(node)),
        calls=tuple(
            called(node.func)
            for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        ),
        functions=tuple(
            (node.name, (node.end_lineno or 0) - node.lineno + 1)
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        late_sums=tuple(
            node.lineno
            for node in nodes
            if isinstance(node, ast.AugAssign)
            and not isinstance(node.target, ast.Name)
            and any(isinstance(each, ast.Await) for each in ast.walk(node.value))
        ),
    )


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
    return []


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
    if top == "prometheus_client" and ring != "metrics":
        return "prometheus_client only in iris/metrics, whose page.py loads it late"
    if top == "opentelemetry" and ring != "tracing":
        return "opentelemetry only in iris/tracing, whose spans.py loads it late"
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
            if within(module, "iris.activities.host") and not within(module, DECLARES_RUN_TASK):
                return f"workflows need no code of a host: {DECLARES_RUN_TASK} declares run_task"
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


def problems(path: str, found: Facts) -> list[str]:
    """Everything that is wrong with a file of this path, one line each."""
    return [
        f"{path} imports {module}: {why}"
        for module in found.imports
        if (why := may_not_import(path, module))
    ] + [
        f"{path} calls {call}(): {why}" for call in found.calls if (why := may_not_call(path, call))
    ]


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
#: A line that may import by a flat or a relative name.
MAY_BE_FLAT = re.compile(
    rf"^\s*from\s+\.|^\s*(?:from|import)\b.*(?<![.\w])(?:{'|'.join(ROLES)})\b", re.MULTILINE
)
#: Lines that a file of this path may not have.
BREACHES = {
    "iris/model/job/spec.py": [
        "import temporalio",
        "import click",
        "from google.cloud import tpu_v2",
        "import yaml",
        "import obstore",
        "import time",
        "from random import choice",
        "from os import environ",
        "from iris.storage import object_store",
        "from iris.storage.object_store import Store",
        "from iris.client.client import AsyncIrisClient",
        "from iris import workflows",
        "started = datetime.now(UTC)",
        "started = datetime.datetime.utcnow()",
        "from model.names import job_id",
        "from iris.scheduling.ledger.ledger import Ledger",
        "from iris.retrying import retry",
    ],
    "iris/storage/object_store.py": [
        "import temporalio",
        "from iris.config import load_config",
        "from iris.retrying import retry",
    ],
    "platforms/local.py": [
        "import temporalio.client",
        "from iris.workflows.jobs.job import JobWorkflow",
        "from iris.activities import fleet",
        "from google.cloud import compute_v1",
        "import asyncssh",
    ],
    "activities/control/observe.py": [
        "import google.auth",
        "from iris.workflows.scheduler.scheduler import SchedulerWorkflow",
        "from iris.platforms.gcp import tpu",
        "from iris.client.client import AsyncIrisClient",
        "from temporalio import workflow",
    ],
    "workflows/jobs/job.py": [
        "from iris.platforms import base",
        "from iris.storage.object_store import Store",
        "from iris.worker_agents import probe",
        "import google.auth",
        "import time",
        "import random",
        "import os.path",
        "from temporalio.client import Client",
        "from asyncio import sleep",
        "async def run():\n    await asyncio.sleep(1)",
        "now = datetime.now(UTC)",
        "def late():\n    import time",
        "from iris.retrying import retry",
        "from iris.metrics.declared import EVICTIONS",
        "from iris.activities.host.attempt.run_task import Tasks",
    ],
    "worker_agents/host/agent.py": ["from activities.tasks import Tasks", "import workflows"],
    "iris/cli/main.py": ["from . import jobs"],
    "iris/client/client.py": [
        "from .logs import read",
        "from iris.worker_agents.host.agent import serve",
        "from iris.cli.main import main",
        "import stamina",
        "import prometheus_client",
        "from opentelemetry.trace import get_tracer",
    ],
    "iris/config/schema.py": ["from iris.scheduling.placement.place import place"],
    "iris/scheduling/ledger/ledger.py": [
        "from iris.autoscaling.plan import plan",
        "from iris.messages.scheduler import Ask",
    ],
}
#: Lines that a file of this path may have.
ALLOWED = {
    "iris/model/job/spec.py": [
        "from datetime import datetime, timedelta",
        "from iris import names",
    ],
    "iris/config/load.py": ["import yaml"],
    "iris/storage/object_store.py": ["from obstore.store import from_url"],
    "platforms/gcp/tpu.py": ["from google.cloud import tpu_v2", "from iris.retrying import retry"],
    "platforms/manual.py": ["import asyncssh"],
    "iris/retrying.py": ["import stamina"],
    "platforms/local.py": ["from iris.resources import Resources"],
    "activities/control/observe.py": [
        "from iris.platforms.base import Platform",
        "from iris.messages.scheduler import Ask",
        "from iris.storage.object_store import Store",
        "import time",
    ],
    "workflows/jobs/job.py": [
        "from iris.activities.host.attempt.activity import TaskActivity",
        "now = workflow.now()",
    ],
    "iris/cli/main.py": ["from iris.worker_agents.host.agent import serve"],
    "worker_agents/host/agent.py": ["import platform"],
}


def module_of(path: str) -> str:
    """Returns the name by which a file of the product is imported."""
    name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    return name if name.split(".")[0] == "iris" else f"iris.{name}"


@cache
def text_of(path: str) -> str:
    return (ROOT / path).read_text()


@cache
def facts_of(path: str) -> Facts:
    return facts(text_of(path))


@pytest.mark.parametrize("path", BREACHES)
def test_the_guard_finds_each_breach(path: str) -> None:
    """A guard that finds nothing would pass, too."""
    assert [line for line in BREACHES[path] if not problems(path, facts(line))] == []


@pytest.mark.parametrize("path", ALLOWED)
def test_the_guard_accepts_what_the_design_allows(path: str) -> None:
    """A guard that reports correct code would be switched off."""
    assert [line for line in ALLOWED[path] if problems(path, facts(line))] == []


def test_the_guard_knows_every_ring() -> None:
    """A ring that is not in its tables would not be checked after folders have moved."""
    assert {ring_of(path) for path in SOURCES} == {"iris", *RINGS}


def test_source_files_import_only_what_their_ring_may() -> None:
    """Decisions stay pure and replayable, and technology stays at the edge."""
    assert [each for path in SOURCES for each in problems(path, facts_of(path))] == []


def test_other_files_use_no_flat_name() -> None:
    """PyPI has two packages named `workflows`; from the repository's root the wrong import would
    work.
    """
    wrong = {*ROLES, ""}
    # A parser needs seconds for all of these files; hardly any has such a line.
    doubtful = [path for path in OTHERS if MAY_BE_FLAT.search(text_of(path))]
    used = ((path, module) for path in doubtful for module in facts_of(path).imports)
    assert [each for each in used if each[1].partition(".")[0] in wrong] == []


@pytest.mark.parametrize(
    "line",
    [
        "import workflows",
        "    from platforms.base import Platform",
        "import os, activities.host",
        "from . import builders",
        "from .. import builders",
    ],
)
def test_a_line_with_a_flat_name_is_looked_at(line: str) -> None:
    """A file that the search leaves out is not parsed."""
    assert MAY_BE_FLAT.search(f'"""A module."""\n\n{line}\n')
    assert not MAY_BE_FLAT.search("from iris.workflows.jobs.job import JobWorkflow\n")


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Nobody can understand one module of a circle without the others. Imports inside functions and
    for types count.
    """
    modules = {module_of(path): path for path in SOURCES}
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        for name in facts_of(path).imports:
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != module:
                found.setdefault(module, set()).add(target)
    try:
        tuple(graphlib.TopologicalSorter(found).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_folder_has_too_many_modules() -> None:
    """A reader looks for a subject, and a list of more than twenty names hides it."""
    found = Counter(str(Path(path).parent) for path in SOURCES if Path(path).name != "__init__.py")
    assert [each for each in found.items() if each[1] > FULLEST_FOLDER] == []


def test_pytest_leaves_no_test_file_out(pytestconfig: pytest.Config) -> None:
    """Tests in a folder with a name that pytest skips would never run, and nobody would notice."""
    skipped = pytestconfig.getini("norecursedirs")
    tests = ROOT / "tests"
    folders = {
        part for file in tests.rglob("test_*.py") for part in file.relative_to(tests).parent.parts
    }
    assert [each for each in folders if any(fnmatch(each, pattern) for pattern in skipped)] == []


def test_no_file_is_too_long() -> None:
    """A longer file has two subjects."""
    lengths = ((path, len(text_of(path).splitlines())) for path in SOURCES)
    assert [each for each in lengths if each[1] > LONGEST_FILE] == []


def test_no_function_is_too_long() -> None:
    """A longer function has steps without names."""
    lengths = ((path, *function) for path in SOURCES for function in facts_of(path).functions)
    assert [each for each in lengths if each[2] > LONGEST_FUNCTION] == []


def test_no_line_is_too_wide() -> None:
    """Two files stand side by side on a screen."""
    wide = (
        (path, number)
        for path in SOURCES
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if len(line) > WIDEST_LINE
    )
    assert list(wide) == []


def test_nothing_awaits_between_the_read_and_the_write_of_an_attribute() -> None:
    """`self.sum += await part()` reads the sum first: what others add meanwhile is lost. So a job
    lost the end of a part of its array, and never ended.
    """
    assert facts("self.sum += (await part()).tasks").late_sums == (1,)
    late = ((path, line) for path in SOURCES for line in facts_of(path).late_sums)
    assert list(late) == []
