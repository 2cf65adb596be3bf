"""A clock of one process can be set: a fault that does nothing would prove nothing."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.clocks import clock_env, clock_library, step

SHOW = "import time; print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))"


def test_the_time_of_day_of_one_process_is_stepped_and_its_boot_time_is_not(tmp_path: Path) -> None:
    """Leases count boot time."""
    library = clock_library(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler")
    file = tmp_path / "clock"
    env = clock_env(library, file)
    for error in (0, 3600, -3600):
        step(file, error)
        shown = subprocess.run([sys.executable, "-c", SHOW], env=env, capture_output=True)
        day, boot = map(float, shown.stdout.split())
        assert day - time.time() == pytest.approx(error, abs=60)
        assert time.clock_gettime(time.CLOCK_BOOTTIME) - boot == pytest.approx(0, abs=60)
