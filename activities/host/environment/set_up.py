"""Makes the environment of an attempt's program before the program starts, or finds the one that an
earlier attempt made.
"""

import asyncio
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from iris.activities.host.environment.commands import PATH
from iris.activities.host.environment.job_files import (
    hash_of,
    hash_of_all,
    reading_the_jobs_files,
)
from iris.activities.host.environment.projects import (
    FILES,
    Project,
    find_project,
    hash_of_requirements,
    is_here,
    with_its_packages,
)
from iris.activities.host.environment.steps import Steps, since
from iris.activities.host.environment.uv_places import uv_version
from iris.activities.host.files.caches import DISK_FAULT, Cache, is_disk_full
from iris.activities.host.runtimes.base import HostFault, JobFault, Runtime
from iris.activities.host.runtimes.cleanup import links
from iris.activities.host.runtimes.threads import in_thread
from iris.model.host.faults import SETUP_TIMEOUT
from iris.model.job.environments import EnvironmentSpec, requirements_file
from iris.model.units import format_duration

#: The delays before each retry of a step after a network failure, in seconds. Before each retry, uv
#: itself has already tried several times.
PAUSES = (1.0, 5.0, 15.0)
#: Matches the agent's variables for package indexes and proxies. Set-up commands get these
#: variables, and programs do not.
_SOURCES = re.compile(r"(?:UV|PIP)_.*|(?:HTTP|HTTPS|ALL|NO)_PROXY", re.IGNORECASE)
#: Matches the settings of uv that change how uv gets packages, but not which packages. An
#: environment does not depend on these settings.
_WITHOUT_EFFECT = re.compile(
    r"UV_(?:CACHE_DIR|PYTHON_CACHE_DIR|PYTHON_INSTALL_DIR|PROJECT_ENVIRONMENT|LINK_MODE"
    r"|HTTP_.*|CONCURRENT_.*|LOCK_.*|NO_PROGRESS|.*(?:PASSWORD|USERNAME|TOKEN).*)"
)
#: The version of the method by which environments are made. Raise it when the method changes:
#: environments that were made by another version are not used any more.
_MADE_AS = 2
#: The message to the user while another attempt makes the environment.
_WAITING = "another task of this host makes the same environment: waiting for it"


@dataclass(frozen=True)
class ProgramFiles:
    """The files of a program. The program's environment may depend on them."""

    #: The directory in which the program starts.
    workdir: Path
    #: The directory of all the program's files: `workdir` or a directory above it.
    root: Path
    #: An identifier of the content of `root`, such as the hash of the program's bundle. If it is
    #: empty, the files are hashed when a hash is needed.
    content: str = ""


@dataclass(frozen=True)
class Places:
    """The paths to which the set-up of one attempt writes, besides the cache."""

    #: The directory for an environment that only this attempt uses and changes.
    own: Path
    #: The file that receives the messages for the user and the output of all steps.
    output: Path


class Ready(NamedTuple):
    """The environment in which a program is started."""

    #: All environment variables of the program.
    env: dict[str, str]
    #: File descriptors that stay open while the program lives. Meanwhile, the cache does not remove
    #: the environment.
    keep: tuple[int, ...] = ()
    #: The directories of the host that the program reads, besides the files of its attempt.
    read: tuple[Path, ...] = ()

    def release(self) -> None:
        """Closes the descriptors in this process, after the shim has inherited them or if no
        program starts.

        Must be called only once.
        """
        for descriptor in self.keep:
            os.close(descriptor)


async def set_up(
    spec: EnvironmentSpec,
    runtime: Runtime,
    files: ProgramFiles,
    env: Mapping[str, str],
    cache: Cache,
    places: Places,
    *,
    agent_env: Mapping[str, str] = os.environ,
    pauses: Sequence[float] = PAUSES,
    announce: Callable[[str], object] = lambda _: None,
) -> Ready:
    """Makes the environment that the spec requests, or finds it in the cache.

    Args:
        env: the program's environment, without the variables that the set-up adds.
        cache: the cache of environments, which also has uv and its downloads.
        agent_env: the agent's environment; the set-up gets the part that `build_env` returns.
        pauses: delays before each retry after a network failure, in seconds.
        announce: called before each step with its description, and with an empty text at the end.

    Raises:
        JobFault: a step failed, and would fail on another host too.
        HostFault: the network or the disk of this host failed, or the set-up took too long.
    """
    doing = ""

    def announced(text: str) -> None:
        nonlocal doing
        doing = text or doing
        announce(text)

    build = {**build_env(agent_env), **spec.build_env, **env}
    steps = Steps(runtime, files.workdir, build, cache, places.output, pauses, announced)
    limit = asyncio.timeout(spec.setup_timeout.total_seconds())
    try:
        async with limit:
            ready = await _SetUp(steps, runtime, files, env, build, cache, places.own).run(spec)
        announced("")
        return ready
    except TimeoutError:
        if not limit.expired():
            raise
        reason = (
            f"set-up failed: it took longer than {format_duration(spec.setup_timeout)}"
            " (--setup-timeout)"
        )
        raise HostFault(
            f"{reason}; last step: {doing}" if doing else reason, SETUP_TIMEOUT
        ) from None
    except OSError as error:
        if is_disk_full(error):
            raise HostFault("the disk of this host is full", DISK_FAULT) from None
        if isinstance(error, links.Replaced):  # by a command of the job, or by its image
            raise JobFault(f"set-up failed: {error}", 126) from None
        raise


def build_env(agent_env: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of the agent for package indexes and proxies. Set-up commands get them,
    and programs do not.
    """
    return {name: value for name, value in agent_env.items() if _SOURCES.fullmatch(name)}


def activated(env: Mapping[str, str], venv: Path, workdir: Path) -> dict[str, str]:
    """Returns the environment in which `python` is that of the venv, and imports search the working
    directory first.
    """
    return {
        **env,
        "VIRTUAL_ENV": str(venv),
        "PATH": f"{venv / 'bin'}:{env.get('PATH') or PATH}",
        "PYTHONPATH": ":".join(filter(None, (str(workdir), env.get("PYTHONPATH")))),
    }


@dataclass(frozen=True)
class _SetUp:
    """Makes the environment for the program of one attempt."""

    steps: Steps
    runtime: Runtime
    files: ProgramFiles
    #: The environment variables of the program.
    env: Mapping[str, str]
    #: The environment variables of the set-up's commands.
    build: Mapping[str, str]
    cache: Cache
    #: The directory for an environment that only this attempt uses and changes.
    own: Path
    begun: float = field(default_factory=time.monotonic)

    async def run(self, spec: EnvironmentSpec) -> Ready:
        """Makes the environment in the way that the spec needs."""
        spec, project = await self._declared(spec)
        if project is not None or spec.pip:
            if spec.setup:
                return await self._make_own(spec, project)
            return await self._share(spec, project)
        if spec.setup:
            return await self._run_commands_only(spec)
        return Ready(dict(self.env))

    async def _declared(self, spec: EnvironmentSpec) -> tuple[EnvironmentSpec, Project | None]:
        """Returns the project of the working directory, and the spec with the packages that a
        directory without a project declares.
        """
        project = None
        if spec.sync:
            with reading_the_jobs_files():
                project = await asyncio.to_thread(find_project, self.files.workdir, self.files.root)
                if project is None:
                    spec, line = await asyncio.to_thread(
                        with_its_packages, spec, self.files.workdir
                    )
                    if line:
                        self.steps.say(line)
        if project is None and spec.extras:
            raise JobFault(
                f"set-up failed: the extra {spec.extras[0]!r} needs a project, and the submitted"
                " files have no pyproject.toml; submit it, too",
                2,
            )
        return spec, project

    async def _run_commands_only(self, spec: EnvironmentSpec) -> Ready:
        """Runs the user's commands, in an empty environment if this host can make one."""
        venv = self.own / "venv"
        if not await self.steps.make_beside(venv, spec.python):
            await self.steps.run(spec.setup, self.env, None)
            self._say_ready()
            return Ready(dict(self.env))
        return await self._run_commands(spec, venv)

    async def _make_own(self, spec: EnvironmentSpec, project: Project | None) -> Ready:
        """Makes an environment for this attempt alone, which the user's commands may change."""
        venv = self.own / "venv"
        await self.steps.make(venv, spec, project, alone=True)
        await self.cache.trim()
        return await self._run_commands(spec, venv)

    async def _run_commands(self, spec: EnvironmentSpec, venv: Path) -> Ready:
        program = activated(self.env, venv, self.files.workdir)
        await self.steps.run(spec.setup, program, venv)
        self._say_ready()
        return Ready(program, read=(self.steps.uv.programs,))

    async def _share(self, spec: EnvironmentSpec, project: Project | None) -> Ready:
        """Finds the environment in the cache, or makes it there for this and later attempts."""
        with reading_the_jobs_files():
            key = await _key(spec, project, self.files, self.runtime.identity, self.build)

        def waits() -> None:
            self.steps.say(_WAITING)
            self.steps.announce(_WAITING)

        entry = await self.cache.use(
            key, lambda place: self.steps.make_shared(place, spec, project), waiting=waits
        )
        try:
            if entry.made:
                self._say_ready()
            else:
                self.steps.say("environment ready: cached")
        except OSError:
            entry.release()
            raise
        program = activated(self.env, entry.path / "venv", self.files.workdir)
        return Ready(program, (entry.lock,), (entry.path,))

    def _say_ready(self) -> None:
        self.steps.say(f"environment ready ({since(self.begun)})")


async def _key(
    spec: EnvironmentSpec,
    project: Project | None,
    files: ProgramFiles,
    identity: str,
    env: Mapping[str, str],
) -> str:
    """Returns a hash of everything that an environment depends on."""
    # The URL of an index may contain a user name and a password.
    settings = {
        name: re.sub("//[^/@]*@", "//", value)
        for name, value in env.items()
        if name.startswith("UV_") and not _WITHOUT_EFFECT.fullmatch(name)
    }
    depends: dict[str, object] = {
        "made": _MADE_AS,
        "uv": uv_version(),
        "runtime": identity,
        "project": project,
        "pip": spec.pip,
        "extras": sorted(spec.extras),
        "python": spec.python,
        "settings": settings,
        "files": await asyncio.to_thread(hash_of, files.workdir, FILES),
        "build_env": {name: env[name] for name in spec.build_env},
    }
    local = any(is_here(each) for each in spec.pip if requirements_file(each) is None)
    for path in filter(None, map(requirements_file, spec.pip)):
        depends[f"-r {path}"], has_local = await asyncio.to_thread(
            hash_of_requirements, files.workdir, path
        )
        local = local or has_local
    if (project is not None and project.built) or local:
        depends["content"] = files.content or await in_thread(
            lambda stop: hash_of_all(files.root, stop)
        )
        depends["place"] = str(files.workdir.relative_to(files.root))
    return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()
