"""`profile_task`: what the Python processes of a task do, by py-spy, which looks at them from outside."""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

import psutil
from temporalio import activity
from temporalio.exceptions import ApplicationError

from iris.activities.exec import LOOK_EVERY, Attempts, find
from iris.execs import CANNOT, Profile, ProfileFormat, ProfileRequest, profile_path
from iris.store import Store

#: More of what py-spy says is not shown, in characters.
MOST_WORDS = 1000


class Profiles:
    """Looks into the tasks of one host."""

    def __init__(self, store: Store, tasks: Attempts) -> None:
        self._store = store
        self._tasks = tasks

    @activity.defn
    async def profile_task(self, request: ProfileRequest) -> Profile:
        """Look, and put what was seen into the store."""
        running = find(self._tasks, request.job, request.index)
        if running.pid is None:
            raise _cannot("the container engine does not say which processes the task has")
        pythons = python_processes(running.pid)
        if not pythons:
            raise _cannot("no Python process runs in this task; py-spy sees nothing else")
        with tempfile.TemporaryDirectory(prefix="iris-profile-") as directory:
            if request.format is ProfileFormat.DUMP:
                seen = b"\n".join([await _py_spy("dump", "--pid", str(pid)) for pid in pythons])
            else:
                pythons = pythons[:1]
                seen = await self._record(request, pythons[0], Path(directory) / "profile")
        path = profile_path(request.session)
        await self._store.put(path, seen)
        return Profile(path=path, pids=tuple(pythons))

    async def _record(self, request: ProfileRequest, pid: int, file: Path) -> bytes:
        await _py_spy(
            *("record", "--pid", str(pid), "--subprocesses", "--threads"),
            *("--duration", str(max(1, round(request.duration.total_seconds()))), "--rate", str(request.rate)),
            *("--format", request.format, "--output", str(file)),
        )
        return file.read_bytes()


def python_processes(root: int) -> list[int]:
    """The Python processes of this tree, parents before their children."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(root)
        return [each.pid for each in (process, *process.children(recursive=True)) if _is_python(each)]
    return []


def _is_python(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return Path(process.exe() or process.name()).name.startswith(("python", "pypy"))
    return False


async def _py_spy(*arguments: str) -> bytes:
    """What py-spy prints."""
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        raise _cannot("py-spy is not installed on this host; it comes with iris-temporal")
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await _beating(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise _cannot(_words(err.decode(errors="replace")))
    return out


async def _beating(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """What the process prints, once it has ended. Meanwhile the server is told that this lives, and can cancel it."""
    talking = asyncio.create_task(process.communicate())
    try:
        while not talking.done():
            activity.heartbeat()
            await asyncio.wait([talking], timeout=LOOK_EVERY.total_seconds())
        return talking.result()
    finally:
        talking.cancel()


def _words(said: str) -> str:
    """What py-spy's complaint means to somebody who cannot log in here."""
    if "permission" in said.lower() or "not permitted" in said.lower():
        return "this host does not allow it: its agent is not root, and ptrace is restricted (kernel.yama.ptrace_scope)"
    if "No such process" in said or "Failed to find" in said:
        return f"the process has just ended, or has not quite started: {said.strip()[:MOST_WORDS]}"
    return f"py-spy could not look: {said.strip()[:MOST_WORDS]}"


def _cannot(why: str) -> ApplicationError:
    return ApplicationError(why, type=CANNOT, non_retryable=True)
