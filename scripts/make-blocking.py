#!/usr/bin/env python3
"""Writes `iris/client/blocking/generated` from the classes of the asynchronous client.

Each public coroutine becomes a method of the same signature and docstring that waits.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "iris/client/blocking/generated"
Method = ast.FunctionDef | ast.AsyncFunctionDef
#: A line has the generated module, the blocking class, the module in `iris.client` and the name of
#: the asynchronous class, and its methods that get no generated method.
ROWS = """
client IrisClient client AsyncIrisClient connect remote from_env exec endpoints enclosing_job
job Job jobs.handle AsyncJob wait
operations Hosts fleet.hosts HostsClient polls
operations Slices fleet.slices SlicesClient delete_all was_requested has_workflow
operations Autoscaler fleet.autoscaler AutoscalerClient close_down
operations Cluster cluster ClusterClient check_exists
operations Schedules schedules.client SchedulesClient
operations Secrets secrets.named SecretsClient
simulations Simulations fleet.simulations SimulationsClient
"""
TABLE = [row.split() for row in ROWS.strip().splitlines()]
#: The blocking type that replaces an asynchronous type in annotations.
TYPES = {row[3]: row[1] for row in TABLE}
TYPES |= {"AsyncGenerator": "Iterator", "AsyncIterator": "AbstractContextManager"}
#: What the modules of whole classes are about. The other modules have a part of a class whose other
#: methods are written by hand.
SUMMARIES = {
    "operations": "Operations on hosts, slices, the autoscaler, the cluster, schedules and secrets.",
    "simulations": "Operations on published reports of simulations.",
}
HEADER = '''"""{}

`scripts/make-blocking.py` writes this module. Change the asynchronous classes, and run it again.
"""
# mypy: disable-error-code=no-any-return
from __future__ import annotations
import builtins
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Self
from collections.abc import Iterator
from iris.client.blocking.event_loop import Blocking
from iris.client.blocking.job import Job
'''


def type_of(annotation: ast.expr, asynchronous: str, has_list: bool) -> str:
    """Returns the blocking type of an annotation, without quotes."""
    text = ast.unparse(annotation).replace("'", "").replace(f"{asynchronous}[T]", "Self")
    for name, blocking in TYPES.items():
        text = text.replace(f"{name}[", f"{blocking}[") if name != text else blocking
    text = text.replace("list[", "builtins.list[") if has_list else text
    return text.removesuffix(", None]") + "]" if text.startswith("Iterator[") else text


def call_of(method: Method) -> str:
    """Returns the expression that calls the asynchronous method with the same arguments."""
    given = method.args
    arguments = [each.arg for each in given.args[1:]]
    arguments += [f"*{given.vararg.arg}"] if given.vararg else []
    arguments += [f"{each.arg}={each.arg}" for each in given.kwonlyargs]
    arguments += [f"**{given.kwarg.arg}"] if given.kwarg else []
    return f"self._asynchronous.{method.name}({', '.join(arguments)})"


def body_of(method: Method, decorators: set[str], call: str, returns: str) -> str:
    """Returns the statements that wait for the result, and convert it."""
    if "cached_property" in decorators:
        return f"return {returns}(self._asynchronous.{method.name}, self._loop)"
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


def methods_of(kind: ast.ClassDef, without: list[str], lines: list[str]) -> Iterator[str]:
    """Yields the source of each blocking method."""
    methods = [each for each in kind.body if isinstance(each, Method)]
    has_list = "list" in [each.name for each in methods]
    for method in methods:
        if method.name.startswith("_") or method.name in without:
            continue
        for each in [node for node in ast.walk(method.args) if getattr(node, "annotation", None)]:
            each.annotation = ast.Name(type_of(each.annotation, kind.name, has_list))
        decorators = {ast.unparse(each) for each in method.decorator_list}
        returns = type_of(method.returns, kind.name, has_list)
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
        body = body_of(method, decorators, call_of(method), returns)
        yield "\n    ".join([head, *doc.splitlines(), *body.splitlines()])


def imports_of(module: str, tree: ast.Module) -> dict[str, str]:
    """Returns the import of each name that the asynchronous module imports or defines."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {each.name: f"from {node.module} import {each.name}" for each in node.names}
    for node in tree.body:
        names = {getattr(node, "name", None), *map(ast.unparse, getattr(node, "targets", []))}
        found |= {name: f"from {module} import {name}" for name in names - {None}}
    return found


def text_of(name: str) -> str:
    """Returns the text of a generated module. The linter removes and sorts imports."""
    is_part, summary = name not in SUMMARIES, SUMMARIES.get(name, "")
    package = FOLDER.replace("/", ".")
    code, imports = "", {}
    if is_part:
        imports = {row[1]: f"from {package}.{row[0]} import {row[1]}" for row in TABLE[2:]}
    for _, blocking, path, asynchronous, *without in [row for row in TABLE if row[0] == name]:
        source = (ROOT / "iris/client" / f"{path.replace('.', '/')}.py").read_text()
        tree = ast.parse(source)
        (kind,) = [each for each in tree.body if getattr(each, "name", "") == asynchronous]
        generic = ", Generic[T]" * ("Generic[T]" in map(ast.unparse, kind.bases))
        doc = f"Methods of `{blocking}`, one for each method of `{asynchronous}`."
        summary, doc = (doc, doc) if is_part else (summary, ast.get_docstring(kind))
        code += f'class {blocking}{"Methods" * is_part}(Blocking{generic}):\n    """{doc}"""\n'
        for each in methods_of(kind, without, source.splitlines()):
            code += "\n" + "".join(f"    {line}\n" for line in each.splitlines())
        imports |= imports_of(f"iris.client.{path}", tree)
    text = "\n".join([HEADER.format(summary), *imports.values(), code])
    for command in ("check --select=I,F401,F811,TC --fix --unsafe-fixes", "format"):
        ruff = [str(Path(sys.executable).with_name("ruff")), *command.split(), "--quiet"]
        ruff += [f"--stdin-filename={FOLDER}/{name}.py", "-"]
        text = subprocess.run(ruff, input=text, text=True, cwd=ROOT, check=True, stdout=-1).stdout
    return text


if __name__ == "__main__":
    for name in {row[0] for row in TABLE}:
        (ROOT / FOLDER / f"{name}.py").write_text(text_of(name))
