"""Packs a function and its arguments into a bundle that a job can run."""

import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from iris.client.functions import run, same_python
from iris.client.functions.modules import Pickler, missing_module, warn_of_missing
from iris.client.workspace.extra_files import ExtraFile
from iris.client.workspace.pack import Packed, pack
from iris.model.errors import InvalidValue
from iris.model.job import bundles
from iris.model.job.bundles import MAX_BUNDLE
from iris.model.units import format_bytes

#: The version of the pickle protocol. Python 3.8 and later can read this version.
PROTOCOL = 5
#: The maximum size in bytes of Iris' own modules and scripts in the bundle of a function. The limit
#: for the function's arguments is smaller by this size.
_OVERHEAD = 1024 * 1024
#: The directory of the package `iris`.
_PACKAGE = Path(__file__).parents[2]
#: The files of the package `iris` that implement `iris.context()`. They import only the standard
#: library.
_CONTEXT = (
    "__init__.py",
    "client/__init__.py",
    "client/blocking/__init__.py",
    "client/blocking/context.py",
    "model/__init__.py",
    "model/errors.py",
    "model/names.py",
)
#: The import names of the modules in `_CONTEXT`. A function may use them although its job does not
#: install Iris.
_PROVIDED = frozenset(
    ".".join(("iris", *Path(file).with_suffix("").parts)).removesuffix(".__init__")
    for file in _CONTEXT
)
_REMEDY = "pass plain data, and open files, locks and connections inside the function"
#: The lock for cloudpickle's list of modules that are pickled with their content. All threads share
#: the list.
_registry = threading.Lock()


def function_name(function: Callable[..., Any]) -> str:
    """Returns `module:name`, which lists show as the job's command."""
    function = getattr(function, "func", function)  # the function of a functools.partial
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or '__main__'}:{name}"


def pack_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    workspace: Path | None = None,
    params: Sequence[Mapping[str, Any]] | None = None,
    python: str | None = None,
    *,
    bare: bool = False,
) -> Packed:
    """Packs the call with everything that the job's interpreter needs for it.

    A function of a module that the job gets with its workspace, or that is installed, is passed by
    name. A function of the main program, a notebook, or a module that the job does not get is
    passed as a whole.

    Args:
        workspace: the directory whose files the job gets. None if it gets no files.
        params: further keyword arguments of each task, in the order of the tasks. None gives all
            tasks the same arguments.
        python: the path of the interpreter that runs the call on hosts that have it. None is the
            interpreter of the job's environment.
        bare: whether nothing is installed for the job. If so, warns of modules that the job may
            lack.

    Raises:
        InvalidValue: the function or an argument cannot be pickled, or the call is too large.
    """
    with tempfile.TemporaryDirectory(prefix="iris-call-") as directory:
        made = Path(directory)
        (made / "call.json").write_text(json.dumps([function_name(function), sys.version_info[:2]]))
        with (
            (made / "call.pickle").open("wb") as file,
            by_value(missing_module(function, workspace)),
        ):
            try:
                rows = None if params is None else [dict(row) for row in params]
                pickler = Pickler(file, PROTOCOL)
                pickler.dump((function, tuple(args), dict(kwargs), rows))
            except Exception as error:  # the methods of the user's objects may raise anything
                raise InvalidValue(
                    "function", function_name(function), f"cannot be pickled: {error}", _REMEDY
                ) from error
        if bare:
            warn_of_missing(pickler.modules, function_name(function), workspace, _PROVIDED)
        size = (made / "call.pickle").stat().st_size
        if size > MAX_BUNDLE - _OVERHEAD:
            raise InvalidValue(
                "function",
                function_name(function),
                f"has {format_bytes(size)} of arguments; the limit is"
                f" {format_bytes(MAX_BUNDLE - _OVERHEAD)}",
                "pass a path or a URL of large data, and read it inside the function",
            )
        files = [ExtraFile(made / name, name) for name in ("call.json", "call.pickle")]
        files.append(ExtraFile(Path(run.__file__), bundles.SCRIPT))
        return pack(None, [*files, *library_files(), *python_file(python, made)])


def library_files() -> list[ExtraFile]:
    """Returns the files that a call's scripts and its function import: the module `same_python`,
    this version of cloudpickle, and the modules of `iris.context()`.
    """
    library = Path(cloudpickle.__file__).parent
    files = [ExtraFile(path, f"cloudpickle/{path.name}") for path in sorted(library.glob("*.py"))]
    files += [ExtraFile(_PACKAGE / name, f"context/iris/{name}") for name in _CONTEXT]
    return [ExtraFile(Path(same_python.__file__), "same_python.py"), *files]


def python_file(python: str | None, directory: Path) -> list[ExtraFile]:
    """Returns the file that names the interpreter of a call. Returns no file if the job's
    environment has the interpreter.

    Args:
        directory: the directory in which the file is written.
    """
    if python is None:
        return []
    (directory / bundles.PYTHON).write_text(python)
    return [ExtraFile(directory / bundles.PYTHON, bundles.PYTHON)]


def pickled(value: object, function: Callable[..., Any], module: ModuleType | None) -> bytes:
    """Pickles the function, or its arguments.

    Args:
        module: the module of the function if the job cannot import it, as `missing_module` returns
            it.

    Raises:
        InvalidValue: the value cannot be pickled.
    """
    with by_value(module):
        try:
            data: bytes = cloudpickle.dumps(value, PROTOCOL)
        except Exception as error:  # the methods of the user's objects may raise anything
            raise InvalidValue(
                "function", function_name(function), f"cannot be pickled: {error}", _REMEDY
            ) from error
    return data


@contextmanager
def by_value(module: ModuleType | None) -> Iterator[None]:
    """Makes cloudpickle pass the module as a whole within the block, because the job does not have
    it. None changes nothing.
    """
    if module is None:
        yield
        return
    with _registry:
        cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            cloudpickle.unregister_pickle_by_value(module)
