"""Runs a pickled function in a job. Each call has a copy of this script: it needs Python 3.8 or later, and nothing of Iris.

The script's directory has `call.json` (the function's name, and by which Python it was pickled), `call.pickle` (the function and
its arguments) and the library cloudpickle. The result goes into the task's output directory: a line of JSON, then the pickled
value.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import traceback
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> int:
    """Returns the exit code: 0 if the function has returned and its result is kept."""
    with open(os.path.join(HERE, "call.json")) as file:
        name, version = json.load(file)
    sys.path[0] = os.getcwd()
    pickler = _cloudpickle()
    try:
        function, args, kwargs = _load(name, version)
        value = function(*args, **kwargs)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
        value = None  # the program has ended well, and has returned nothing
    except Exception as error:
        _print(error)
        _keep_error(error, pickler)
        return 1
    try:
        _keep({"kind": "value", "type": type(value).__name__}, value, pickler)
    except Exception as error:  # the methods of the value's classes may raise anything
        problem = f"the result of {name}, a {type(value).__name__}, cannot be pickled: {error}"
        print(f"{problem}; return plain data, or write files to $IRIS_OUTPUT_DIR", file=sys.stderr)
        _keep_error(TypeError(problem), pickler)
        return 1
    return 0


def _cloudpickle() -> Any:
    """Imports the copy of cloudpickle that came with the call. Another version cannot always read what this one has written."""
    sys.path.insert(0, HERE)
    import cloudpickle

    sys.path.remove(HERE)
    return cloudpickle


def _load(name: str, version: list[int]) -> Any:
    here, there = ".".join(map(str, sys.version_info[:2])), ".".join(map(str, version))
    if here != there:
        raise RuntimeError(
            f"{name} was pickled by Python {there}, and this job has Python {here} ({sys.executable}); a function needs the same "
            f"version on both sides: submit it from Python {here}, or give the job an image or a project with Python {there}"
        )
    try:
        with open(os.path.join(HERE, "call.pickle"), "rb") as file:
            return pickle.load(file)  # noqa: S301 the user's own call
    except ModuleNotFoundError as error:
        problem = (
            f"{name} needs the module {error.name!r}, which the job's environment does not have; add it to the project or pip"
        )
        raise ModuleNotFoundError(problem, name=error.name) from None


def _print(error: BaseException) -> None:
    """Prints the traceback without the frames of this script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _keep_error(error: BaseException, pickler: Any) -> None:
    """Keeps the exception's text, and the exception itself if it can be restored."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    header = {"kind": "error", "type": type(error).__name__, "message": str(error), "traceback": text}
    try:
        pickle.loads(pickler.dumps(error))  # noqa: S301 made in this line
    except Exception:  # the methods of the exception's class may raise anything
        _keep(header, None, None)
    else:
        _keep(header, error, pickler)


def _keep(header: dict[str, Any], value: Any, pickler: Any) -> None:
    """Writes the result as a whole or not at all. Without a pickler it is only the header."""
    folder = os.path.join(os.environ["IRIS_OUTPUT_DIR"], ".iris")
    os.makedirs(folder, exist_ok=True)
    part = os.path.join(folder, "part")
    with open(part, "wb") as file:
        file.write(json.dumps({**header, "pickled": pickler is not None}).encode() + b"\n")
        if pickler is not None:
            pickler.dump(value, file)
    os.replace(part, os.path.join(folder, "result"))


if __name__ == "__main__":
    sys.exit(main())
