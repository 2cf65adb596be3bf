"""Starts a pool's worker in a job. Each pool's jobs have a copy of this script, so it must run on
Python 3.8 and later.

The worker is a command of the Iris installation on the host. The calls run in the interpreter that
runs this script.
"""

import json
import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris.client.functions import same_python
else:
    import same_python


def main() -> int:
    """Becomes the worker. Returns an exit code only if the worker cannot be started."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pool.json")) as file:
        version = json.load(file)["python"]
    if problem := same_python.problem_with(version):
        print(f"error: the pool's calls are {problem}", file=sys.stderr)
        return 1
    iris = shutil.which("iris")
    if iris is not None:
        os.execv(iris, [iris, "pool-worker", sys.executable])
    print(
        "error: the worker of a pool needs the command iris; install iris-temporal in the image",
        file=sys.stderr,
    )
    return 127


if __name__ == "__main__":
    sys.exit(main())
