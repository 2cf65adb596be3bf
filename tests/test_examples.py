"""The examples run, as a task of a job would run them."""

import os
import subprocess
import sys
from pathlib import Path

from iris import names

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_example_of_the_demo_estimates_pi() -> None:
    """`make demo` is what a newcomer sees first."""
    identity = {names.ENV_TASK_INDEX: "1", names.ENV_NUM_TASKS: "2", names.ENV_ATTEMPT: "1", names.ENV_HOST_ID: "here"}
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "pi.py"],
        env={**os.environ, **identity},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert ran.stdout.startswith("task 1 of 2, attempt 1, on host here\n")
    assert abs(float(ran.stdout.split()[-1]) - 3.1416) < 0.01
