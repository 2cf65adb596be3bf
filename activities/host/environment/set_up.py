"""Sets up the environment of an attempt's program before it starts, or uses the one that an earlier
attempt made.
"""

import asyncio
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from iris.activities.host.environment.commands import PATH
from iris.activities.host.environment.projects import (
    FILES,
    Project,
    find_project,
    hash_of,
    hash_of_all,
    hash_of_requirements,
    is_here,
    reading_the_jobs_files,
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

#: Delays before each retry of a step after a network failure, in seconds. uv itself has tried
#: several times by then.
PAUSES = (1.0, 5.0, 15.0)
#: Variables of the agent's own environment: where packages come from, and through which proxy.
_WAYS = re.compile(r"(?:UV|PIP)_.*|(?:HTTP|HTTPS|ALL|NO)_PROXY", re.IGNORECASE)
#: Settings of uv that change how it gets packages, but not which ones. An environment does not
#: depend on them.
_HOW = re.compile(
    r"UV_(?:CACHE_DIR|PYTHON_CACHE_DIR|PYTHON_INSTALL_DIR|PROJECT_ENVIRONMENT|LINK_MODE|HTTP_.*|CONCURRENT_.*|LOCK_.*|NO_PROGRESS|.*(?:PASSWORD|USERNAME|TOKEN).*)"
)
#: To be increased when environments are made in a different way: cached ones are then not used any
#: more.
_MADE_AS = 2
#: What the user reads when the environment is shared.
_WAITING = "another task of this host makes the same environment: waiting for it"


class Ready(NamedTuple):
    """The environment in which a program is started."""

    #: All environment variables of the program.
    env: dict[str, str]
    #: File descriptors that must stay open for as long as the program lives, so that the cache does
    #: not remove what it uses.
    keep: tuple[int, ...] = ()
    #: The directories of the host that the program reads, besides the files of its attempt.
    read: tuple[Path, ...] = ()

    def release(self) -> None:
        """Closes the descriptors in this process, when the shim has inherited them or no program
        starts.

        Must be called only once.
        """
        for descriptor in self.keep:
            os.close(descriptor)


async def set_up(
    spec: EnvironmentSpec,
    runtime: Runtime,
    workdir: Path,
    env: Mapping[str, str],
    cache: Cache,
    own: Path,
    output: Path,
    *,
    root: Path | None = None,
    content: str = "",
    agent_env: Mapping[str, str] = os.environ,
    pauses: Sequence[float] = PAUSES,
    announce: Callable[[str], object] = lambda _: None,
) -> Ready:
    """Makes the environment that the spec requests, or finds it in the cache.

    Args:
        env: the program's environment, complete except for what is made here.
        cache: the cache of environments; uv and what it needs lie in the same directory.
        own: a directory of this attempt alone, for an environment that its own commands may change.
        output: the file to which messages for the user and the output of the steps are appended.
        root: the directory of all the program's files, above or at the working directory; None: at
            it.
        content: a name for everything in that directory, such as its bundle's hash; empty: the
            files are hashed if needed.
        agent_env: the agent's environment; the set-up gets the part that `build_env` returns.
        pauses: delays before each retry after a network failure, in seconds.
        announce: called with what is done, before it is; with an empty text at the end.

    Raises:
        JobFault: a step failed, and would fail on another host too.
        HostFault: the network or the disk of this host failed, or the time for the set-up is over.
    """
    doing = ""

    def announced(text: str) -> None:
        nonlocal doing
        doing = text or doing
        announce(text)

    ways = {**build_env(agent_env), **spec.build_env, **env}
    steps = Steps(runtime, workdir, ways, cache, output, pauses, announced)
    limit = asyncio.timeout(spec.setup_timeout.total_seconds())
    try:
        async with limit:
            ready = await _set_up(
                spec, steps, runtime, workdir, env, ways, cache, own, root or workdir, content
            )
        announced("")
        return ready
    except TimeoutError:
        if not limit.expired():
            raise
        reason = (
            f"set-up failed: it took longer than {format_duration(spec.setup_timeout)}"
            " (--setup-timeout)"
        )
        raise HostFault(f"{reason}, in {doing}" if doing else reason, SETUP_TIMEOUT) from None
    except OSError as error:
        if is_disk_full(error):
            raise HostFault("the disk of this host is full", DISK_FAULT) from None
        if isinstance(error, links.Replaced):  # by a command of the job, or by its image
            raise JobFault(f"set-up failed: {error}", 126) from None
        raise


def build_env(agent_env: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of the agent's environment that set-up commands get and programs do
    not: indexes and proxies.
    """
    return {name: value for name, value in agent_env.items() if _WAYS.fullmatch(name)}


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


async def _set_up(
    spec: EnvironmentSpec,
    steps: Steps,
    runtime: Runtime,
    workdir: Path,
    env: Mapping[str, str],
    ways: Mapping[str, str],
    cache: Cache,
    own: Path,
    root: Path,
    content: str,
) -> Ready:
    project = None
    if spec.sync:
        with reading_the_jobs_files():
            project = await asyncio.to_thread(find_project, workdir, root)
            if project is None:
                spec, line = await asyncio.to_thread(with_its_packages, spec, workdir)
                if line:
                    steps.say(line)
    if project is None and spec.extras:
        raise JobFault(
            f"set-up failed: no project here has the extra {spec.extras[0]!r}; submit its"
            " pyproject.toml, too",
            2,
        )
    begun = time.monotonic()
    if project is None and not spec.pip:
        if not spec.setup:
            return Ready(dict(env))
        venv = own / "venv" if await steps.make_beside(own / "venv", spec.python) else None
        program = activated(env, venv, workdir) if venv is not None else dict(env)
        await steps.run(spec.setup, program, venv)
        steps.say(f"environment ready ({since(begun)})")
        return Ready(program, read=(steps.uv.programs,) if venv is not None else ())
    if spec.setup:
        venv = own / "venv"
        await steps.make(venv, spec, project, alone=True)
        await cache.trim()
        program = activated(env, venv, workdir)
        await steps.run(spec.setup, program, venv)
        steps.say(f"environment ready ({since(begun)})")
        return Ready(program, read=(steps.uv.programs,))
    with reading_the_jobs_files():
        key = await _key(spec, project, workdir, root, runtime.identity, ways, content)

    def waits() -> None:
        steps.say(_WAITING)
        steps.announce(_WAITING)

    entry = await cache.use(
        key,
        lambda place: steps.make_shared(place, spec, project),
        waiting=waits,
    )
    try:
        steps.say(
            f"environment ready ({since(begun)})" if entry.made else "environment ready: cached"
        )
    except OSError:
        entry.release()
        raise
    return Ready(activated(env, entry.path / "venv", workdir), (entry.lock,), (entry.path,))


async def _key(
    spec: EnvironmentSpec,
    project: Project | None,
    workdir: Path,
    root: Path,
    identity: str,
    env: Mapping[str, str],
    content: str,
) -> str:
    """Returns a hash of everything that an environment depends on."""
    depends: dict[str, object] = {
        "made": _MADE_AS,
        "uv": uv_version(),
        "runtime": identity,
        "project": project,
        "pip": spec.pip,
    }
    depends["extras"], depends["python"] = sorted(spec.extras), spec.python
    # The URL of an index may contain a user name and a password.
    settings = {
        name: re.sub("//[^/@]*@", "//", value)
        for name, value in env.items()
        if name.startswith("UV_")
    }
    depends["settings"] = {
        name: value for name, value in settings.items() if not _HOW.fullmatch(name)
    }
    depends["files"] = await asyncio.to_thread(hash_of, workdir, FILES)
    depends["build_env"] = {name: env[name] for name in spec.build_env}
    local = any(is_here(each) for each in spec.pip if requirements_file(each) is None)
    for path in filter(None, map(requirements_file, spec.pip)):
        depends[f"-r {path}"], has_local = await asyncio.to_thread(
            hash_of_requirements, workdir, path
        )
        local = local or has_local
    if (project is not None and project.built) or local:
        depends["content"] = content or await in_thread(lambda stop: hash_of_all(root, stop))
        depends["place"] = str(workdir.relative_to(root))
    return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()
