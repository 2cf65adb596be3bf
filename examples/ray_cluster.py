"""Runs a program with a Ray cluster on all hosts of a job. The program's `ray.init()` finds the
cluster without an address.

iris cluster start --local -d --tpu v4-16
iris submit --tpu v4-16 --memory 4g --pip ray -- python examples/ray_cluster.py examples/ray_sum.py

Further options of `ray start` are in RAY_START_OPTIONS, such as `-e RAY_START_OPTIONS='--num-cpus
4'`.

Task 0 runs the head node and the program; each other task runs a node, which ends with the head. On
other hosts than TPU slices, write `--replicas 4 --gang-by zone`, for example. Do not use `ray
stop`: it also ends the nodes of other jobs of the machine.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

coordinator = os.environ["IRIS_COORDINATOR_ADDRESS"]
address, _, port = coordinator.rpartition(":")
ray_start = [
    str(Path(sys.executable).with_name("ray")),
    "start",
    "--block",
    "--disable-usage-stats",
]
ray_start += [
    "--node-ip-address",
    os.environ["IRIS_HOST_ADDRESS"],
    *os.environ.get("RAY_START_OPTIONS", "").split(),
]


def head_answers() -> bool:
    try:
        with socket.create_connection((address, int(port)), timeout=5):
            return True
    except OSError:
        return False


def wait_for_nodes() -> None:
    """Returns when all tasks have joined. One that came after the end of the program would wait for
    the head for ever.
    """
    import ray

    ray.init(address=coordinator, log_to_driver=False)
    while len(ray.nodes()) < int(os.environ["IRIS_NUM_TASKS"]):
        time.sleep(0.5)
    ray.shutdown()


if os.environ["IRIS_TASK_INDEX"] == "0":
    with subprocess.Popen(
        [*ray_start, "--head", "--port", port, "--include-dashboard", "false"]
    ) as head:
        try:
            while not head_answers() and head.poll() is None:
                time.sleep(0.5)
            wait_for_nodes()
            code = subprocess.call(
                [sys.executable, *sys.argv[1:]], env={**os.environ, "RAY_ADDRESS": coordinator}
            )
        finally:
            head.terminate()
    sys.exit(code)

while not head_answers():  # Iris ends this task if task 0 fails
    time.sleep(0.5)
with subprocess.Popen([*ray_start, "--address", coordinator]) as node:
    silent = 0
    # Ray itself gives a lost head a minute, and reports a failure then.
    while node.poll() is None and silent < 10:
        time.sleep(0.5)
        silent = 0 if head_answers() else silent + 1
    if silent:
        node.kill()  # after SIGTERM it would wait for the head; Iris ends its processes
sys.exit(0 if silent else node.returncode)
