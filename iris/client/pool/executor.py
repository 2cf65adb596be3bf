"""Runs the calls of a pool's worker, one after the other. Each pool's jobs have a copy of this
script, so it must run on Python 3.8 and later.

Its parent process, the worker, sends batches over a socket: a pickled function and the pickled
arguments of each call. The answer to a call has the format that `iris.client.functions.run` writes
for the job of a function.
"""

from __future__ import annotations

import collections
import io
import os
import pickle
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iris.client.functions import run
    from iris.client.pool import frames
else:
    import frames
    import one_call as run

HERE = os.path.dirname(os.path.abspath(__file__))
#: The number of functions that the process keeps, so that a later call need not unpickle its
#: function again.
KEPT = 32
#: The time limit of a batch, in seconds. After it, the process starts no further call of the batch.
#: An empty answer reports this, and any idle worker gets the remaining calls.
LONGEST = 1.0
#: The maximum total size in bytes of a batch's answers. At this size, the batch ends early, as
#: after `LONGEST` seconds.
FULL = 48 * 1024


def main() -> None:
    """Answers calls until the worker closes the socket."""
    stream = socket.socket(fileno=int(sys.argv[1])).makefile("rwb")
    sys.path[0] = os.getcwd()
    run.provide_context(HERE)
    pickler = run.load(HERE, "cloudpickle")
    functions: collections.OrderedDict[bytes, Callable[..., Any]] = collections.OrderedDict()
    for batch in _batches(stream):
        function, *calls = frames.split(batch)
        started, size = time.monotonic(), 0
        for number, arguments in enumerate(calls, 1):
            answer = _call(functions, function, arguments, pickler)
            _write(stream, answer)
            size += len(answer)
            if number < len(calls) and (time.monotonic() - started > LONGEST or size > FULL):
                _write(stream, b"")
                break


def _write(stream: Any, answer: bytes) -> None:
    stream.write(struct.pack(frames.LENGTH, len(answer)) + answer)
    stream.flush()


def _batches(stream: Any) -> Iterator[bytes]:
    size = struct.calcsize(frames.LENGTH)
    while len(head := stream.read(size)) == size:
        yield stream.read(struct.unpack(frames.LENGTH, head)[0])


def _call(
    functions: collections.OrderedDict[bytes, Callable[..., Any]],
    packed: bytes,
    arguments: bytes,
    pickler: Any,
) -> bytes:
    out = io.BytesIO()
    try:
        if packed not in functions:
            functions[packed] = pickle.loads(packed)  # noqa: S301 the worker checked it
            if len(functions) > KEPT:
                functions.popitem(last=False)
        function = functions[packed]
        args, kwargs = pickle.loads(arguments)  # noqa: S301 the worker checked it
        value = run.finished(function(*args, **kwargs))
    except KeyboardInterrupt:  # the worker ends
        raise
    except (Exception, SystemExit) as error:
        run.write_error(out, _from_the_call(error), pickler)
    # such as asyncio.CancelledError: the caller would take it for a cancellation of its own
    except BaseException as error:
        problem = RuntimeError(f"the call ended with {type(error).__name__}: {error}")
        run.write_error(out, problem.with_traceback(_from_the_call(error).__traceback__), pickler)
    else:
        _write_value(
            out, value, getattr(function, "__qualname__", type(function).__name__), pickler
        )
    return out.getvalue()


def _write_value(out: io.BytesIO, value: Any, name: str, pickler: Any) -> None:
    """Writes the value, or an error if the value cannot be an answer."""
    try:
        run.write_value(out, value, name, pickler)
    except TypeError:
        traceback.print_exc()
    if out.tell() > frames.LARGEST:
        problem = (
            f"the result of {name} has {out.tell():,} bytes; the limit is {frames.LARGEST:,}:"
            " return the path of a file"
        )
        out.seek(0)
        out.truncate()
        run.write_error(out, ValueError(problem), pickler)


def _from_the_call(error: BaseException) -> BaseException:
    """Returns the error with a traceback without the frames of this script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return error.with_traceback(trace)


if __name__ == "__main__":
    main()
