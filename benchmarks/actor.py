"""Measures a call of an actor. The floor is an object that answers on a connection of the standard
library, without Iris.
"""

import contextlib
import multiprocessing
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from statistics import median

import iris
from benchmarks.ground import NAME, cluster
from benchmarks.table import Row

SERVER = """
import iris

class Echo:
    def echo(self, value):
        return value

with iris.ActorServer() as server:
    server.register("echo", Echo())
    server.serve()
"""
KEY = b"of the floor"


def measure(*, quick: bool) -> list[Row]:
    calls, rounds = (500, 3) if quick else (2_000, 7)
    started: multiprocessing.Queue[tuple[str, int]] = multiprocessing.Queue()
    floor = multiprocessing.Process(target=_serve_floor, args=(started,), daemon=True)
    floor.start()
    try:
        with (
            cluster(1),
            iris.IrisClient(NAME, workspace=False) as client,
            Client(started.get(), authkey=KEY) as connection,
        ):
            job = client.submit(sys.executable, "-c", SERVER, name="actors")
            echo = iris.ActorClient(client, "echo", job="actors").echo
            rows = [_row(size, calls, rounds, echo, connection) for size in (10, 100_000)]
            job.cancel()
    finally:
        floor.kill()
    return rows


def _row(
    size: int, calls: int, rounds: int, echo: Callable[[bytes], bytes], connection: Connection
) -> Row:
    value = bytes(size)

    def by_floor(value: bytes) -> bytes:
        connection.send(value)
        answer: bytes = connection.recv()
        return answer

    ours: list[float] = []
    theirs: list[float] = []
    for turn in range(rounds + 1):  # the first one warms both up
        for taken, call in ((ours, echo), (theirs, by_floor))[:: 1 if turn % 2 else -1]:
            taken.append(_p50(call, value, calls))
    ratio = median(one / other for one, other in zip(ours[1:], theirs[1:], strict=True))
    note = (
        f"{rounds} rounds of {calls}; floor: a pickle each way on an authenticated connection of"
        " multiprocessing"
    )
    what = f"a call of an actor with {size:,} bytes, p50, ms"
    return Row(what, median(ours[1:]), median(theirs[1:]), ratio=ratio, format="{:.3f}", note=note)


def _p50(call: Callable[[bytes], bytes], value: bytes, calls: int) -> float:
    taken = []
    for _ in range(calls):
        begun = time.perf_counter()
        assert call(value) == value
        taken.append(1000 * (time.perf_counter() - begun))
    return median(taken)


def _serve_floor(started: "multiprocessing.Queue[tuple[str, int]]") -> None:
    with Listener(("127.0.0.1", 0), authkey=KEY) as listener:
        started.put(listener.address)
        with listener.accept() as connection, contextlib.suppress(EOFError):
            while True:
                connection.send(connection.recv())
