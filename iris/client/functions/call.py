"""Packs a function and its arguments into a bundle that a job can run."""

import inspect
import json
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from iris.client.functions import run
from iris.client.workspace.files import workspace_files
from iris.client.workspace.pack import ExtraFile, Packed, pack
from iris.model import names
from iris.model.bundles import MAX_BUNDLE
from iris.model.errors import InvalidValue
from iris.model.units import format_bytes

#: The pickle protocol, which Python 3.8 and later can read.
PROTOCOL = 5
#: How much of a bundle the library and the script may take.
_OVERHEAD = 1024 * 1024


def function_name(function: Callable[..., Any]) -> str:
    """Returns `module:name`, which lists show as the job's command."""
    function = getattr(function, "func", function)  # of a functools.partial
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or '__main__'}:{name}"


def pack_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], workspace: Path | None = None
) -> Packed:
    """Packs the call with everything that the job's interpreter needs for it.

    A function of a module that the job gets with its workspace, or that is installed, is passed by name. A function of the main
    program, a notebook, or a module that the job does not get is passed as a whole.

    Args:
        workspace: the directory whose files the job gets; None: it gets none.

    Raises:
        InvalidValue: the function or an argument cannot be pickled, or the call is too large.
    """
    if inspect.iscoroutinefunction(function):
        raise InvalidValue(
            "function", function_name(function), "is a coroutine function", "pass a function that calls asyncio.run"
        )
    with tempfile.TemporaryDirectory(prefix="iris-call-") as directory:
        made = Path(directory)
        (made / "call.json").write_text(json.dumps([function_name(function), sys.version_info[:2]]))
        with (made / "call.pickle").open("wb") as file, _by_value(function, workspace):
            try:
                cloudpickle.dump((function, tuple(args), dict(kwargs)), file, PROTOCOL)
            except Exception as error:
                # Anything may be raised by the methods of the user's objects.
                remedy = "pass plain data, and open files, locks and connections inside the function"
                raise InvalidValue("function", function_name(function), f"cannot be pickled: {error}", remedy) from error
        size = (made / "call.pickle").stat().st_size
        if size > MAX_BUNDLE - _OVERHEAD:
            raise InvalidValue(
                "function",
                function_name(function),
                f"has {format_bytes(size)} of arguments; the limit is {format_bytes(MAX_BUNDLE - _OVERHEAD)}",
                "pass a path or a URL of large data, and read it inside the function",
            )
        files = [ExtraFile(made / name, name) for name in ("call.json", "call.pickle")]
        files.append(ExtraFile(Path(run.__file__), names.CALL_SCRIPT))
        library = Path(cloudpickle.__file__).parent
        files += [ExtraFile(path, f"cloudpickle/{path.name}") for path in sorted(library.glob("*.py"))]
        return pack(None, files)


@contextmanager
def _by_value(function: Callable[..., Any], workspace: Path | None) -> Iterator[None]:
    """Passes the function's module as a whole, if the job will not have it."""
    module = inspect.getmodule(getattr(function, "func", function))
    if module is None or not _is_missing(module, workspace):
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _is_missing(module: ModuleType, workspace: Path | None) -> bool:
    """Returns whether a job with this workspace cannot import the module: it is not installed, and not where the job looks."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or file is None:
        return False
    path = Path(file).resolve()
    installed = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    if any(path.is_relative_to(Path(place).resolve()) for place in installed):
        return False
    if workspace is None or not path.is_relative_to(workspace.resolve()):
        return True
    if str(path.relative_to(workspace.resolve())) not in workspace_files(workspace.resolve()):
        return True  # git ignores it
    # The job imports from the workspace's directory, and what its projects install. A script's own directory is not among them.
    depth = len(module.__name__.split(".")) + (path.name == "__init__.py")
    base = path.parents[depth - 1]
    project = base.parent if base.name == "src" else base
    return base != workspace.resolve() and not (project / "pyproject.toml").is_file()
