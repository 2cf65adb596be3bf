"""The set-up of an attempt: what its program finds installed, made before it starts or found where an earlier attempt made it."""

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from iris.activities.caches import DISK_FAULT, Cache, no_room
from iris.activities.projects import FILES, Project, find_project, hash_of, hash_of_all, is_here
from iris.activities.runtimes.base import CannotStart, HostUnable, Runtime
from iris.activities.steps import Steps, since, uv_version
from iris.activities.threads import in_thread
from iris.environments import EnvironmentSpec

#: Before each further try of a step for which the network was to blame, in seconds. uv itself has tried several times by then.
PAUSES = (1.0, 5.0, 15.0)
#: Of the agent's own environment: where packages come from, and by which way.
_WAYS = re.compile(r"(?:UV|PIP)_.*|(?:HTTP|HTTPS|ALL|NO)_PROXY", re.IGNORECASE)
#: Of uv's settings: how it gets something, not what. An environment does not depend on them.
_HOW = re.compile(
    r"UV_(?:CACHE_DIR|PYTHON_INSTALL_DIR|PROJECT_ENVIRONMENT|LINK_MODE|HTTP_.*|CONCURRENT_.*|LOCK_.*|NO_PROGRESS|.*(?:PASSWORD|USERNAME|TOKEN).*)"
)
#: Where programs are when nobody says: as in most container images.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Changed when environments are made otherwise: those that are kept are not used any more.
_MADE_AS = 1


class Ready(NamedTuple):
    """What a program is started with."""

    #: All of its environment.
    env: dict[str, str]
    #: File descriptors that have to stay open for as long as the program lives: what it uses is not removed meanwhile.
    keep: tuple[int, ...] = ()

    def release(self) -> None:
        """Close them here, once the program's shim has them or there will be none. To be called once."""
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
    content: str = "",
    agent_env: Mapping[str, str] = os.environ,
    pauses: Sequence[float] = PAUSES,
) -> Ready:
    """Make what the spec asks for, or find it made.

    Args:
        env: of the program, complete but for what is made here.
        cache: of environments; uv and what it needs lie in the same directory.
        own: a directory for this attempt alone, for an environment that its own commands may change.
        output: what the user is told, and what the steps print, is appended to this file.
        content: a name for all that is in the working directory, such as its bundle's hash; empty: it is read if need be.
        agent_env: what the set-up gets of it is in `build_env`.
        pauses: before each further try when the network fails, in seconds.

    Raises:
        CannotStart: a step failed, and would on another host.
        HostUnable: the network or the disk of this host is to blame.
    """
    try:
        return await _set_up(spec, runtime, workdir, env, cache, own, output, content, agent_env, pauses)
    except OSError as error:
        if no_room(error):
            raise HostUnable("the disk of this host is full", DISK_FAULT) from None
        raise


def build_env(agent_env: Mapping[str, str]) -> dict[str, str]:
    """What the commands of a set-up get of the agent's environment, and programs do not: the ways to packages."""
    return {name: value for name, value in agent_env.items() if _WAYS.fullmatch(name)}


def activated(env: Mapping[str, str], venv: Path, workdir: Path) -> dict[str, str]:
    """The environment in which `python` is that of the venv, and imports find the working directory first."""
    return {
        **env,
        "VIRTUAL_ENV": str(venv),
        "PATH": f"{venv / 'bin'}:{env.get('PATH') or _PATH}",
        "PYTHONPATH": ":".join(filter(None, (str(workdir), env.get("PYTHONPATH")))),
    }


async def _set_up(
    spec: EnvironmentSpec,
    runtime: Runtime,
    workdir: Path,
    env: Mapping[str, str],
    cache: Cache,
    own: Path,
    output: Path,
    content: str,
    agent_env: Mapping[str, str],
    pauses: Sequence[float],
) -> Ready:
    ways = {**build_env(agent_env), **env}
    steps = Steps(runtime, workdir, ways, cache, output, pauses)
    project = find_project(workdir) if spec.sync else None
    if spec.sync and project is None and (workdir / "pyproject.toml").exists():
        steps.say("pyproject.toml has no [project]: nothing is installed for it")
    if project is None and spec.extras:
        raise CannotStart(f"set-up failed: no project here has the extra {spec.extras[0]!r}; submit its pyproject.toml, too", 2)
    begun = time.monotonic()
    if project is None and not spec.pip:
        if spec.setup:
            await steps.run(spec.setup, env, None)
            steps.say(f"environment ready ({since(begun)})")
        return Ready(dict(env))
    if spec.setup:
        venv = own / "venv"
        await steps.make(venv, spec, project, alone=True)
        await cache.trim()
        program = activated(env, venv, workdir)
        await steps.run(spec.setup, program, venv)
        steps.say(f"environment ready ({since(begun)})")
        return Ready(program)
    entry = await cache.use(
        await _key(spec, project, workdir, runtime.identity, ways, content),
        lambda place: steps.make(place / "venv", spec, project, alone=False),
        waiting=lambda: steps.say("another task of this host makes the same environment: waiting for it"),
    )
    try:
        steps.say(f"environment ready ({since(begun)})" if entry.made else "environment ready: cached")
    except OSError:
        entry.release()
        raise
    return Ready(activated(env, entry.path / "venv", workdir), (entry.lock,))


async def _key(
    spec: EnvironmentSpec, project: Project | None, workdir: Path, identity: str, env: Mapping[str, str], content: str
) -> str:
    """All that an environment depends on."""
    depends: dict[str, object] = {"made": _MADE_AS, "uv": uv_version(), "runtime": identity, "project": project, "pip": spec.pip}
    depends["extras"] = sorted(spec.extras)
    # The address of an index may have a user's name and password in it.
    settings = {name: re.sub("//[^/@]*@", "//", value) for name, value in env.items() if name.startswith("UV_")}
    depends["settings"] = {name: value for name, value in settings.items() if not _HOW.fullmatch(name)}
    depends["files"] = hash_of(workdir, FILES)
    if (project is not None and project.built) or any(map(is_here, spec.pip)):
        depends["content"] = content or await in_thread(lambda stop: hash_of_all(workdir, stop))
    return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()
