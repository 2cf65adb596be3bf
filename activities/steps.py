"""The commands of an attempt's set-up: run one after the other, told to the user, and judged when they fail."""

import asyncio
import hashlib
import importlib.metadata
import os
import secrets
import shlex
import shutil
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache as once
from pathlib import Path

import uv

from iris.activities import uv_words
from iris.activities.caches import DISK_FAULT, Cache
from iris.activities.projects import Project
from iris.activities.runtimes.base import CannotStart, HostUnable, Runtime
from iris.activities.threads import in_thread
from iris.environments import EnvironmentSpec

NETWORK_FAULT = "network"
#: So much of the end of a step's output is looked at for what went wrong, in bytes.
_TAIL = 64 * 1024
#: A command is told in so many characters.
_MOST = 80


class Steps:
    """The steps of one attempt.

    Args:
        env: in which they are run, but for what each of them needs.
        cache: where uv, what it downloads and the interpreters it gets are kept: beside the environments, where links reach
            them, and containers.
        output: to which all is appended.
        pauses: before each further try when the network fails, in seconds.
    """

    def __init__(
        self, runtime: Runtime, workdir: Path, env: Mapping[str, str], cache: Cache, output: Path, pauses: Sequence[float]
    ) -> None:
        self._runtime = runtime
        self._workdir = workdir
        self._env = {name: value for name, value in env.items() if name != "VIRTUAL_ENV"}
        self._cache = cache
        self._output = output
        self._pauses = pauses
        self._uv = cache.directory / "bin" / f"uv-{uv_version()}"

    def say(self, text: str) -> None:
        """A line for the user, never in the middle of one."""
        line = f"[iris] {text}\n".encode(errors="replace")
        with self._output.open("a+b") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line)

    async def make(self, venv: Path, spec: EnvironmentSpec, project: Project | None, *, alone: bool) -> None:
        """The environment, at its final place: its scripts know where they are.

        Args:
            alone: its files may be changed, so they are not links to what uv keeps.

        Raises:
            CannotStart: uv says that it cannot be made.
            HostUnable: the network or the disk is to blame.
        """
        await in_thread(lambda _: _provide_uv(self._uv))
        async with self._with_uv(venv) as kept:
            env = {**self._env, **kept, "NO_COLOR": "1"}
            if alone:
                env["UV_LINK_MODE"] = "copy"
            if project is not None:
                options = _sync_options(spec, project)
                await self._call_uv(f"uv sync {shlex.join(options)}", ["sync", *options], env)
            else:  # beside what the host or the image has, as if there were none
                options = ["--quiet", "--no-project", "--system-site-packages"]
                await self._call_uv("uv venv", ["venv", *options, str(venv)], env)
            if spec.pip:
                shown = f"uv pip install {shlex.join(spec.pip)}"
                await self._call_uv(shown, ["pip", "install", *spec.pip], {**env, "VIRTUAL_ENV": str(venv)})

    async def run(self, commands: Sequence[str], program: Mapping[str, str], venv: Path | None) -> None:
        """The user's own commands, with the program's environment and the ways to packages.

        Args:
            venv: the environment that is theirs to change; None: there is none.

        Raises:
            CannotStart: a command failed.
            HostUnable: the disk is full.
        """
        if venv is None:
            for command in commands:
                await self._run(command, {**self._env, **program})
            return
        # Without a `pip` of its own that of the host would be found, and change the host.
        _add_script(venv / "bin" / "uv", [str(self._uv)])
        _add_script(venv / "bin" / "pip", [str(self._uv), "pip"])
        async with self._with_uv(venv) as kept:
            for command in commands:
                await self._run(command, {**self._env, **program, **kept, "UV_LINK_MODE": "copy"})

    # -- inside --------------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _with_uv(self, venv: Path) -> AsyncIterator[dict[str, str]]:
        """What tells uv where to work, and where to keep what it gets: for each runtime apart, as what it builds and finds in one
        is not for another.
        """

        async def empty(_: Path) -> None: ...

        identity = hashlib.sha256(self._runtime.identity.encode()).hexdigest()
        with await self._cache.use(f"uv-{identity[:32]}", empty) as downloads:
            try:
                yield {
                    "UV_CACHE_DIR": str(downloads.path),
                    "UV_PYTHON_INSTALL_DIR": str(self._cache.directory / "python"),
                    "UV_PROJECT_ENVIRONMENT": str(venv),
                    "UV_NO_PROGRESS": "1",
                }
            finally:
                with suppress(OSError):  # it counts as before, then
                    await self._cache.measure(downloads)

    async def _call_uv(self, shown: str, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        shown = _short(shown)
        for tried, pause in enumerate((*self._pauses, None), start=1):
            status, said = await self._step(shown, (str(self._uv), *arguments), env)
            if status == 0:
                return
            if not uv_words.is_network(said):
                raise _failed(shown, status, said)
            if pause is None:
                reason = f"set-up failed: `{shown}` could not reach what it needs: {uv_words.in_a_line(said)}"
                raise HostUnable(reason, NETWORK_FAULT)
            self.say(f"the network is to blame: once more in {pause:g} s ({tried} of {len(self._pauses)})")
            await asyncio.sleep(pause)

    async def _run(self, command: str, env: Mapping[str, str]) -> None:
        shown = _short(command)
        status, said = await self._step(shown, ("/bin/sh", "-c", command), env)
        if status != 0:
            raise _failed(shown, status, said)

    async def _step(self, shown: str, argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
        """Returns its status, and the end of what it printed."""
        begun, before = time.monotonic(), self._written()
        status = await self._runtime.step(argv, env, self._workdir, self._output)
        with self._output.open("rb") as file:
            file.seek(max(before, self._written() - _TAIL))
            said = file.read().decode(errors="replace")
        self.say(f"{shown} {'' if status == 0 else f'{_ended(status)} '}({since(begun)})")
        if status != 0 and uv_words.is_full_disk(said):
            raise HostUnable(f"set-up failed: `{shown}`: the disk of this host is full", DISK_FAULT)
        return status, said

    def _written(self) -> int:
        with suppress(FileNotFoundError):
            return self._output.stat().st_size
        return 0


@once
def uv_version() -> str:
    """Of the uv that makes environments here."""
    return importlib.metadata.version("uv")


def since(begun: float) -> str:
    """How long ago that was, for people."""
    return f"{time.monotonic() - begun:.1f} s"


def _sync_options(spec: EnvironmentSpec, project: Project) -> list[str]:
    # Not editable: the environment outlives the directory of the attempt that made it.
    options = ["--no-default-groups", "--no-editable" if project.built else "--no-install-project"]
    options += ["--frozen"] if project.locked else []
    # uv itself looks only at the dates of a few files to see whether what it has built of a directory is still right.
    options += ["--refresh-package", project.name] if project.built and project.name else []
    options += ["--all-packages"] if not project.name else []
    return [*options, *(word for extra in spec.extras for word in ("--extra", extra))]


def _provide_uv(path: Path) -> None:
    """Have uv where every runtime finds it."""
    if path.exists():
        return
    try:
        source = uv.find_uv_bin()
    except FileNotFoundError:
        raise HostUnable("uv is not installed beside the agent of this host; install iris-temporal there anew", "host") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
    try:
        try:
            os.link(source, draft)
        except OSError:  # another file system, or another owner
            shutil.copyfile(source, draft)
            draft.chmod(0o755)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _add_script(path: Path, command: Sequence[str]) -> None:
    if not path.exists():
        path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        path.chmod(0o755)


def _failed(shown: str, status: int, said: str) -> CannotStart:
    line = uv_words.in_a_line(said)
    return CannotStart(f"set-up failed: `{shown}` {_ended(status)}{line and f': {line}'}", status if status > 0 else 128 - status)


def _ended(status: int) -> str:
    if status >= 0:
        return f"exited with {status}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
