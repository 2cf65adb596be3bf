"""Shows how a cluster shares its resources: jobs that wait for each other, jobs that overtake, and
a job that fits nowhere.

    python examples/cluster_example.py                   on a cluster of its own: one host, 4 cores
    python examples/cluster_example.py --cluster NAME    on a cluster that runs

Each example is a function with a client as its argument.
"""

import argparse
import time

import iris

CONFIG = """
platform: {local: {}}
scale_groups:
  host: {type: local_vm, min_slices: 1, max_slices: 1, resources: {cpu: 4, memory: 8g}}
"""
#: More than any host has.
TOO_MUCH = iris.Resources(cpu=10_000)


def example_basic(client: iris.IrisClient) -> None:
    """A function runs on a host, and its result, its exception and its output come back."""

    def divide(a: float, b: float) -> float:
        print(f"dividing {a} by {b}")
        return a / b

    job = client.submit(divide, 1, 4)
    assert job.result() == 0.25
    print("  output:", [str(entry) for entry in job.logs() if entry.stream == "stdout"])
    try:
        client.submit(divide, 1, 0).result()
    except ZeroDivisionError as error:
        print("  the job raised:", error)


def example_resource_scheduling(client: iris.IrisClient) -> None:
    """A host with four cores runs two jobs of two cores at a time, so four jobs run in pairs."""

    def cpu_job(number: int) -> tuple[int, float, float]:
        started = time.time()
        time.sleep(1)
        return number, started, time.time()

    jobs = [client.submit(cpu_job, number, resources=iris.Resources(cpu=2)) for number in range(4)]
    results = [job.result() for job in jobs]
    at_once = max(
        sum(start <= moment < end for _, start, end in results) for _, moment, _ in results
    )
    print(f"  4 jobs of 2 cores: at most {at_once} ran at the same time")
    assert [number for number, _, _ in results] == [0, 1, 2, 3]
    if client.cluster.status().total_hosts == 1:
        assert at_once <= 2


def example_small_job_skips_oversized_job(client: iris.IrisClient) -> None:
    """A job that does not fit blocks no job that does, and says what it waits for."""
    big = client.submit("true", resources=TOO_MUCH)
    small = client.submit("true", resources=iris.Resources(cpu=1))
    assert small.wait().state is iris.JobState.SUCCEEDED
    status = big.status()
    assert status.state is iris.JobState.PENDING
    print("  the large job waits:", status.reason)
    big.cancel()
    assert big.wait().state is iris.JobState.KILLED


def example_scheduling_timeout(client: iris.IrisClient) -> None:
    """A job that finds no host in time ends as UNSCHEDULABLE, with the reason why it has waited."""
    job = client.submit("true", resources=TOO_MUCH, scheduling_timeout="2s")
    status = job.wait()
    print(f"  the job is {status.state}: {status.reason}")
    assert status.state is iris.JobState.UNSCHEDULABLE


EXAMPLES = (
    example_basic,
    example_resource_scheduling,
    example_small_job_skips_oversized_job,
    example_scheduling_timeout,
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Show how a cluster shares its resources.")
    parser.add_argument("--cluster", help="its name or address; default: a new one on this machine")
    given = parser.parse_args()
    # The jobs do not need the files of the directory from which this is started.
    if given.cluster:
        own = iris.IrisClient(given.cluster, workspace=False)
    else:
        own = iris.IrisClient.local(iris.load_config(CONFIG), workspace=False)
    with own as client:
        for example in EXAMPLES:
            print(f"{example.__name__}: {example.__doc__}")
            example(client)
    print("all examples have passed")


if __name__ == "__main__":
    main()
