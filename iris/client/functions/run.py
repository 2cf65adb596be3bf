"""Runs a pickled function in a job. Each call has a copy of this script, which needs Python 3.8 or
later and no module of Iris.

The script's directory has `call.json` (the function's name, and the version of Python that pickled
it), `call.pickle` (the function, its arguments, and the arguments of each task of an array), the
library cloudpickle, `same_python.py`, and the part of Iris for `iris.context()`. The result is
written into the task's output directory: a line of JSON, then the pickled value.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pickle
import sys
import traceback
from collections.abc import Iterator
from types import CoroutineType
from typing import Any, BinaryIO

HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> int:
    """Returns the exit code: 0 if the function returned and its result is written."""
    with open(os.path.join(HERE, "call.json")) as file:
        name, version = json.load(file)
    sys.path[0] = os.getcwd()
    problem = load(HERE, "same_python").problem_with(version)
    provide_context(HERE)
    pickler = load(HERE, "cloudpickle")
    try:
        if problem:
            raise RuntimeError(f"function {name} was {problem}")
        function, args, kwargs, rows = _load(name)
        if rows is not None:
            kwargs = {**kwargs, **rows[int(os.environ["IRIS_ARRAY_INDEX"])]}
        value = finished(function(*args, **kwargs))
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
        value = None  # the program ended with success, without a value
    except Exception as error:
        _print(error)
        with _result() as file:
            write_error(file, error, pickler)
        return 1
    with _result() as file:
        try:
            write_value(file, value, name, pickler)
        except TypeError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def finished(value: Any) -> Any:
    """Returns the value. If it is the coroutine of an `async def` function, runs the coroutine on a
    new event loop and returns its value.
    """
    if not isinstance(value, CoroutineType):
        return value
    import asyncio

    return asyncio.run(value)


def load(directory: str, module: str) -> Any:
    """Imports the directory's copy of a module. Another version of cloudpickle cannot always read a
    pickle of this version.
    """
    sys.path.insert(0, directory)
    try:
        return importlib.import_module(module)
    finally:
        sys.path.remove(directory)


def provide_context(directory: str) -> None:
    """Lets programs import the directory's part of Iris, which has `iris.context()`, if the job has
    no Iris of its own.
    """
    if importlib.util.find_spec("iris") is None:
        sys.path.append(os.path.join(directory, "context"))


def _load(name: str) -> Any:
    try:
        with open(os.path.join(HERE, "call.pickle"), "rb") as file:
            return pickle.load(file)  # noqa: S301 the user's own call
    except ModuleNotFoundError as error:
        problem = (
            f"{name} needs the module {error.name!r}, which the job's environment does not have;"
            " add it to the project or pip"
        )
        raise ModuleNotFoundError(problem, name=error.name) from None


def _print(error: BaseException) -> None:
    """Prints the traceback without the frames of this script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


@contextlib.contextmanager
def _result() -> Iterator[BinaryIO]:
    """Opens the file of the result. The file gets its name only when it is complete."""
    folder = os.path.join(os.environ["IRIS_OUTPUT_DIR"], ".iris")
    os.makedirs(folder, exist_ok=True)
    part = os.path.join(folder, "part")
    with open(part, "wb") as file:
        yield file
    os.replace(part, os.path.join(folder, "result"))


def write_value(file: BinaryIO, value: Any, name: str, pickler: Any) -> None:
    """Writes a line of JSON and the pickled value. Writes an error instead if the value cannot be
    pickled.

    Raises:
        TypeError: the value cannot be pickled.
    """
    file.write(
        json.dumps({"kind": "value", "type": type(value).__name__, "pickled": True}).encode()
        + b"\n"
    )
    try:
        pickler.dump(value, file)
    except Exception as error:  # the methods of the value's classes may raise anything
        problem = f"the result of {name}, a {type(value).__name__}, cannot be pickled: {error}"
        file.seek(0)
        file.truncate()
        write_error(file, TypeError(problem), pickler)
        raise TypeError(
            f"{problem}; return plain data, or write files to $IRIS_OUTPUT_DIR"
        ) from None


def write_error(file: BinaryIO, error: BaseException, pickler: Any) -> None:
    """Writes the exception's text, and the exception itself if it can be restored."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickled = pickler.dumps(error)
        pickle.loads(pickled)  # noqa: S301 made in the line above
    except Exception:  # the methods of the exception's class may raise anything
        pickled = b""
    try:
        message = str(error)
    except Exception:  # this method may raise anything, too
        message = ""
    header = {
        "kind": "error",
        "type": type(error).__name__,
        "message": message,
        "traceback": text,
        "pickled": bool(pickled),
    }
    file.write(json.dumps(header).encode() + b"\n" + pickled)


if __name__ == "__main__":
    sys.exit(main())
