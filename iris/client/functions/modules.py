"""Finds the modules that a call imports in the job, and whether the job has them."""

import inspect
import sys
import sysconfig
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from iris.client.workspace.files import workspace_files


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """A cloudpickle pickler that also collects the names of the modules that the pickle imports."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        """Returns how cloudpickle passes the object as a whole. Returns NotImplemented if the
        object is imported by its name, or pickled as usual.
        """
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented:
            if isinstance(obj, ModuleType):
                self.modules.add(obj.__name__)
            elif isinstance(obj, type | FunctionType | BuiltinFunctionType):
                self.modules.add(getattr(obj, "__module__", None) or "builtins")
        return reduced


def warn_of_missing(
    modules: Collection[str], function: str, workspace: Path | None, provided: Collection[str]
) -> None:
    """Warns of modules that a job for which nothing is installed may lack.

    The job is not refused, because the Python of its host or an image of the cluster may have the
    modules.

    Args:
        function: the name of the job's function.
        workspace: the directory whose files the job gets. None if it gets no files.
        provided: the modules that come with the call.
    """
    lacking = sorted(
        {
            name.partition(".")[0]
            for name in modules
            if name not in provided and _may_be_missing(name, workspace)
        }
    )
    if lacking:
        warnings.warn(
            f"{function} uses {', '.join(lacking)}, and nothing is installed for its job: it fails"
            " on hosts whose Python lacks that; submit it from its project, or with"
            " environment=iris.EnvironmentSpec(pip=…) or image=…",
            stacklevel=2,
        )


def module_of(function: Callable[..., Any]) -> ModuleType | None:
    """Returns the module in which the function was defined. Returns None if there is no such
    module.
    """
    return inspect.getmodule(getattr(function, "func", function))


def missing_module(function: Callable[..., Any], workspace: Path | None) -> ModuleType | None:
    """Returns the function's module if a job with this workspace cannot import it. Returns None
    otherwise.
    """
    module = module_of(function)
    return module if module is not None and is_missing(module, workspace) else None


def is_missing(module: ModuleType, workspace: Path | None) -> bool:
    """Returns whether a job with this workspace cannot import the module: it is neither installed
    nor in the workspace.
    """
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or file is None:
        return False
    path = Path(file).resolve()
    installed = (
        sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    )
    if any(path.is_relative_to(Path(place).resolve()) for place in installed):
        return False
    return not _is_sent(module.__name__, path, workspace)


def _is_sent(name: str, path: Path, workspace: Path | None) -> bool:
    """Returns whether a job imports the module from this workspace."""
    if workspace is None or not path.is_relative_to(workspace.resolve()):
        return False
    if str(path.relative_to(workspace.resolve())) not in workspace_files(workspace.resolve()):
        return False  # git ignores it
    # The job imports modules of the workspace's directory and of the projects that it installs. It
    # does not import modules beside a script.
    depth = len(name.split(".")) + (path.name == "__init__.py")
    base = path.parents[depth - 1]
    project = base.parent if base.name == "src" else base
    return base == workspace.resolve() or (project / "pyproject.toml").is_file()


def _may_be_missing(name: str, workspace: Path | None) -> bool:
    if name.partition(".")[0] in sys.stdlib_module_names or name in (
        "__main__",
        "cloudpickle.cloudpickle",
    ):
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is None or not _is_sent(name, Path(file).resolve(), workspace)
