"""A cluster to play with: starts it on this machine, fills it with jobs, and keeps it until Ctrl-C.

python examples/demo_cluster.py
    a CPU group and two groups of TPU slices
python examples/demo_cluster.py --config examples/eu-west4.yaml
    the groups of any configuration, simulated here
python examples/demo_cluster.py --notebook
    opens examples/tour.ipynb; needs `pip install notebook`
python examples/demo_cluster.py --once
    ends when the first jobs have ended
"""

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import iris

TOUR = Path(__file__).with_name("tour.ipynb")
CONFIG = """
platform: {local: {}}
defaults: {autoscaler: {scale_down_delay: 5m}}
scale_groups:
  cpu: {type: local_vm, min_slices: 1, max_slices: 2, resources: {cpu: 8, memory: 16g}}
  v5e-4: {type: local_vm, accelerator_variant: v5litepod-4, max_slices: 2}
  v5e-16: {type: local_vm, accelerator_variant: v5litepod-16, max_slices: 1}
"""


def square(number: int) -> int:
    print(f"squaring {number}")
    return number * number


def rank() -> str:
    task, tasks = os.environ["IRIS_TASK_INDEX"], os.environ["IRIS_NUM_TASKS"]
    return f"task {task} of {tasks} on {os.environ['IRIS_HOST_ID']}"


def diverge() -> None:
    raise FloatingPointError("loss is nan")


def seed(client: iris.IrisClient, config: iris.ClusterConfig) -> list[iris.Job]:
    """Submits a job of each kind, and returns those that end by themselves."""
    tpu = next(
        (
            group.accelerator_variant
            for group in config.scale_groups.values()
            if group.accelerator_variant
        ),
        None,
    )
    jobs: list[iris.Job] = [
        client.submit(square, number, name=f"square-{number}") for number in range(3)
    ]
    if tpu is not None:
        jobs.append(client.submit(rank, name="ranks", resources=iris.Resources(tpu=tpu)))
    jobs.append(client.submit(diverge, name="diverges"))
    client.submit("sleep", "60", name="too-large", resources=iris.Resources(cpu=10_000))
    return jobs


def show(client: iris.IrisClient) -> None:
    """Prints the jobs and the slices."""
    for row in client.jobs():
        print(f"  {row.id:20} {row.state:14} {client.job(row.id).explain().message}")
    for slice in client.slices.list():
        print(f"  {slice.id:20} {slice.state:14} {len(client.slices.show(slice.id).hosts)} host(s)")


def stay(name: str, notebook: bool) -> None:
    """Returns at Ctrl-C, or when the notebook's server ends."""
    print(
        f"iris --cluster {name} jobs      shows them in another terminal; so do status, explain,"
        " logs, slice list"
    )
    try:
        if notebook:
            # As root, the cluster runs as root, too.
            as_root = ["--allow-root"] if os.geteuid() == 0 else []
            command = [sys.executable, "-m", "notebook", *as_root, TOUR]
            if code := subprocess.run(
                command, env={**os.environ, "IRIS_CLUSTER": name}, check=False
            ).returncode:
                sys.exit(f"error: the notebook's server ended with code {code}")
        else:
            print("Ctrl-C stops the cluster", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Start a cluster on this machine, fill it with jobs, and keep it until Ctrl-C."
    )
    parser.add_argument("--config", type=Path, help="a configuration, whose groups are simulated")
    parser.add_argument("--name", default="demo", help="of the cluster; default: demo")
    parser.add_argument("--notebook", action="store_true", help="open the tour on it")
    parser.add_argument("--once", action="store_true", help="end when the first jobs have ended")
    given = parser.parse_args()
    if given.notebook and importlib.util.find_spec("notebook") is None:
        parser.error("--notebook needs Jupyter: pip install notebook")
    try:
        config = iris.make_local_config(
            iris.load_config(given.config.read_text() if given.config else CONFIG), given.name
        )
        manager = iris.ClusterManager(config, ephemeral=True, owned=True)
        with (
            manager.connect() as address,
            iris.IrisClient.remote(address, workspace=False) as client,
        ):
            print(f"cluster {given.name} runs at {client.cluster.address}")
            for job in seed(client, config):
                job.wait()
            show(client)
            if not given.once:
                stay(given.name, given.notebook)
    except (iris.IrisError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that the cluster is stopped
    main()
