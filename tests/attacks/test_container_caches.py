"""A set-up command in a container that attacks the cache of environments, which later attempts and
the agent itself use.

The agent may be root of the host, and completes the cache between set-ups: a link that it follows
there is a file of its choice anywhere on the host.
"""

import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from iris.activities.host.runtimes.container.runtime import DockerRuntime
from tests import images
from tests.activities.host.environment.test_setup import BACKEND, PACKAGE, PROJECT, Host, host
from tests.containers import HOST_ENV, Bench

__all__ = ["host"]

pytestmark = pytest.mark.docker

#: Puts links in the place of what the agent writes or opens in the cache, wherever that is
#: permitted.
ATTACK = """
import contextlib, os, pathlib
cache, victim = pathlib.Path({cache!r}), {victim!r}
marker = '{{"token": "../../../victim", "size": 1}}'
for entry in [*cache.glob("entries/*"), cache / "entries/new"]:
    with contextlib.suppress(OSError):
        entry.mkdir(exist_ok=True)
        (entry / "complete").unlink(missing_ok=True)
        (entry / "complete").write_text(marker)
for name in {names}:
    with contextlib.suppress(OSError):
        os.rename(cache / name, cache / ("old-" + name))
        os.symlink(victim, cache / name)
"""


class Attempts:
    """Attempts in containers of one host, which share its cache."""

    def __init__(self, host: Host, root: Path) -> None:
        self.host, self.root = host, root
        self.victim = root / "victim"
        self.victim.mkdir()
        self.benches: list[Bench] = []

    def attack(self, *names: str) -> str:
        return ATTACK.format(
            cache=str(self.host.cache.directory), victim=str(self.victim), names=names
        )

    async def next(self, user: str = "ada") -> Bench:
        """Lets the host set up the next attempt."""
        bench = Bench(self.root / f"attempt{len(self.benches)}", image := images.docker_image())
        self.benches.append(bench)
        task = bench.task.model_copy(update={"job": f"{user}/train"})
        bench.runtime = DockerRuntime(image, task, "h0", "c", bench.directory, host_env=HOST_ENV)
        await bench.runtime.prepare()
        host = self.host
        host.workdir, host.output, host.runtime, host.env = (
            bench.work,
            bench.directory / "build",
            bench.runtime,
            bench.env(),
        )
        host.own = bench.directory / "environment"
        host.own.mkdir()
        host.write(pyproject=PROJECT)
        return bench


@pytest.fixture
async def attempts(host: Host, tmp_path: Path) -> AsyncIterator[Attempts]:
    attempts = Attempts(host, tmp_path)
    yield attempts
    for bench in attempts.benches:
        await bench.runtime.clear()


async def test_a_command_cannot_send_the_agent_elsewhere_by_links_in_the_cache(
    attempts: Attempts,
) -> None:
    """The next set-ups use the cache as if nothing had happened, and nothing is written outside of
    it.
    """
    host = attempts.host
    await attempts.next()
    (await host.ready()).release()
    await attempts.next()
    await host.ready(
        setup=(f"python3 -c {shlex.quote(attempts.attack('bin', 'python', 'entries'))}",)
    )
    await attempts.next()
    (await host.ready()).release()

    assert host.told.endswith(" cached\n")
    await attempts.next()
    (await host.ready(pip=("other",))).release()
    assert [*attempts.victim.iterdir()] == []


async def test_the_build_of_an_environment_cannot_send_the_agent_elsewhere(
    attempts: Attempts,
) -> None:
    """The build of a package runs code, and its environment is kept for others: it gets this
    environment and uv's downloads.
    """
    host = attempts.host
    await attempts.next()
    host.write(
        pyproject=PACKAGE,
        **{"backend.py": attempts.attack("bin", "python") + BACKEND, "study.py": "x = 1"},
    )
    (await host.ready()).release()
    await attempts.next()
    (await host.ready(pip=("other",))).release()

    assert [*attempts.victim.iterdir()] == []


async def test_a_program_cannot_change_the_environment_that_it_shares(attempts: Attempts) -> None:
    """Other attempts run its files. Of the cache, a program sees this environment alone."""
    host = attempts.host
    await attempts.next()
    (await host.ready(pip=("other",))).release()
    bench = await attempts.next()
    ready = await host.ready()
    venv = ready.env["VIRTUAL_ENV"]
    script = f"touch {venv}/x; ls {host.cache.directory} {host.cache.directory}/entries"
    await bench.run("sh", "-c", script, env=ready.env, read=ready.read)
    ready.release()

    assert "Read-only file system" in bench.err
    key = ready.read[0].parent.name
    assert bench.out.split() == [
        f"{host.cache.directory}:",
        "entries",
        f"{host.cache.directory}/entries:",
        key,
    ]
    assert not Path(venv, "x").exists()


async def test_users_of_one_image_share_no_environment(attempts: Attempts) -> None:
    """Whoever builds it, or fills uv's cache, decides what runs in it."""
    host = attempts.host
    await attempts.next()
    (await host.ready()).release()
    await attempts.next(user="bob")
    (await host.ready()).release()

    assert "environment ready (" in host.told
    assert len(host.environments) == 2
