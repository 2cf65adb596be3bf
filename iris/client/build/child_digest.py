"""Makes digests of the work of child jobs, so that the retry of a parent finds the children that
its earlier attempts submitted.

The digest is the same in each attempt that submits the same work. Work that could differ has
another digest, and work that cannot be compared between attempts has a new digest in each attempt.
A child that runs twice costs time, but the result of another child would be wrong.
"""

import dis
import hashlib
import pickle
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from iris.model import names
from iris.model.job.spec import JobSpec

#: The environment variables that contain directories of the parent job's attempt. Their paths are
#: left out of the digest of a child job, because they differ between attempts of the parent.
_DIRECTORIES = (names.ENV_WORKDIR, names.ENV_OUTPUT_DIR, names.ENV_CALL_DIR, "TMPDIR", "HOME")
#: The fields of a job, besides its function or command, that can change the result of the job. The
#: digest of a child job contains them.
_SETTINGS = {"env", "secrets", "image", "workdir", "replicas", "environment"}
#: The fields of an array that can change the job's result. The digest of a child job contains them.
#: The array's rows are added to the digest separately, because they are not in the store yet.
_OF_ARRAY = {"indices", "size", "columns"}
#: The attributes of a class that are left out of its digest, because they do not change its
#: behaviour.
_NOISE = {"_abc_impl"}


def work_of_command(words: Sequence[str], spec: JobSpec, env: Mapping[str, str]) -> str:
    """Returns the digest of a command.

    Args:
        words: the words of the command, and the rows of its array.
        spec: the job, without the settings that it inherits.
        env: the environment variables of the program that submits it.
    """
    return _digest(("command", tuple(words), _settings(spec)), env)


def work_of_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    spec: JobSpec,
    env: Mapping[str, str],
) -> str:
    """Returns the digest of a call. The pickle of cloudpickle cannot be used: it contains random
    ids.

    Args:
        spec, env: as for `work_of_command`.
    """
    call = (function, tuple(args), sorted(kwargs.items()))
    try:
        return _digest(("call", call, _settings(spec)), env)
    except Exception:  # the methods of the user's objects may raise anything
        return uuid.uuid4().hex


def _settings(spec: JobSpec) -> list[tuple[str, Any]]:
    settings = spec.model_dump(mode="json", include=_SETTINGS)
    if spec.array is not None:
        settings["array"] = sorted(spec.array.model_dump(mode="json", include=_OF_ARRAY).items())
    return sorted(settings.items())


def _digest(value: Any, env: Mapping[str, str]) -> str:
    """Returns the digest of a value's pickle."""
    digest = _Digest()
    _Pickler(digest, env).dump(value)
    return digest.text


class _Digest:
    """An object to which a pickler writes as to a file. It only computes the digest of the written
    bytes.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def write(self, data: Any) -> None:
        self._hash.update(data)

    @property
    def text(self) -> str:
        return self._hash.hexdigest()


class _Pickler(pickle.Pickler):
    """A pickler that writes equal values as equal bytes in every process.

    Functions and classes that the child cannot import are pickled with their content, because
    cloudpickle passes them as a whole. Functions and classes of modules are pickled by their names,
    because the child has the same files.
    """

    def __init__(self, file: _Digest, env: Mapping[str, str]) -> None:
        super().__init__(file, protocol=5)
        self._env = env
        #: The number and the value of each function or class pickled so far, by its address in
        #: memory. One that is pickled again, or refers to itself, is replaced by its number.
        self._seen: dict[int, tuple[int, Any]] = {}
        self._paths = _paths(env)

    def persistent_id(self, value: Any) -> Any:
        """Returns the value that is pickled in place of this one. None pickles the value itself."""
        match value:
            # A pickle contains an object once and then refers to it. Equal texts can be one object
            # in one process and several in another, so they are pickled as bytes.
            case str() if type(value) is str:
                return 0, bytearray(self._steady(value).encode(errors="surrogatepass"))
            case bytes() if type(value) is bytes:
                return 1, bytearray(value)
            case PurePath():
                return "path", type(value).__name__, str(value)
            # The order of a set differs between processes.
            case set() | frozenset() if type(value) in (set, frozenset):
                return type(value).__name__, sorted(_digest(each, self._env) for each in value)
            case CodeType():
                return "code", *_parts_of_code(value)
            case CellType():
                return ("cell", *_content(value))
            case MethodType():
                return "method", value.__func__, value.__self__
            case staticmethod() | classmethod():
                return type(value).__name__, value.__func__
            case property():
                return "property", value.fget, value.fset, value.fdel
            case ModuleType():
                return "module", value.__name__
            case FunctionType() | type() if not _can_be_imported(value):
                if id(value) in self._seen:
                    return "again", self._seen[id(value)][0]
                self._seen[id(value)] = len(self._seen), value
                return (
                    _parts_of_function(value)
                    if isinstance(value, FunctionType)
                    else _parts_of_class(value)
                )
        return None

    def _steady(self, text: str) -> str:
        """Replaces the paths of the attempt's own directories by the names of their variables."""
        return self._paths.sub(
            lambda found: next(
                f"${name}" for name in _DIRECTORIES if self._env.get(name) == found[0]
            ),
            text,
        )


def _paths(env: Mapping[str, str]) -> re.Pattern[str]:
    paths = {env[name] for name in _DIRECTORIES if len(env.get(name, "")) > 1}
    longest_first = sorted(paths, key=len, reverse=True)
    return re.compile(
        rf"(?<![\w.-])({'|'.join(map(re.escape, longest_first))})(?![\w.-])" if paths else r"(?!)"
    )


def _can_be_imported(value: Any) -> bool:
    module = getattr(value, "__module__", None) or ""
    if module == "__main__":  # the child has another main module
        return False
    found: Any = sys.modules.get(module)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _parts_of_function(function: FunctionType) -> tuple[Any, ...]:
    used = {
        name: function.__globals__[name]
        for name in sorted({*_globals(function.__code__)})
        if name in function.__globals__
    }
    return (
        "function",
        function.__module__,
        function.__qualname__,
        function.__code__,
        function.__defaults__,
        function.__kwdefaults__,
        function.__closure__,
        used,
        sorted(vars(function).items()),
    )


def _parts_of_class(kind: type) -> tuple[Any, ...]:
    members = {
        name: value
        for name, value in sorted(vars(kind).items())
        if name not in _NOISE
        and (isinstance(value, FunctionType) or not (name.startswith("__") and name.endswith("__")))
    }
    return "class", kind.__module__, kind.__qualname__, type(kind), kind.__bases__, members


def _parts_of_code(code: CodeType) -> tuple[Any, ...]:
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    called = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_name, code.co_code, code.co_consts, counts, called


def _globals(code: CodeType) -> Iterator[str]:
    """Yields the names of the global variables that the code reads."""
    yield from (
        each.argval
        for each in dis.get_instructions(code)
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    )
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _globals(each)


def _content(cell: CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # an empty cell: the function refers to a name that is defined later
        return ()
