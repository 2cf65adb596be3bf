"""Runs the set-up commands of an attempt one after the other, logs them for the user and classifies
their failures.
"""

import asyncio
import json
import os
import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from iris.activities.host.environment import uv_errors
from iris.activities.host.environment.job_files import reading_the_jobs_files
from iris.activities.host.environment.projects import Project, indexes_of_lock
from iris.activities.host.environment.uv_places import Uv, UvPlaces
from iris.activities.host.files.caches import DISK_FAULT, Cache
from iris.activities.host.runtimes.base import NETWORK_FAULT, HostFault, JobFault, Runtime
from iris.activities.host.runtimes.cleanup import links
from iris.activities.host.runtimes.process.job_users import acting_as, end_user, give
from iris.activities.host.runtimes.threads import in_thread
from iris.model.job.environments import EnvironmentSpec, requirements_file

#: The number of bytes at the end of a step's output that are searched for the cause of a failure.
_TAIL = 64 * 1024
#: A step that failed because of the network is tried again on this host only if at most this many
#: seconds have passed since its first try began. Otherwise the host gives up, because uv itself has
#: tried several times and other jobs wait for the host.
_QUICK = 60.0
#: The maximum length of a command in a message, in characters.
_MOST = 80
#: Variables that make uv or pip install into another place than the current environment. The job's
#: own set-up commands do not get them, if Iris has made an environment for these commands.
_ELSEWHERE = {
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_PYTHON",
    "PIP_BREAK_SYSTEM_PACKAGES",
    "UV_SYSTEM_PYTHON",
}
#: Variables that change how uv resolves a lock. uv rejects a lock that was resolved with other
#: values, so a project with a lock is installed without these variables. The values with which the
#: project was resolved are in the project's files.
_RESOLVED_BY = {"UV_RESOLUTION", "UV_PRERELEASE", "UV_FORK_STRATEGY", "UV_EXCLUDE_NEWER"}
#: Variables that name the package indexes. If one of them is set, uv ignores the indexes in a
#: project's lock, so the lock's indexes are then added to `UV_INDEX`.
_INDEXES = {"UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"}
#: A shell script that searches PATH for the first Python of version `$1`, or else for the first
#: Python of any version. It writes the path of this Python into the file `$0`, with the package
#: directories if the Python belongs to a virtual environment.
_LOOK = """\
for version in $1 ""; do for python in python python3 python${version:-3}; do $python -I -c '
import json, sys, sysconfig
if sys.argv[2] not in ("", "%d.%d" % sys.version_info[:2]): sys.exit(1)
is_venv = sys.prefix != sys.base_prefix
sites = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")} if is_venv else ()
answer = [sys.executable, sorted(sites)]
json.dump(answer, open(sys.argv[1], "w"))' "$0" "$version" 2>/dev/null && exit
done; done
exit 127"""
#: The part of an environment's script `pip` that removes the option `--user` from the arguments.
#: uv's pip, which the script calls, does not support this option and installs into the environment.
_WITHOUT_USER = 'for word; do shift; [ "$word" = --user ] || set -- "$@" "$word"; done'


class _Python(NamedTuple):
    """The Python interpreter that a program would find on its PATH."""

    executable: str
    #: The package directories of the interpreter's virtual environment; empty if it belongs to
    #: none.
    sites: list[str]


class Steps:
    """Runs the set-up steps of one attempt.

    Args:
        env: the environment of every step, without the variables that only some steps need.
        cache: the cache of environments, which also has uv and its downloads.
        output: the file to which all output is appended.
        pauses: delays before each retry after a network failure, in seconds.
        announce: called before each step with its description.
    """

    def __init__(
        self,
        runtime: Runtime,
        workdir: Path,
        env: Mapping[str, str],
        cache: Cache,
        output: Path,
        pauses: Sequence[float],
        announce: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._runtime = runtime
        self._workdir = workdir
        self._env = {name: value for name, value in env.items() if name != "VIRTUAL_ENV"}
        self._output = output
        self._pauses = pauses
        self.announce = announce
        self.uv = Uv(runtime, cache)

    def say(self, text: str) -> None:
        """Appends a line for the user to the output. If the output does not end with a newline, a
        newline is added first.
        """
        line = f"[iris] {text}\n".encode(errors="replace")
        with os.fdopen(
            links.open_file(self._output, os.O_RDWR | os.O_APPEND | os.O_CREAT), "r+b"
        ) as file:
            file.seek(0, os.SEEK_END)
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line)

    async def make(
        self, venv: Path, spec: EnvironmentSpec, project: Project | None, *, alone: bool
    ) -> None:
        """Makes the environment at its final path, because its scripts contain that path.

        Args:
            alone: True if the attempt may change the environment's files. They are then copies, not
                links into uv's cache.

        Raises:
            JobFault: uv reports that the environment cannot be made.
            HostFault: the network or the disk failed.
        """
        await self.uv.provide()
        async with self.uv.lend(venv) as kept:
            env = {**self._env, **kept.env, "NO_COLOR": "1"}
            python = ["--python", spec.python] if spec.python else []
            if alone or self._runtime.apart:  # a link would share a file between users
                env["UV_LINK_MODE"] = "copy"
            if project is not None:
                options = [*_sync_options(spec, project), *python]
                sync_env = self._obeying_lock(env, project) if project.locked else env
                await self._call_uv(
                    f"uv sync {shlex.join(options)}", ["sync", *options], sync_env, kept
                )
            else:
                # A project is ignored. The packages of the host or of the image stay visible.
                options = ["--quiet", "--no-project", "--system-site-packages", *python]
                await self._call_uv("uv venv", ["venv", *options, str(venv)], env, kept)
            if spec.pip:
                shown = f"uv pip install {shlex.join(_words(spec.pip))}"
                # The installation is not editable, because the environment outlives the directory
                # of the attempt that made it.
                words = ["pip", "install", "--no-editable", *_words(spec.pip)]
                await self._call_uv(shown, words, {**env, **_only_into(venv)}, kept)

    async def make_shared(
        self, place: Path, spec: EnvironmentSpec, project: Project | None
    ) -> None:
        """Makes an environment for several attempts. No job can change it if jobs have users of
        their own. Raises the same errors as `make`.
        """
        owner = self._owner
        if owner is not None:
            os.chown(place, owner, owner)
        await self.make(place / "venv", spec, project, alone=False)
        if owner is not None:
            # A process that a build has left could still write to its open files.
            await in_thread(lambda _: end_user(owner))
            await in_thread(lambda _: give(place, 0, of=owner))

    async def make_beside(self, venv: Path, version: str) -> bool:
        """Makes an empty environment for the user's commands, based on the Python that the program
        would find without it.

        Everything that this Python can import can be imported in the new environment, also if this
        Python belongs to a virtual environment. Packages are installed into the new environment.

        Args:
            version: the preferred minor version of Python, such as `3.12`; empty for any version.

        Returns:
            True if the environment was made. False if there is no Python, or the image cannot run
            uv.

        Raises:
            JobFault: uv reports that the environment cannot be made.
            HostFault: the disk is full.
        """
        python = await self._look_at_python(venv.with_name("python.json"), version)
        if python is None:
            return False
        await self.uv.provide()
        options = [
            "--quiet",
            "--no-project",
            "--system-site-packages",
            "--python",
            python.executable,
        ]
        async with self.uv.lend(venv) as kept:
            argv = (str(self.uv.program), "venv", *options, str(venv))
            status, output = await self._step("uv venv", argv, {**self._env, **kept.env}, kept)
        if status in (126, 127):  # uv was built for another C library
            self.say("uv does not run here: the commands have no environment of their own")
            return False
        if status != 0:
            raise _failed("uv venv", status, output)
        with reading_the_jobs_files():
            await asyncio.to_thread(_add_sites, venv, python.sites, self._owner)
        return True

    async def run(
        self, commands: Sequence[str], program: Mapping[str, str], venv: Path | None
    ) -> None:
        """Runs the user's own commands with the program's environment, the package indexes and the
        proxies.

        Args:
            venv: the environment that the commands may change; None if they have no environment.

        Raises:
            JobFault: a command failed.
            HostFault: the disk is full.
        """
        if venv is None:
            for command in commands:
                await self._run(command, {**self._env, **program})
            return
        # If the environment had no `pip`, the commands would find the host's `pip`, and change the
        # host.
        with reading_the_jobs_files():
            await asyncio.to_thread(_add_scripts, venv, self.uv.program, self._owner)
        async with self.uv.lend(venv) as kept:
            env = {
                name: value
                for name, value in {**self._env, **program}.items()
                if name not in _ELSEWHERE
            }
            for command in commands:
                await self._run(
                    command, {**env, **kept.env, **_only_into(venv), "UV_LINK_MODE": "copy"}, kept
                )

    # -- inside ------------------------------------------------------------------------------------

    @property
    def _owner(self) -> int | None:
        return self._runtime.owner

    async def _look_at_python(self, answer: Path, version: str) -> "_Python | None":
        """Returns the Python that a program would find; None if there is no Python."""
        argv = ("/bin/sh", "-c", _LOOK, str(answer), version)
        status = await self._runtime.step(argv, self._env, self._workdir, self._output)
        return await asyncio.to_thread(_read_python, answer, self._owner) if status == 0 else None

    def _obeying_lock(self, env: Mapping[str, str], project: Project) -> dict[str, str]:
        """Returns the environment without the settings of this host that would make uv reject the
        project's lock.
        """
        obeying = {name: value for name, value in env.items() if name not in _RESOLVED_BY}
        if any(name in _INDEXES for name in obeying):
            # If an index is set, uv does not use the indexes of the lock. So these are added.
            obeying["UV_INDEX"] = " ".join(
                filter(None, (obeying.get("UV_INDEX"), *indexes_of_lock(self._workdir, project)))
            )
        return obeying

    async def _call_uv(
        self, shown: str, arguments: Sequence[str], env: Mapping[str, str], kept: UvPlaces
    ) -> None:
        shown, begun = _short(shown), time.monotonic()
        self.announce(f"`{shown}`")
        for tried, pause in enumerate((*self._pauses, None), start=1):
            status, output = await self._step(shown, (str(self.uv.program), *arguments), env, kept)
            if status == 0:
                return
            if not uv_errors.is_network(output):
                raise _failed(shown, status, output)
            failure = f"`{shown}` could not reach a server: {uv_errors.in_a_line(output)}"
            if pause is None or time.monotonic() - begun > _QUICK:
                raise HostFault(f"set-up failed: {failure}", NETWORK_FAULT)
            self.announce(f"{failure}; trying again")
            self.say(
                f"the network failed; trying again in {pause:g} s ({tried} of {len(self._pauses)})"
            )
            await asyncio.sleep(pause)

    async def _run(
        self, command: str, env: Mapping[str, str], kept: UvPlaces | None = None
    ) -> None:
        shown = _short(command)
        self.announce(f"`{shown}`")
        status, output = await self._step(shown, ("/bin/sh", "-c", command), env, kept)
        if status != 0:
            raise _failed(shown, status, output)

    async def _step(
        self, shown: str, argv: Sequence[str], env: Mapping[str, str], kept: UvPlaces | None = None
    ) -> tuple[int, str]:
        """Runs a command; returns its exit status and the end of its output."""
        begun, before = time.monotonic(), self._written()
        written, read = (kept.written, (self.uv.programs,)) if kept is not None else ((), ())
        status = await self._runtime.step(
            argv, env, self._workdir, self._output, written=written, read=read
        )
        with os.fdopen(links.open_file(self._output), "rb") as file:
            file.seek(max(before, self._written() - _TAIL))
            output = file.read().decode(errors="replace")
        self.say(f"{shown} {'' if status == 0 else f'{_ended(status)} '}({since(begun)})")
        if status != 0 and uv_errors.is_full_disk(output):
            raise HostFault(f"set-up failed: `{shown}`: the disk of this host is full", DISK_FAULT)
        return status, output

    def _written(self) -> int:
        with suppress(FileNotFoundError):
            return self._output.lstat().st_size
        return 0


def since(begun: float) -> str:
    """Formats the time since `begun` for a message."""
    return f"{time.monotonic() - begun:.1f} s"


def _sync_options(spec: EnvironmentSpec, project: Project) -> list[str]:
    # The installation is not editable, because the environment outlives the directory of the
    # attempt that made it.
    options = ["--no-default-groups", "--no-editable" if project.built else "--no-install-project"]
    # `--frozen` would install from an outdated lock without an error.
    options += ["--locked"] if project.locked else []
    # Without `--refresh-package`, uv decides by the times of a few files whether its earlier build
    # of a directory is still valid.
    options += ["--refresh-package", project.name] if project.built and project.name else []
    options += ["--all-packages"] if not project.name else []
    return [*options, *(word for extra in spec.extras for word in ("--extra", extra))]


def _words(requirements: Sequence[str]) -> list[str]:
    """Returns the requirements as arguments of uv's pip."""
    files = {each: requirements_file(each) for each in requirements}
    return [
        word for each, file in files.items() for word in ((each,) if file is None else ("-r", file))
    ]


def _only_into(venv: Path) -> dict[str, str]:
    """Returns the variables that make uv and pip install only into this environment, whatever the
    host or project sets.
    """
    return {
        "VIRTUAL_ENV": str(venv),
        "UV_PYTHON": str(venv / "bin" / "python"),  # overrides `--system` and UV_SYSTEM_PYTHON
        # stops the machine's own python and pip from installing if called by their paths
        "PIP_REQUIRE_VIRTUALENV": "1",
        "PIP_USER": "0",
        "PYTHONUSERBASE": str(venv),
    }


def _read_python(answer: Path, owner: int | None) -> _Python | None:
    """Reads the answer of a `python`; None if the answer is invalid. The job's variables decide
    which program `python` is, so it may be any program.
    """
    with suppress(OSError, ValueError, TypeError, RecursionError), acting_as(owner):
        executable, sites = json.loads(links.read(answer))
        if (
            isinstance(executable, str)
            and isinstance(sites, list)
            and all(isinstance(each, str) for each in sites)
        ):
            return _Python(executable, sites)
    return None


def _add_sites(venv: Path, sites: Sequence[str], owner: int | None) -> None:
    """Lets the environment import from these directories, too."""
    lines = [f"import site; site.addsitedir({site!r})\n" for site in sites]
    with acting_as(owner), suppress(FileNotFoundError), links.directory(venv, "lib") as lib:
        for name in _pythons(lib):
            with (
                suppress(FileNotFoundError),
                links.directory(venv, "lib", name, "site-packages") as packages,
            ):
                links.place("_iris_beside.pth", "".join(lines), packages, replace=True)


def _add_scripts(venv: Path, uv: Path, owner: int | None) -> None:
    """Adds the commands `uv` and `pip` to the environment, unless it has them."""
    call = f"exec {shlex.quote(str(uv))}"
    with acting_as(owner), suppress(FileNotFoundError), links.directory(venv, "bin") as programs:
        links.place("uv", f'#!/bin/sh\n{call} "$@"\n', programs, mode=0o755)
        for name in _pythons(programs):
            pip = f'#!/bin/sh\n{_WITHOUT_USER}\n{call} pip "$@"\n'
            links.place(name.replace("python", "pip"), pip, programs, mode=0o755)


def _pythons(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries if entry.name.startswith("python")]


def _failed(shown: str, status: int, output: str) -> JobFault:
    line = uv_errors.in_a_line(output)
    return JobFault(
        f"set-up failed: `{shown}` {_ended(status)}{line and f': {line}'}",
        status if status > 0 else 128 - status,
    )


def _ended(status: int) -> str:
    if status >= 0:
        return f"exited with {status}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
