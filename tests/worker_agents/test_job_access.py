"""How jobs with users of their own reach a host's directories and devices."""

import ctypes
import logging
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.activities.host.runtimes.process.job_users import JobUsers
from iris.model.errors import Rejected
from iris.worker_agents.host.job_access import device_groups, job_users

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can create devices and start processes of other users"
)

#: The null device: any other would do.
NULL = os.makedev(1, 3)
#: What a root needs for jobs with users of their own, by linux/capability.h: chown, dac_override,
#: fowner, kill, setgid, setuid.
RIGHTS = (0, 1, 3, 5, 6, 7)
#: Chooses the users as an agent does.
CHOOSE = """
import logging, sys
from pathlib import Path
from iris.model.errors import Rejected
from iris.worker_agents.host.job_access import job_users
logging.basicConfig()
try:
    print("users", job_users(sys.argv[1], Path(sys.argv[2]), simulated=False))
except Rejected as error:
    print("rejected", error)
"""


@pytest.fixture
def jobs() -> Iterator[Path]:
    """A directory that other users reach, unlike tmp_path."""
    directory = Path(tempfile.mkdtemp(prefix="iris-jobs-", dir="/var/tmp"))
    directory.chmod(0o711)
    yield directory / "jobs"
    shutil.rmtree(directory, ignore_errors=True)


def chosen_without(right: int, run_as: str, jobs: Path) -> subprocess.CompletedProcess[str]:
    """What an agent chooses that is root but lacks a right, as in a container."""
    libc = ctypes.CDLL(None)
    return subprocess.run(
        [sys.executable, "-c", CHOOSE, run_as, str(jobs)],
        # PR_CAPBSET_DROP, linux/prctl.h: also a root loses it
        preexec_fn=lambda: libc.prctl(24, right, 0, 0, 0),
        capture_output=True, text=True, check=True,
    )  # fmt: skip


@pytest.mark.parametrize("right", RIGHTS)
def test_a_root_without_the_rights_runs_jobs_as_its_user_and_says_so(
    right: int, jobs: Path
) -> None:
    """Each job would fail, and its failures would put the host into quarantine; without users of
    their own, jobs run there.
    """
    chosen = chosen_without(right, "", jobs)

    assert chosen.stdout == "users None\n"
    (line,) = [
        line for line in chosen.stderr.splitlines() if "tasks run as the agent's user" in line
    ]
    assert "this root is not the machine's" in line


@pytest.mark.parametrize("right", RIGHTS)
def test_a_root_without_the_rights_ends_if_it_was_told_to_give_jobs_users(
    right: int, jobs: Path
) -> None:
    """Whoever wrote the setting counts on it."""
    chosen = chosen_without(right, "61000-61009", jobs)

    assert chosen.stdout.startswith(
        "rejected tasks cannot run as users of their own: the agent may not "
    )
    assert "use --run-as root for the agent's user" in chosen.stdout


def test_a_root_with_the_rights_leaves_nothing_of_its_trial(jobs: Path) -> None:
    """The directory holds only what belongs to jobs."""
    users = job_users("", jobs, simulated=False)

    assert users is not None
    assert sorted(path.name for path in jobs.rglob("*")) == ["attempts", "environments"]


def test_jobs_get_the_groups_of_devices_and_a_warning_names_what_only_root_reaches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the groups, a task would get chips that it cannot open."""
    (tmp_path / "vfio").mkdir()
    for name, mode, group in [
        ("accel0", 0o666, 0),
        ("nvidia0", 0o660, 44),
        ("vfio/7", 0o600, 0),
        ("vfio/8", 0o660, 0),
    ]:
        os.mknod(tmp_path / name, stat.S_IFCHR | mode, NULL)
        (tmp_path / name).chmod(mode)
        os.chown(tmp_path / name, 0, group)
    with caplog.at_level(logging.WARNING):
        assert device_groups(tmp_path) == (44,)
    warned = [record.getMessage() for record in caplog.records]
    assert [
        next(name for name in ("vfio/7", "vfio/8") if name in line) for line in sorted(warned)
    ] == ["vfio/7", "vfio/8"]


def test_a_directory_that_other_users_cannot_reach_is_refused_at_the_start(tmp_path: Path) -> None:
    """Otherwise each job would fail, with a reason that names no remedy."""
    tmp_path.chmod(0o700)
    with pytest.raises(
        Rejected,
        match=r"is closed to other users; name other uids .* another directory with --jobs-dir",
    ):
        job_users("", tmp_path / "jobs", simulated=False)


def test_uids_that_a_user_of_the_machine_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a job kills all processes of its uid."""
    entry = pwd.struct_passwd(("ada", "x", 61_000, 61_000, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwall", lambda: [entry])
    with pytest.raises(Rejected, match="uid 61000 belongs to ada; name other uids with --run-as"):
        job_users("", tmp_path / "jobs", simulated=False)


def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    """Its owner could replace what lies in it."""
    directory = tmp_path / "jobs"
    directory.mkdir()
    os.chown(directory, 12_345, 12_345)

    assert (
        JobUsers(directory, range(2000, 2001)).make_directory()
        == f"{directory} belongs to another user"
    )


def test_jobs_of_a_local_cluster_keep_its_user(tmp_path: Path) -> None:
    """Nothing is created for them."""
    assert job_users("", tmp_path / "jobs", simulated=True) is None
    assert not (tmp_path / "jobs").exists()
