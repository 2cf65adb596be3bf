"""Keeps the uv that makes environments on this host, with its downloads and interpreters, and lends
them to the commands of set-ups.
"""

import filecmp
import hashlib
import importlib.metadata
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import cache as once
from pathlib import Path
from typing import NamedTuple

import uv

from iris.activities.host.files.caches import Cache
from iris.activities.host.runtimes.base import HostFault, Runtime
from iris.activities.host.runtimes.cleanup import trees
from iris.activities.host.runtimes.process.job_users import lent
from iris.activities.host.runtimes.threads import in_thread


class UvPlaces(NamedTuple):
    """The directories in which uv works, and the variables that name them to uv."""

    env: dict[str, str]
    #: The directories to which uv writes.
    written: tuple[Path, ...]

    @classmethod
    def at(cls, venv: Path, cache: Path, pythons: Path) -> "UvPlaces":
        """Returns the places for an environment. They are all for one job, which also has the
        environment's own directory.
        """
        env = {
            "UV_PROJECT_ENVIRONMENT": str(venv),
            "UV_NO_PROGRESS": "1",
            "UV_CACHE_DIR": str(cache),
            "UV_PYTHON_INSTALL_DIR": str(pythons),
            "UV_PYTHON_CACHE_DIR": str(cache / "pythons"),
        }
        return cls(env, (cache, venv.parent))


class Uv:
    """Provides uv on this host to the attempts of one runtime.

    Args:
        cache: the cache of environments. It also contains uv, its downloads and its interpreters,
            because environments contain links to them.
    """

    def __init__(self, runtime: Runtime, cache: Cache) -> None:
        self._runtime = runtime
        self._cache = cache
        #: The directory that contains the program uv. The scripts `uv` and `pip` of environments
        #: call this program.
        self.programs = cache.directory / "bin"
        self.program = self.programs / f"uv-{uv_version()}"

    async def provide(self) -> None:
        """Copies the agent's uv to the path where every runtime finds it.

        Raises:
            HostFault: the agent has no uv.
        """
        self._cache.make_directory(self.programs)
        await in_thread(lambda _: _provide(self.program))

    @asynccontextmanager
    async def lend(self, venv: Path) -> AsyncIterator[UvPlaces]:
        """Yields the directories in which uv works while it makes an environment.

        Each runtime has a cache of its own, because packages that uv builds in one runtime may not
        work in another. If jobs have users of their own, the cache belongs to one user at a time. A
        job that finds the cache in use gets an empty one. Jobs that run in containers or as users
        of their own get their own interpreter for each environment, from an archive in the cache.
        """
        owner = self._runtime.owner

        async def empty(_: Path) -> None: ...

        identity = hashlib.sha256(self._runtime.identity.encode()).hexdigest()
        with await self._cache.use(f"uv-{identity[:32]}", empty) as downloads:
            try:
                if not self._runtime.apart:
                    yield UvPlaces.at(venv, downloads.path, self._cache.directory / "python")
                    return
                own = venv.with_name("python")
                if owner is None:
                    yield UvPlaces.at(venv, downloads.path, own)
                    return
                with ExitStack() as borrowed:
                    lending = lent(downloads.path, owner)
                    got = await in_thread(lambda _: borrowed.enter_context(lending))
                    place = downloads.path if got else venv.with_name("uv-cache")
                    yield UvPlaces.at(venv, place, own)
                    if not got:
                        await in_thread(lambda _: trees.remove(place))
            finally:
                with suppress(OSError):  # the recorded size stays as it was
                    await self._cache.measure(downloads)


@once
def uv_version() -> str:
    """Returns the version of the uv that makes environments on this host."""
    return importlib.metadata.version("uv")


def _provide(path: Path) -> None:
    """Copies the agent's uv to a path where every runtime finds it.

    Programs can reach the copy and may change it, so each call compares it with the original.
    """
    try:
        source = uv.find_uv_bin()
    except FileNotFoundError:
        raise HostFault(
            "uv is not installed in the Python environment of this host's agent; reinstall"
            " iris-temporal there",
            "host",
        ) from None
    if path.is_file() and filecmp.cmp(source, path, shallow=False) and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
    try:
        shutil.copyfile(source, draft)
        draft.chmod(0o755)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
