"""What attempts use: measured for whole trees of processes, as the rate since the last look."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from iris.activities.host.machine.usage import Meter, Use
from tests.e2e.cluster import eventually

MIB = 1024 * 1024
SPIN = (
    "import sys; block = bytearray(100 * 1024 * 1024); print('up', flush=True)\nwhile True:"
    " sum(range(1000))"
)


@contextmanager
def tree(tmp_path: Path, *children: str) -> Iterator[int]:
    """A shell with these Python programs below it, each of which has said that it is up."""
    for number, script in enumerate(children):
        (tmp_path / f"{number}.py").write_text(script)
    text = "".join(f"{sys.executable} {number}.py & " for number in range(len(children))) + "wait"
    shell = subprocess.Popen(
        ["sh", "-c", text], cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True
    )
    assert shell.stdout is not None
    with shell.stdout:
        for _ in children:
            shell.stdout.readline()
        try:
            yield shell.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()


def test_a_tree_is_measured_whole(tmp_path: Path) -> None:
    """A trainer's data loaders are its memory and its cores, too."""
    meter = Meter()
    with tree(tmp_path, SPIN, SPIN) as root:
        first = meter.sample(programs=[root])[root]
        assert (first.processes, first.cpu_percent) == (3, 0.0)
        assert first.memory_bytes > 200 * MIB

        computed = eventually(lambda: meter.sample(programs=[root])[root].cpu_percent)
        assert 0 < computed < 100 * (psutil.cpu_count() or 1) + 50


def test_a_shim_does_not_count_but_what_is_below_it_does(tmp_path: Path) -> None:
    """It is ours, not the user's."""
    with tree(tmp_path, SPIN) as root:
        found = Meter().sample(shims=[root])
        assert found[root].processes == 1


def test_several_attempts_are_measured_apart_in_one_look(tmp_path: Path) -> None:
    """A host may run a hundred; a look at all processes for each would be work of its own."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        tree(tmp_path / "a", SPIN) as one,
        tree(tmp_path / "b", "print('up', flush=True); input()", SPIN) as two,
    ):
        found = Meter().sample(programs=[one, two])
        assert (found[one].processes, found[two].processes >= 2) == (2, True)


def test_a_process_that_is_gone_uses_nothing() -> None:
    """It may end between the question and the look; that is no error."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert Meter().sample(programs=[gone.pid]) == {gone.pid: Use()}


def test_a_child_that_came_since_the_last_look_counts_with_all_it_has_computed(
    tmp_path: Path,
) -> None:
    """A task that starts one short process after another would seem to do nothing."""
    meter = Meter()
    spawner = """
import subprocess, sys
print('up', flush=True)
while True:
    subprocess.run([sys.executable, '-c', 'sum(range(10**9))'])
"""
    with tree(tmp_path, spawner) as root:
        meter.sample(programs=[root])
        eventually(lambda: meter.sample(programs=[root])[root].cpu_percent > 20)
