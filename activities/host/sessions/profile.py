"""Implements `profile_task`, which profiles the Python processes of a task with py-spy, from
outside.
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

import psutil
from temporalio import activity
from temporalio.exceptions import ApplicationError

from iris.activities.host.sessions.sessions import CANCEL_CHECK_INTERVAL, AttemptSource, find
from iris.messages.exec import CANNOT, Profile, ProfileFormat, ProfileRequest, profile_path
from iris.storage.object_store import Store

#: The maximum length of py-spy's own message in an error, in characters.
MAX_ERROR_CHARS = 1000


class Profiles:
    """Profiles the tasks of one host."""

    def __init__(self, store: Store, tasks: AttemptSource) -> None:
        self._store = store
        self._tasks = tasks

    @activity.defn
    async def profile_task(self, request: ProfileRequest) -> Profile:
        """Profiles the task and puts the result into the store."""
        running = find(self._tasks, request.job, request.index)
        if running.pid is None:
            raise _cannot("the container engine does not report the task's processes")
        pythons = python_processes(running.pid)
        if not pythons:
            raise _cannot("no Python process runs in this task; py-spy can profile nothing else")
        with tempfile.TemporaryDirectory(prefix="iris-profile-") as directory:
            if request.format is ProfileFormat.DUMP:
                seen = b"\n".join([await _py_spy("dump", "--pid", str(pid)) for pid in pythons])
            else:
                pythons = pythons[:1]
                seen = await self._record(request, pythons[0], Path(directory) / "profile")
        path = profile_path(request.folder)
        await self._store.put(path, seen)
        return Profile(path=path, pids=tuple(pythons))

    async def _record(self, request: ProfileRequest, pid: int, file: Path) -> bytes:
        await _py_spy(
            *("record", "--pid", str(pid), "--subprocesses", "--threads"),
            *(
                "--duration",
                str(max(1, round(request.duration.total_seconds()))),
                "--rate",
                str(request.rate),
            ),
            *("--format", request.format, "--output", str(file)),
        )
        return file.read_bytes()


def python_processes(root: int) -> list[int]:
    """Returns the ids of the Python processes in the tree below `root`, parents before their
    children.
    """
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(root)
        return [
            each.pid for each in (process, *process.children(recursive=True)) if _is_python(each)
        ]
    return []


def _is_python(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return Path(process.exe() or process.name()).name.startswith(("python", "pypy"))
    return False


async def _py_spy(*arguments: str) -> bytes:
    """Runs py-spy and returns its output."""
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        raise _cannot("py-spy is not installed on this host; it comes with iris-temporal")
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await _beating(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise _cannot(_explained(err.decode(errors="replace")))
    return out


async def _beating(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Returns the process's output when it has ended. Sends heartbeats until then, so that the
    server can cancel the activity.
    """
    communicating = asyncio.create_task(process.communicate())
    try:
        while not communicating.done():
            activity.heartbeat()
            await asyncio.wait([communicating], timeout=CANCEL_CHECK_INTERVAL.total_seconds())
        return communicating.result()
    finally:
        communicating.cancel()


def _explained(output: str) -> str:
    """Explains an error of py-spy to a user who cannot log in to this host."""
    if "permission" in output.lower() or "not permitted" in output.lower():
        return (
            "this host does not allow profiling: its agent is not root, and ptrace is restricted"
            " (kernel.yama.ptrace_scope)"
        )
    if "No such process" in output or "Failed to find" in output:
        return (
            f"the process has just ended, or is still starting: {output.strip()[:MAX_ERROR_CHARS]}"
        )
    return f"py-spy failed: {output.strip()[:MAX_ERROR_CHARS]}"


def _cannot(reason: str) -> ApplicationError:
    return ApplicationError(reason, type=CANNOT, non_retryable=True)
