"""Starts a pool's worker in a job. Each pool's jobs have a copy of this script: it needs Python 3.8 or later.

The worker itself is a command of Iris' own installation; the calls run in the interpreter that runs this script.
"""

import json
import os
import shutil
import sys


def main() -> int:
    """Returns the exit code, if the worker cannot be started."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pool.json")) as file:
        version = json.load(file)["python"]
    here, there = ".".join(map(str, sys.version_info[:2])), ".".join(map(str, version))
    if here != there:
        print(
            f"the pool's calls are pickled by Python {there}, and this job has Python {here} ({sys.executable}); "
            f"make the pool from Python {here}, or give it an image or a project with Python {there}",
            file=sys.stderr,
        )
        return 1
    iris = shutil.which("iris")
    if iris is not None:
        os.execv(iris, [iris, "pool-worker", sys.executable])
    print("the worker of a pool needs the command iris; install iris-temporal in the image", file=sys.stderr)
    return 127


if __name__ == "__main__":
    sys.exit(main())
