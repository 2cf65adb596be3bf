"""The users of process jobs. Where the agent is root, each attempt has a uid and a gid that no
other attempt has at the time.

    attempts/NAME      root, mode 0710, and the group is the attempt's: the reservation of this uid
    attempts/NAME/*    what the job may write: its working directory, outputs, environment, home and
    temporary files environments/      the cache of environments, which are root's once they are
    made

The agent's own directory stays closed to jobs. In it, an attempt's directory has a link `files` to
its part of this directory.
"""

import contextlib
import ctypes
import fcntl
import os
import platform
import random
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

import psutil

from iris.activities.host.runtimes.base import HostFault
from iris.activities.host.runtimes.cleanup import trees

#: The name of the link in an attempt's directory.
FILES = "files"
#: The directories that belong to the job.
FOLDERS = ("work", "call", "outputs", "checkpoint", "environment", "home", "tmp")
#: The name of the fault when a host has no uid left.
USERS_FAULT = "users"
#: Others may pass through such a directory, but not list it.
PASSABLE = 0o711
#: The time in which the processes of a user disappear after SIGKILL, in seconds.
KILL_WAIT = 10.0
#: The time in which dead processes are reaped, in seconds. The uid is in use until they are.
REAP_WAIT = 1.0
#: A uid that no user of a machine has, and that fits a C int.
NOBODYS = 2**31 - 2
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock", tempfile.gettempdir())  # noqa: S108
#: Directories in which every user of the machine may create files.
SHARED = tuple(Path(each) for each in dict.fromkeys(_SHARED))
_PROTECTED_LINKS = Path("/proc/sys/fs/protected_hardlinks")
#: The number of the call `setgroups` of one thread, linux/unistd.h. The C library's function
#: changes all threads.
_SETGROUPS = {"x86_64": 116, "aarch64": 159}


class JobUsers(NamedTuple):
    """The uids of this machine's process jobs, and the directory with their files. All agents of a
    machine may share it.
    """

    directory: Path
    uids: range

    @property
    def environments(self) -> Path:
        return self.directory / "environments"

    def make_directory(self) -> str:
        """Creates the directory. Returns the reason why jobs cannot use it; empty: they can.

        Raises:
            OSError: it cannot be created.
        """
        for path in (self.directory, self.directory / "attempts", self.environments):
            for missing in reversed([each for each in (path, *path.parents) if not each.exists()]):
                missing.mkdir()
                missing.chmod(0o755 if missing != path else PASSABLE)
            path.chmod(PASSABLE)
        if self.directory.stat().st_uid != os.geteuid():
            return f"{self.directory} belongs to another user"
        closed = [
            each
            for each in self.directory.resolve().parents
            if not each.stat().st_mode & stat.S_IXOTH
        ]
        return f"{closed[-1]} is closed to other users" if closed else ""

    def make_files(self, attempt: Path) -> Path:
        """Creates the directory of the attempt's files, with a uid that nothing else has. Removes
        an earlier one of this attempt.

        Raises:
            HostFault: all uids are in use.
            OSError: the disk is full.
        """
        remove_files(attempt)
        files = self.directory / "attempts" / attempt.name
        trees.remove(files)  # its link was lost
        (attempt / FILES).symlink_to(files)
        with _lock_file(self.directory / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            uid = self._unused()
            # Others find the directory only with its group: one of root's would seem to say that
            # the job's processes are root's.
            new = self.directory / "new"
            trees.remove(new)  # an agent has died
            new.mkdir(0o700)
            os.chown(new, 0, uid)
            new.rename(files)
        clear_shared(uid)
        for name in FOLDERS:
            (files / name).mkdir(0o700)
            os.chown(files / name, uid, uid)
        files.chmod(0o710)
        return files

    def _unused(self) -> int:
        taken = set(_owners((self.directory / "attempts").glob("*"))) | set(
            _owners(self.environments.glob("entries/uv-*/*"))
        )
        first = random.choice(self.uids)  # noqa: S311
        for uid in chain(range(first, self.uids.stop), range(self.uids.start, first)):
            if uid not in taken and not has_processes(uid):
                return uid
        raise HostFault(
            f"all {len(self.uids)} uids of jobs are in use on this host; widen bootstrap.run_as",
            USERS_FAULT,
        )


def files_of(attempt: Path) -> Path:
    """Returns the directory of what the attempt's job may write; without a user of its own, the
    attempt's directory.
    """
    try:
        return (attempt / FILES).readlink()
    except OSError:
        return attempt


def owner_of(attempt: Path) -> int | None:
    """Returns the uid of the attempt's job, which is also its gid; None: the job runs as the user
    of the agent, or in a container.

    Raises:
        OSError: the directory with its files was deleted, or is not made yet.
    """
    files = files_of(attempt)
    return None if files == attempt else files.stat().st_gid


def remove_files(attempt: Path) -> None:
    """Removes what the attempt's job may have written, and ends the processes of its user first, to
    which the uid may not be free.
    """
    files = files_of(attempt)
    if files != attempt:
        with contextlib.suppress(FileNotFoundError):
            end_user(files.stat().st_gid)
        trees.remove(files)
        (attempt / FILES).unlink(missing_ok=True)


def remove(attempt: Path) -> None:
    """Removes the attempt's directory and its job's files."""
    remove_files(attempt)
    trees.remove(attempt)


def end_user(uid: int) -> None:
    """Kills all processes of an attempt's user, and removes its files from the directories that all
    users share.
    """
    if uid == 0:
        return
    begun = new = time.monotonic()
    known: set[int] = set()
    while has_processes(uid) and (now := time.monotonic()) < begun + KILL_WAIT:
        signal_all(uid, signal.SIGKILL)
        found = {each.pid for each in psutil.process_iter() if _belongs(each, uid)}
        if found - known:
            known, new = known | found, now
        elif now > new + REAP_WAIT:
            break
        time.sleep(0.005)
    clear_shared(uid)


def signal_all(uid: int, number: signal.Signals) -> bool:
    """Sends a signal to the user's processes at once, also to those that fork and exit for ever: a
    list of them never has the next one. Never to root's: those are the machine's.

    Returns:
        False if it may not have been sent: the machine has no memory or no process left for that.
    """
    if uid == 0:
        return False
    try:
        sender = os.fork()
    except OSError:
        return False
    if sender == 0:
        failed = 1
        try:
            # The effective uid decides to whom it may send signals, and the others who may send it
            # one: nobody.
            try:
                os.setresuid(NOBODYS if not has_processes(NOBODYS) else uid, uid, NOBODYS)
            except OSError:  # this system knows fewer uids
                os.setresuid(uid, uid, uid)
            with contextlib.suppress(ProcessLookupError):  # the user has no process
                os.kill(-1, number)
            failed = 0
        finally:
            os._exit(failed)
    return os.waitpid(sender, 0)[1] == 0


def has_processes(uid: int) -> bool:
    """Returns True if any process has this real uid."""
    try:
        os.getpriority(os.PRIO_USER, uid)
    except ProcessLookupError:
        return False
    return True


def clear_shared(uid: int) -> None:
    """Removes the user's files from the directories that all users share, and its System V shared
    memory, semaphores and message queues: the next user of this uid must not find them.
    """
    _remove_ipc(uid)
    for directory in SHARED:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == uid:
                        trees.remove(Path(entry.path))


def _remove_ipc(uid: int) -> None:
    libc = ctypes.CDLL(None)
    removals: dict[str, Callable[[int], object]] = {  # IPC_RMID is 0, linux/ipc.h
        "shm": lambda number: libc.shmctl(number, 0, None),
        "sem": lambda number: libc.semctl(number, 0, 0),
        "msg": lambda number: libc.msgctl(number, 0, None),
    }
    for kind, remove_one in removals.items():
        with contextlib.suppress(OSError):
            names, *rows = Path("/proc/sysvipc", kind).read_text().splitlines()
            for row in rows:
                fields = dict(zip(names.split(), row.split(), strict=False))
                if str(uid) in (fields["uid"], fields["cuid"]):
                    remove_one(int(row.split()[1]))


@contextlib.contextmanager
def acting_as(uid: int | None) -> Iterator[None]:
    """Gives the calling thread the user's access to files, so that a link of the user's leads
    nowhere the user may not go.

    Args:
        uid: also the gid; None: nothing changes.
    """
    if uid is None:
        yield
        return
    groups = os.getgroups()
    libc = ctypes.CDLL(None, use_errno=True)
    _set_groups(libc, [])
    try:
        libc.setfsgid(uid)
        libc.setfsuid(uid)
        # An invalid uid changes nothing and returns the current one.
        if libc.setfsuid(-1) != uid or libc.setfsgid(-1) != uid:
            raise PermissionError(f"this thread cannot act as user {uid}")
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())
        _set_groups(libc, groups)


def give(tree: Path, uid: int, *, of: int | None = None) -> None:
    """Gives the tree to this user.

    Args:
        of: gives only this user's files, and lets others read them; None: gives all that is not
            root's, except for files with several names, because another name may be outside of the
            tree.
    """

    def hand_over(name: str, directory: int) -> None:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        several = status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode)
        if status.st_uid != of if of is not None else status.st_uid == 0 or several:
            return
        os.chown(name, uid, uid, dir_fd=directory, follow_symlinks=False)
        if of is not None and not stat.S_ISLNK(status.st_mode):
            mode = 0o555 if status.st_mode & stat.S_IXUSR else 0o444
            os.chmod(name, mode | status.st_mode & stat.S_IWUSR, dir_fd=directory)

    for visit in trees.visits(tree):
        for name in () if visit.left else (*visit.names, *visit.folders):
            hand_over(name, visit.at)
    os.chown(tree, uid, uid)
    tree.chmod(0o700 if of is None else 0o755)


@contextlib.contextmanager
def lent(cache: Path, uid: int) -> Iterator[bool]:
    """Gives a directory that jobs keep for each other to one of them, and takes it back at the end.

    Yields False, and gives nothing, if another job has it, or if this system lets users give names
    to other users' files.
    """
    with _lock_file(cache.parent / "lent") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            safe = _PROTECTED_LINKS.read_text().strip() == "1"
        except OSError:
            safe = False
        if not safe:
            yield False
            return
        try:
            give(cache, uid)
            yield True
        finally:
            os.chown(cache, 0, 0)


def _lock_file(path: Path) -> IO[bytes]:
    # A job that could open the file could lock it.
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")


def _owners(paths: Iterable[Path]) -> Iterator[int]:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            yield path.stat().st_gid


def _belongs(process: psutil.Process, uid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return uid in process.uids()
    return False


def _set_groups(libc: ctypes.CDLL, groups: list[int]) -> None:
    numbers = (ctypes.c_uint32 * len(groups))(*groups)
    if libc.syscall(_SETGROUPS[platform.machine()], len(groups), numbers) != 0:
        raise PermissionError(ctypes.get_errno(), "the thread's groups cannot be changed")
