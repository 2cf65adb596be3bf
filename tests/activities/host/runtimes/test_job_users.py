"""Signals to the processes of an attempt's user: whom they reach, and whom they must never
reach.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from iris.activities.host.machine import disk_usage
from iris.activities.host.machine.disk_usage import Occupant, resume
from iris.activities.host.runtimes.cleanup import trees
from iris.activities.host.runtimes.process import job_users
from iris.activities.host.runtimes.process.job_users import JobUsers
from tests.e2e.cluster import eventually

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can start processes of other users"
)

#: Tests of several processes share the machine: the uid of each is its own.
UID = 2_000_000 + os.getpid() % 10_000 * 100


@contextmanager
def a_stopped_process(uid: int) -> Iterator[psutil.Process]:
    with subprocess.Popen(["sleep", "100"], user=uid, group=uid) as process:
        try:
            process.send_signal(signal.SIGSTOP)
            found = psutil.Process(process.pid)
            eventually(lambda: found.status() == psutil.STATUS_STOPPED, every=0.01)
            yield found
        finally:
            process.kill()


@pytest.fixture
def users() -> Iterator[JobUsers]:
    directory = Path(tempfile.mkdtemp(prefix="iris-jobs-", dir="/var/tmp"))
    users = JobUsers(directory, range(UID, UID + 100))
    assert users.make_directory() == ""
    yield users
    trees.remove(directory)


def test_the_machines_own_processes_get_no_signal_of_an_attempt() -> None:
    """Who stopped the processes of an attempt that seemed to be root's froze the machine."""
    with a_stopped_process(0) as process:
        job_users.signal_all(0, signal.SIGCONT)

        assert process.status() == psutil.STATUS_STOPPED


def test_an_attempt_never_seems_to_be_roots(
    users: JobUsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even while its files are made: the disk of all attempts is measured at any time."""
    chown, seen = os.chown, []

    def look_and_chown(*args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(FileNotFoundError):
            seen.append(job_users.owner_of(tmp_path))
        chown(*args, **kwargs)

    monkeypatch.setattr(os, "chown", look_and_chown)
    files = users.make_files(tmp_path)

    assert set(seen) == {files.stat().st_gid}
    assert [each.name for each in users.directory.glob("attempts/*")] == [tmp_path.name]


def test_an_attempt_goes_on_although_the_machine_has_no_process_left_at_first(
    users: JobUsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal to all processes of a user needs one more. Nobody continued an attempt that was
    stopped to measure its disk.
    """
    owner = users.make_files(tmp_path).stat().st_gid
    fork, failed = os.fork, []

    def fail_once() -> int:
        if not failed:
            failed.append(True)
            raise BlockingIOError("Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", fail_once)
    monkeypatch.setattr(disk_usage, "RESUME_PAUSES", [0.01])
    with a_stopped_process(owner) as process:
        resume(
            "key",
            Occupant(
                tmp_path, requested=0, in_container=False, ending=False, told_to_end=lambda: False
            ),
        )

        eventually(lambda: process.status() != psutil.STATUS_STOPPED, 20, every=0.01)
    assert failed


def test_it_is_known_whether_a_signal_was_sent(
    users: JobUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also to a user without any process."""
    assert job_users.signal_all(users.uids[-1], signal.SIGCONT)
    monkeypatch.setattr(os, "setresuid", lambda *_: os._exit(1))  # in the process that sends it

    assert not job_users.signal_all(users.uids[-1], signal.SIGCONT)
