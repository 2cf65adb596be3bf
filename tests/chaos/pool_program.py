"""A program with a pool of workers, whose calls go on for a whole chaos run.

    python pool_program.py CLUSTER FILE DONE

It writes each result into FILE, and ends when DONE exists and all calls have their results.
"""

import json
import os
import sys
import time
from pathlib import Path

import iris


def call(number: int) -> int:
    """A call that takes a moment."""
    import time

    time.sleep(0.3)
    return number * number


def main() -> None:
    cluster, results, done = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    number = 0
    with iris.IrisClient(cluster, workspace=False) as client:
        small = iris.Resources(cpu=0.25, memory="256m")
        with (
            iris.WorkerPool(client, 2, resources=small, name="pool") as pool,
            results.open("a") as file,
        ):
            while not done.exists():
                for given, result in enumerate(pool.map(call, range(number, number + 8))):
                    row = {"call": number + given, "result": result}
                    file.write(json.dumps(row) + "\n")
                file.flush()
                os.fsync(file.fileno())
                number += 8
                time.sleep(0.2)


if __name__ == "__main__":
    main()
