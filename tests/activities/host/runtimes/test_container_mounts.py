"""Directories of the host that the configuration gives to containers, when the agent creates one:
none leads to its own files.
"""

from pathlib import Path

import pytest

from iris.activities.host.attempt.host_context import HostContext
from iris.activities.host.runtimes.base import HostFault
from iris.activities.host.runtimes.container.rights import places_of
from iris.storage.object_store import Store
from tests.activities.host.attempt.test_attempt import Server, a_run
from tests.builders import a_host


async def refusal(tmp_path: Path, mount: Path, *own: Path) -> str:
    """Why an agent with these directories starts no container with this mount. It needs no engine
    to refuse.
    """
    directory = tmp_path / "attempt"
    directory.mkdir(exist_ok=True)
    context = HostContext(
        client=Server().client,
        store=Store((tmp_path / "store").as_uri()),
        cluster="c",
        host=a_host("h"),
        directory=tmp_path / "agent",
        cache_dir=tmp_path / "cache",
        mounts=[mount],
        own=own,
    )
    runtime = context.runtime(a_run("true", image="an-image"), directory)
    with pytest.raises(HostFault) as refused:
        await runtime.launch(["true"], {}, directory)
    return str(refused.value)


@pytest.mark.parametrize("below", ["", "attempts", ".."])
async def test_no_container_gets_the_agents_directory(tmp_path: Path, below: str) -> None:
    """With `launch.json` of another attempt, root in a container would run what it wants on the
    host.
    """
    (tmp_path / "agent" / "attempts").mkdir(parents=True)
    mount = (tmp_path / "agent" / below).resolve()
    said = await refusal(tmp_path, mount, tmp_path / "agent")

    assert said.startswith(f"no container gets {mount}: it ")
    assert said.endswith("where the agent has its files; remove it from bootstrap.mounts")


async def test_a_link_to_the_agents_directory_is_followed_before_it_is_mounted(
    tmp_path: Path,
) -> None:
    """The configuration is checked by names: what a link leads to is known only on the host, and
    may change there.
    """
    (tmp_path / "real").mkdir()
    (tmp_path / "agent").symlink_to("real")
    (tmp_path / "data").symlink_to(tmp_path)
    said = await refusal(tmp_path, tmp_path / "data", tmp_path / "agent")

    real = tmp_path.resolve() / "real"
    assert (
        f"it leads to {tmp_path.resolve()}, which contains {real}, where the agent has its files"
        in said
    )


async def test_a_link_to_the_engines_socket_is_no_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has the socket is root of the host."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine/docker.sock")
    (tmp_path / "engine").mkdir()

    assert "docker.sock, which is the socket of the container engine" in await refusal(
        tmp_path, tmp_path / "engine"
    )


async def test_a_link_to_a_directory_of_the_system_is_no_mount(tmp_path: Path) -> None:
    """The name in the configuration was harmless."""
    (tmp_path / "scratch").symlink_to("/proc/self")

    assert "where the kernel of the host shows its state" in await refusal(
        tmp_path, tmp_path / "scratch"
    )


def test_a_container_gets_the_place_and_not_the_link(tmp_path: Path) -> None:
    """The link may be changed between this check and the mount."""
    (tmp_path / "disk1").mkdir()
    (tmp_path / "data").symlink_to("disk1")

    assert places_of([tmp_path / "data"], own=[tmp_path / "agent"]) == {
        tmp_path / "data": tmp_path.resolve() / "disk1"
    }


def test_a_directory_that_the_agent_does_not_see_is_mounted_under_its_name(tmp_path: Path) -> None:
    """An agent in a container has its image's links, such as /lib to /usr/lib; the machine's
    directory is elsewhere.
    """
    (tmp_path / "usr").mkdir()
    (tmp_path / "lib").symlink_to("usr")
    machines = tmp_path / "lib" / "modules"

    assert places_of([machines], own=[tmp_path / "agent"]) == {machines: machines}
