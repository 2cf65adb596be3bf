"""Measures pools of workers: the rate of trivial calls of `iris.WorkerPool`, and of the executors
of Dask and Ray beside it.

Dask and Ray are no dependencies of Iris. `PEERS_PYTHON` names an interpreter that has
`distributed`, `ray` or both, of the same minor version; without it, only Iris is measured. All have
the same number of worker processes on the same cores.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import iris
from benchmarks.table import Row

WORKERS = 2
CALLS = (1_000, 10_000)
#: Calls one after the other, for the latency.
SINGLE = 50
#: The part of Dask's rate that is aimed at. Iris' calls are durable: each batch is on the server's
#: disk before it is run.
TARGET = 0.5

#: Prints the rates of `map` and of `submit`. A first map makes the workers ready.
DASK = """
import time
from distributed import Client, LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, Client(cluster) as client:
        client.gather(client.map(lambda number: number - 1, range(100)))
        for calls in CALLS:
            began = time.perf_counter()
            assert client.gather(client.map(lambda number: number + 1, range(calls), pure=False))[-1] == calls
            print(calls / (time.perf_counter() - began), flush=True)
"""
RAY = """
import time, ray
ray.init("local", num_cpus=WORKERS, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
@ray.remote
def plus_one(number):
    return number + 1
ray.get([plus_one.remote(number) for number in range(100)])
for calls in CALLS:
    began = time.perf_counter()
    assert ray.get([plus_one.remote(number) for number in range(calls)])[-1] == calls
    print(calls / (time.perf_counter() - began), flush=True)
ray.shutdown()
"""


def measure(*, quick: bool) -> list[Row]:
    calls = CALLS[:1] if quick else CALLS
    rounds = 1 if quick else 3
    found: dict[str, list[list[float]]] = {"iris": [], "alone": [], "dask": [], "ray": []}
    latencies: list[float] = []
    with tempfile.TemporaryDirectory(prefix="iris-") as state:
        os.environ["IRIS_STATE_DIR"] = state
        with (
            iris.IrisClient.local() as client,
            iris.WorkerPool(
                client, WORKERS, resources=iris.Resources(cpu=0.5, memory="256m"), workspace=False
            ) as pool,
        ):
            list(pool.map(lambda number: number - 1, range(100)))
            for _ in range(rounds):
                found["iris"].append([_rate(pool, each, None) for each in calls])
                found["alone"].append([_rate(pool, calls[0] // 5, 1)])
                for name, script in (("dask", DASK), ("ray", RAY)):
                    if rates := _peer(script, calls):
                        found[name].append(rates)
            latencies = [_timed(lambda: pool.submit(abs, -1).result()) for _ in range(SINGLE)]
    rows = []
    for index, each in enumerate(calls):
        rate = median(rates[index] for rates in found["iris"])
        dask = median(rates[index] for rates in found["dask"]) if found["dask"] else None
        ray = f"; Ray: {median(rates[index] for rates in found['ray']):.0f}" if found["ray"] else ""
        what = f"calls a second of a pool's map of {each:,}; the floor is Dask"
        rows.append(
            Row(
                what,
                rate,
                dask,
                TARGET if dask else None,
                at_least=True,
                format="{:.0f}",
                note=_spread(found, index) + ray,
            )
        )
    alone = median(rates[0] for rates in found["alone"])
    rows.append(Row("calls a second, each alone in its batch", alone, format="{:.0f}"))
    rows.append(
        Row(
            "one call of a pool, p50 ms",
            median(latencies) * 1000,
            note=f"max {max(latencies) * 1000:.0f}",
        )
    )
    return rows


def _spread(found: dict[str, list[list[float]]], index: int) -> str:
    return "; ".join(
        f"{name}: {', '.join(f'{rates[index]:.0f}' for rates in found[name])}"
        for name in ("iris", "dask")
        if found[name]
    )


def _rate(pool: iris.WorkerPool, calls: int, chunksize: int | None) -> float:
    began = time.perf_counter()
    results = list(pool.map(lambda number: number + 1, range(calls), chunksize=chunksize))
    took = time.perf_counter() - began
    if results != list(range(1, calls + 1)):
        raise RuntimeError("the pool lost or doubled a result")
    return calls / took


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _peer(script: str, calls: tuple[int, ...]) -> list[float]:
    """Returns the rates of another program; none if its library is not there."""
    python = os.environ.get("PEERS_PYTHON")
    if python is None:
        return []
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "peer.py"
        file.write_text(f"WORKERS, CALLS = {WORKERS}, {calls}\n{script}")
        ran = subprocess.run([python, file], capture_output=True, text=True, timeout=600)
    if "ModuleNotFoundError" in ran.stderr:
        return []
    ran.check_returncode()
    return [float(line) for line in ran.stdout.split()]
