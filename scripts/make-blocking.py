#!/usr/bin/env python3
"""Writes `iris/client/blocking/generated` from the classes of the asynchronous client.

Each public coroutine becomes a method that waits for the result, with the same signature and
docstring. With `--check`, the script only compares, and exits with 1 if a module is not current.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "iris/client/blocking/generated"
Method = ast.FunctionDef | ast.AsyncFunctionDef
#: The blocking class that replaces an asynchronous class in annotations.
TYPES = {
    "AsyncJob": "Job", "HostsClient": "Hosts", "SlicesClient": "Slices",
    "AutoscalerClient": "Autoscaler", "ClusterClient": "Cluster", "SchedulesClient": "Schedules",
    "SecretsClient": "Secrets", "AsyncGenerator": "Iterator",
    "AsyncIterator": "AbstractContextManager",
}  # fmt: skip
OPERATIONS = "from iris.client.blocking.generated.operations import"
#: Each generated module: its docstring, the imports that it needs at run time, and its classes. A
#: class has the module and the name of the asynchronous class, and the names of methods that
#: programs do not need or that are written by hand.
MODULES = {
    "client": (
        "Methods of `IrisClient`, one for each method of `AsyncIrisClient`.",
        "from iris.client.blocking.job import Job\nfrom iris.client.client import T, Ts",
        {"ClientMethods": ("iris.client.client", "AsyncIrisClient",
                           "connect remote from_env exec endpoints enclosing_job")},
    ),
    "job": (
        "Methods of `Job`, one for each method of `AsyncJob`.",
        "from iris.client.jobs.handle import T",
        {"JobMethods": ("iris.client.jobs.handle", "AsyncJob", "wait")},
    ),
    "operations": (
        "The operations on hosts, slices, the autoscaler, the cluster, schedules and secrets.",
        "from iris.client.jobs.schedules import Overlap",
        {
            "Hosts": ("iris.client.fleet.hosts", "HostsClient", "polls"),
            "Slices": ("iris.client.fleet.slices", "SlicesClient",
                       "delete_all was_requested has_workflow"),
            "Autoscaler": ("iris.client.fleet.autoscaler", "AutoscalerClient", "close_down"),
            "Cluster": ("iris.client.cluster", "ClusterClient", "check_exists"),
            "Schedules": ("iris.client.jobs.schedules", "SchedulesClient", ""),
            "Secrets": ("iris.client.secrets.named", "SecretsClient", ""),
        },
    ),
}  # fmt: skip
HEADER = """
`scripts/make-blocking.py` writes this module. Change the asynchronous classes, and run it again.
\"""
# mypy: disable-error-code=no-any-return
from __future__ import annotations
"""
IMPORTS = """
import builtins
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, cast, overload
from iris.client.blocking.event_loop import Blocking
"""


def type_of(annotation: ast.expr, asynchronous: str, *, has_list: bool) -> str:
    """Returns the blocking type of an annotation, without quotes."""
    text = ast.unparse(annotation).replace("'", "").replace(f"{asynchronous}[T]", "Self")
    for name, blocking in TYPES.items():
        text = text.replace(f"{name}[", f"{blocking}[") if name != text else blocking
    text = text.replace("list[", "builtins.list[") if has_list else text
    return text.removesuffix(", None]") + "]" if text.startswith("Iterator[") else text


def call_of(method: Method, is_overloaded: bool) -> str:
    """Returns the expression that calls the asynchronous method with the same arguments."""
    given = method.args
    arguments = [each.arg for each in given.args[1:]]
    arguments += [f"*{given.vararg.arg}"] if given.vararg else []
    arguments += [f"{each.arg}={each.arg}" for each in given.kwonlyargs]
    arguments += [f"**{given.kwarg.arg}"] if given.kwarg else []
    target = "cast(Any, self._asynchronous)" if is_overloaded else "self._asynchronous"
    return f"{target}.{method.name}({', '.join(arguments)})"


def body_of(method: Method, decorators: set[str], call: str, returns: str) -> str:
    """Returns the statements that wait for the result, and convert it."""
    if "cached_property" in decorators:
        value = f"{returns}(self._asynchronous.{method.name}, self._loop)"
        return f"{OPERATIONS} {returns}\nreturn {value}"
    if "property" in decorators:
        return f"return self._asynchronous.{method.name}"
    if "asynccontextmanager" in decorators:
        return f"return self._loop.entered({call})"
    if any(isinstance(each, ast.Yield) for each in ast.walk(method)):
        return f"return self._loop.iterate({call})"
    waited = f"self._loop.run({call})" if isinstance(method, ast.AsyncFunctionDef) else call
    if returns.startswith("Job["):
        return f"return Job({waited}, self._loop)"
    if returns == "Self | None":
        return f"other = {waited}\nreturn None if other is None else type(self)(other, self._loop)"
    return waited if returns == "None" else f"return {waited}"


def methods_of(kind: ast.ClassDef, without: str, lines: list[str]) -> Iterator[str]:
    """Yields the source of each blocking method."""
    methods = [each for each in kind.body if isinstance(each, Method)]
    names = [each.name for each in methods]
    for method in methods:
        if method.name.startswith("_") or method.name in without.split():
            continue
        for each in ast.walk(method.args):
            if isinstance(each, ast.arg) and isinstance(each.annotation, ast.expr):
                text = type_of(each.annotation, kind.name, has_list="list" in names)
                each.annotation = ast.Name(text)
        decorators = {ast.unparse(each) for each in method.decorator_list}
        returns = type_of(method.returns, kind.name, has_list="list" in names)
        comment = lines[method.lineno - 1].partition("  # ")[2]  # such as `type: ignore`
        head = "".join(f"@{each}\n" for each in decorators - {"asynccontextmanager"})
        head += f"def {method.name}(" + f"  # {comment}\n" * bool(comment)
        head += f"{ast.unparse(method.args)}) -> {returns}:"
        if "overload" in decorators:
            yield f"{head} ..."
            continue
        doc = ast.get_docstring(method) or ""
        doc = doc.replace("async with ", "with ").replace("await ", "").replace("Async", "")
        doc = f'"""{doc}\n"""' if "\n" in doc else f'"""{doc}"""'
        body = body_of(method, decorators, call_of(method, names.count(method.name) > 1), returns)
        yield "\n    ".join([head, *doc.splitlines(), *body.splitlines()])


def imports_of(module: str, tree: ast.Module) -> dict[str, str]:
    """Returns the import of each name that the asynchronous module imports or defines."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {each.name: f"from {node.module} import {each.name}" for each in node.names}
        elif isinstance(node, ast.ClassDef):
            found[node.name] = f"from {module} import {node.name}"
    return found


def text_of(name: str) -> str:
    """Returns the text of a generated module. The linter removes unused imports."""
    summary, imports, classes = MODULES[name]
    imports = IMPORTS + imports
    code, types = "", {each: f"{OPERATIONS} {each}" for each in MODULES["operations"][2]}
    for blocking, (module, asynchronous, without) in classes.items():
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
        tree = ast.parse(source)
        (kind,) = [each for each in tree.body if getattr(each, "name", "") == asynchronous]
        is_generic = "Generic[T]" in map(ast.unparse, kind.bases)
        doc = ast.get_docstring(kind) if name == "operations" else summary
        code += f"class {blocking}(Blocking{', Generic[T]' * is_generic}):\n"
        lines = [f'"""{doc}"""', f"_asynchronous: {asynchronous}{'[T]' * is_generic}"]
        for each in methods_of(kind, without, source.splitlines()):
            lines += ["", *each.splitlines()]
        code += "".join(f"    {line}\n" for line in lines)
        types |= imports_of(module, tree)
    known = {*re.findall(r"\w+", imports), *classes}
    guarded = [f"    {line}" for each, line in types.items() if each not in known]
    text = "\n".join([f'"""{summary}\n{HEADER}{imports}\nif TYPE_CHECKING:', *guarded, code])
    for command in (["check", "--select=I,F401", "--fix"], ["format"]):
        ruff = [str(Path(sys.executable).with_name("ruff")), *command, "--quiet"]
        ruff += [f"--stdin-filename={FOLDER}/{name}.py", "-"]
        text = subprocess.run(ruff, input=text, text=True, cwd=ROOT, check=True, stdout=-1).stdout
    return text


def main() -> int:
    stale = 0
    for name in MODULES:
        path, text = ROOT / FOLDER / f"{name}.py", text_of(name)
        if "--check" not in sys.argv:
            path.write_text(text)
        elif path.read_text() != text:
            print(f"{path.relative_to(ROOT)} is not current: run {sys.argv[0]}", file=sys.stderr)
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
