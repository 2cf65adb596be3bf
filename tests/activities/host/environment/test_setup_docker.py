"""Environments in containers, with a real engine."""

from pathlib import Path

import pytest

from iris.activities.host.runtimes.container.runtime import DockerRuntime
from tests import images
from tests.activities.host.environment.test_setup import PROJECT, Host, host
from tests.containers import HOST_ENV, Bench

__all__ = ["host"]

pytestmark = pytest.mark.docker


async def test_an_environment_of_a_container_has_the_python_of_its_image(
    host: Host, tmp_path: Path
) -> None:
    """Made in one container, found at the same path by the next, and taken for no environment of
    the host's own.
    """
    host.write(pyproject=PROJECT)
    (await host.ready()).release()
    host.next_attempt()
    bench = Bench(tmp_path / "attempt", image := images.docker_image())
    bench.runtime = DockerRuntime(image, bench.task, "h0", "c", bench.directory, host_env=HOST_ENV)
    host.workdir.rename(bench.work / "bundle")
    host.workdir, host.output, host.runtime, host.env = (
        bench.work / "bundle",
        bench.directory / "build",
        bench.runtime,
        bench.env(),
    )
    try:
        await bench.runtime.prepare()
        (await host.ready()).release()
        host.next_attempt()
        ready = await host.ready()
        code = "import sys, tiny; print(tiny.version, sys.prefix == sys.argv[1])"
        ended = await bench.run(
            "python",
            "-c",
            code,
            ready.env["VIRTUAL_ENV"],
            env=ready.env,
            workdir=host.workdir,
            read=ready.read,
        )
        ready.release()
    finally:
        await bench.runtime.clear()

    assert (ended.status, bench.out, bench.err) == (0, "1.0 True\n", "")
    assert host.told.endswith(" cached\n")
    assert len(host.environments) == 2


async def test_commands_in_a_container_install_into_what_its_program_gets(
    host: Host, tmp_path: Path
) -> None:
    """Each command has a container of its own: what it wrote into the image's python would be gone
    with it.
    """
    bench = Bench(tmp_path / "attempt", image := images.docker_image())
    bench.runtime = DockerRuntime(image, bench.task, "h0", "c", bench.directory, host_env=HOST_ENV)
    host.workdir, host.output, host.runtime, host.env = (
        bench.work,
        bench.directory / "build",
        bench.runtime,
        bench.env(),
    )
    host.own = bench.directory / "environment"
    host.own.mkdir()
    try:
        await bench.runtime.prepare()
        ready = await host.ready(setup=("pip install tiny", "python -c 'import tiny'"))
        ended = await bench.run(
            "python",
            "-c",
            "import tiny; print(tiny.version)",
            env=ready.env,
            workdir=host.workdir,
            read=ready.read,
        )
    finally:
        await bench.runtime.clear()

    assert (ended.status, bench.out, bench.err) == (0, "1.0\n", "")
