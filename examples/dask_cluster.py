"""Runs a program with a Dask cluster on all hosts of a job. The program's `Client()` finds the
cluster without an address.

iris cluster start --local -d --tpu v4-16
iris submit --tpu v4-16 --pip distributed -- python examples/dask_cluster.py examples/dask_sum.py

Task 0 runs the scheduler, a worker and the program; each other task runs a worker, which ends with
the scheduler. On other hosts than TPU slices, write `--replicas 4 --gang-by zone`, for example.
"""

import os
import subprocess
import sys

from distributed import Client

# Otherwise each end of a worker is in the log with a traceback.
os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "warning")
coordinator = os.environ["IRIS_COORDINATOR_ADDRESS"]
address = f"tcp://{coordinator}"
host = os.environ["IRIS_HOST_ADDRESS"]
worker = [
    sys.executable,
    "-m",
    "distributed.cli.dask_worker",
    address,
    "--no-nanny",
    "--no-dashboard",
    "--host",
    host,
]
worker += ["--name", os.environ["IRIS_TASK_ID"], "--nthreads", "1", "--death-timeout", "300"]

if os.environ["IRIS_TASK_INDEX"] != "0":
    sys.exit(subprocess.call(worker))

port = coordinator.rpartition(":")[2]
dask = [
    sys.executable,
    "-m",
    "distributed.cli.dask_scheduler",
    "--host",
    host,
    "--port",
    port,
    "--no-dashboard",
]
with subprocess.Popen(dask) as scheduler, subprocess.Popen(worker) as own_worker:
    try:
        with Client(address, timeout=300) as client:
            client.wait_for_workers(int(os.environ["IRIS_NUM_TASKS"]))
            code = subprocess.call(
                [sys.executable, *sys.argv[1:]],
                env={**os.environ, "DASK_SCHEDULER_ADDRESS": address},
            )
            client.shutdown()  # ends the scheduler and all workers
    except BaseException:
        scheduler.kill()
        own_worker.kill()
        raise
sys.exit(code)
