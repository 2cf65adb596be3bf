"""How jobs with users of their own reach a host's directories and devices."""

import logging
import os
import pwd
import stat
from pathlib import Path

import pytest

from iris.activities.host.runtimes.job_users import JobUsers
from iris.model.errors import Rejected
from iris.worker_agents.host.job_access import device_groups, job_users

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can create devices and start processes of other users")

#: The null device: any other would do.
NULL = os.makedev(1, 3)


def test_jobs_get_the_groups_of_devices_and_a_warning_names_what_only_root_reaches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the groups, a task would get chips that it cannot open."""
    (tmp_path / "vfio").mkdir()
    for name, mode, group in [("accel0", 0o666, 0), ("nvidia0", 0o660, 44), ("vfio/7", 0o600, 0), ("vfio/8", 0o660, 0)]:
        os.mknod(tmp_path / name, stat.S_IFCHR | mode, NULL)
        (tmp_path / name).chmod(mode)
        os.chown(tmp_path / name, 0, group)
    with caplog.at_level(logging.WARNING):
        assert device_groups(tmp_path) == (44,)
    warned = [record.getMessage() for record in caplog.records]
    assert [next(name for name in ("vfio/7", "vfio/8") if name in line) for line in sorted(warned)] == ["vfio/7", "vfio/8"]


def test_a_directory_that_other_users_cannot_reach_is_refused_at_the_start(tmp_path: Path) -> None:
    """Otherwise each job would fail, with a reason that names no remedy."""
    tmp_path.chmod(0o700)
    with pytest.raises(Rejected, match=r"is closed to other users; name other uids .* another directory with --jobs-dir"):
        job_users("", tmp_path / "jobs", simulated=False)


def test_uids_that_a_user_of_the_machine_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    assert JobUsers(directory, range(2000, 2001)).make_directory() == f"{directory} belongs to another user"


def test_jobs_of_a_local_cluster_keep_its_user(tmp_path: Path) -> None:
    """Nothing is created for them."""
    assert job_users("", tmp_path / "jobs", simulated=True) is None
    assert not (tmp_path / "jobs").exists()
