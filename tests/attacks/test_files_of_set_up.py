"""Files of a job that the agent reads while it sets the job up: whatever they are, they block no
agent and blame no host.

A host that is blamed three times in a row takes no more work, so a job could close all hosts, one
after the other.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iris.activities.host.runtimes.base import JobFault
from iris.model.states import TaskState
from tests.activities.host.attempt.test_attempt import Bench, bench
from tests.activities.host.environment.test_setup import PROJECT, Host, host
from tests.activities.host.files.test_bundles import a_file, stored

__all__ = ["bench", "host"]

DEEP = "x = " + "[" * 100_000


def put(name: str, text: str) -> Callable[[Path], object]:
    return lambda workdir: (workdir / name).write_text(text)


def link(name: str, to: str) -> Callable[[Path], object]:
    return lambda workdir: (workdir / name).symlink_to(to)


def large(workdir: Path) -> None:
    with (workdir / "pyproject.toml").open("wb") as file:
        file.truncate(1 << 40)


FILES: dict[str, tuple[Callable[[Path], object], dict[str, Any], str]] = {
    "a pipe": (
        lambda workdir: os.mkfifo(workdir / "pyproject.toml"),
        {},
        "pyproject.toml cannot be read: .*not a regular file",
    ),
    "a directory": (
        lambda workdir: (workdir / "pyproject.toml").mkdir(),
        {},
        "pyproject.toml cannot be read: ",
    ),
    "a file that never ends": (
        link("pyproject.toml", "/dev/zero"),
        {},
        "pyproject.toml cannot be read: .*not a regular file",
    ),
    "a huge file": (large, {}, "pyproject.toml cannot be read: .*larger than"),
    "a link to itself": (
        link("pyproject.toml", "pyproject.toml"),
        {},
        "pyproject.toml cannot be read: .*symbolic links",
    ),
    "deeper than the parser": (
        put("pyproject.toml", DEEP),
        {},
        "pyproject.toml is not TOML: it is nested too deep",
    ),
    "a number of 5,000 digits": (
        put("pyproject.toml", f"x = {'9' * 5000}"),
        {},
        "pyproject.toml is not TOML: .*digits",
    ),
    "a path longer than any": (
        lambda _: None,
        {"project": "x" * 300},
        "cannot be read: .*File name too long",
    ),
    "a missing directory": (
        lambda workdir: workdir.rmdir(),
        {"sync": False, "pip": ("./package",)},
        "work' cannot be read",
    ),
}


@pytest.mark.parametrize(("make", "spec", "reason"), FILES.values(), ids=FILES)
async def test_what_a_job_has_in_the_place_of_a_file_is_its_own_fault(
    host: Host, make: Callable[[Path], object], spec: dict[str, Any], reason: str
) -> None:
    """It meets the same on every host."""
    make(host.workdir)

    with pytest.raises(JobFault, match=f"^set-up failed: .*{reason}"):
        await host.ready(**spec)


@pytest.mark.parametrize("how", ["mkfifo ../build", "ln -s /etc/passwd ../build", "mkdir ../build"])
async def test_a_command_that_replaces_its_log_is_its_own_fault(host: Host, how: str) -> None:
    """An agent that opened the pipe would wait for its writer, and all jobs of the host with it."""
    with pytest.raises(JobFault, match=r"^set-up failed: build was replaced"):
        await host.ready(setup=(f"rm ../build && {how}",))


async def test_a_lock_that_is_a_pipe_is_left_to_uv(host: Host) -> None:
    """Only uv reads it, in the job's own process."""
    host.write(pyproject=PROJECT)
    os.mkfifo(host.workdir / "uv.lock")
    (await host.ready(pip=("other",), sync=False)).release()

    assert "environment ready" in host.told


async def test_a_task_cannot_have_its_bundle_unpacked_into_a_directory_of_the_host(
    bench: Bench, tmp_path: Path
) -> None:
    """No job has both, but whoever reaches Temporal can send any task to a host, and its agent may
    be root.
    """
    victim = tmp_path / "victim"
    victim.mkdir()
    bundle = await stored(bench.store, a_file("authorized_keys", b"mine"))
    outcome = await bench.outcome("true", bundle=bundle, workdir=str(victim))

    assert (outcome.state, outcome.exit_code) == (TaskState.FAILED, 2)
    assert "a task with a bundle cannot have a workdir" in outcome.reason
    assert list(victim.iterdir()) == []
